package peers;

import java.net.URI;
import java.util.List;
import org.springframework.data.redis.connection.RedisConnectionFactory;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.jedis.JedisConnectionFactory;
import org.springframework.integration.redis.util.RedisLockRegistry;
import org.springframework.integration.redis.util.RedisLockRegistry.RedisLockType;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;

/**
 * RedisLockRegistry of Spring Integration. Waits for a message of the one who releases, and for 60 s by default without one,
 * or polls every 100 ms.
 *
 * <p>A lock belongs to a registry, and within it to a thread. The ttl is the registry's, 60 s by default. With a scheduler,
 * which is not the default, it renews at a third of it.
 */
final class SpringLocks implements Library {
    private final String url;
    private final RedisLockType type;
    private final ThreadPoolTaskScheduler scheduler = new ThreadPoolTaskScheduler();

    SpringLocks(List<String> urls, RedisLockType type) {
        this.url = urls.get(0);
        this.type = type;
        scheduler.initialize();
    }

    @Override
    public String version() {
        return Library.versionOf(RedisLockRegistry.class);
    }

    @Override
    public Session open(long ttlMillis) {
        var registry = new RedisLockRegistry(connect(url), "locks", ttlMillis);
        registry.setRedisLockType(type);
        registry.setRenewalTaskScheduler(scheduler);
        return (name, slot) -> new Held(registry.obtain(name));
    }

    /** One pool of connections to the server. */
    static RedisConnectionFactory connect(String url) {
        URI server = URI.create(url);
        var factory = new JedisConnectionFactory(new RedisStandaloneConfiguration(server.getHost(), server.getPort()));
        factory.afterPropertiesSet();
        factory.start();
        return factory;
    }

    private record Held(java.util.concurrent.locks.Lock lock) implements Lock {
        @Override
        public void acquire() {
            lock.lock();
        }

        @Override
        public boolean tryAcquire() {
            return lock.tryLock();
        }

        @Override
        public void release() {
            lock.unlock();
        }
    }
}
