package peers;

import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;

/**
 * ShedLock, which skips a job whose lock is held. So the waiting is ours: every 100 ms.
 *
 * <p>The ttl is {@code lockAtMostFor}. There is no {@code lockAtLeastFor}, and nothing renews. By default it deletes and
 * extends without a look at the value; {@code safe} makes it compare.
 */
final class ShedLocks implements Library {
    private final String url;
    private final boolean safe;

    ShedLocks(List<String> urls, boolean safe) {
        this.url = urls.get(0);
        this.safe = safe;
    }

    @Override
    public String version() {
        return Library.versionOf(RedisLockProvider.class);
    }

    @Override
    public Session open(long ttlMillis) {
        var provider = new RedisLockProvider.Builder(SpringLocks.connect(url)).safeUpdate(safe).build();
        return (name, slot) -> new Held(provider, name, Duration.ofMillis(ttlMillis));
    }

    private static final class Held implements Lock {
        private final LockProvider provider;
        private final String name;
        private final Duration ttl;
        private SimpleLock held;

        Held(LockProvider provider, String name, Duration ttl) {
            this.provider = provider;
            this.name = name;
            this.ttl = ttl;
        }

        @Override
        public void acquire() throws Exception {
            while (!tryAcquire()) {
                TimeUnit.MILLISECONDS.sleep(100);
            }
        }

        @Override
        public boolean tryAcquire() {
            Optional<SimpleLock> lock =
                    provider.lock(new LockConfiguration(Instant.now(), name, ttl, Duration.ZERO));
            held = lock.orElse(null);
            return lock.isPresent();
        }

        @Override
        public void extend() {
            held = held.extend(ttl, Duration.ZERO).orElseThrow(() -> new IllegalStateException("it is not held any more"));
        }

        @Override
        public void release() {
            held.unlock();
        }
    }
}
