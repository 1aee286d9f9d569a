package peers;

import io.netty.channel.EventLoopGroup;
import io.netty.channel.nio.NioEventLoopGroup;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * RLock of Redisson, plain or fair. Waits for a message of the one who releases.
 *
 * <p>A lock belongs to a client and a thread. It is taken without a lease time, so that Redisson renews it:
 * the ttl is the watchdog's timeout, 30 s by default. The waiting has no bound; who waits for a fair lock
 * and is not heard of for 5 minutes loses the place in the queue. Readers and writers have an RReadWriteLock, permits an
 * RPermitExpirableSemaphore, see {@link RedissonSemaphores}.
 *
 * <p>Compiled against the newest version, and run with each: only what all of them have is used.
 */
final class RedissonLocks implements Library {
    private final String url;
    private final boolean fair;

    // As many as Redisson would make for each client (32 and 16), and shared as its documentation
    // recommends for several clients: a process may have to open hundreds.
    private final EventLoopGroup network = new NioEventLoopGroup(32);
    private final ExecutorService threads = Executors.newFixedThreadPool(16);

    RedissonLocks(List<String> urls, boolean fair) {
        this.url = urls.get(0);
        this.fair = fair;
    }

    @Override
    public String version() {
        return Library.versionOf(Redisson.class);
    }

    @Override
    public Session open(long ttlMillis) {
        RedissonClient client = client(ttlMillis);
        return new Session() {
            @Override
            public Lock lock(String name, int slot) {
                return new Held(fair ? client.getFairLock(name) : client.getLock(name));
            }

            @Override
            public Lock read(String name) {
                return new Held(client.getReadWriteLock(name).readLock());
            }

            @Override
            public Lock write(String name) {
                return new Held(client.getReadWriteLock(name).writeLock());
            }

            @Override
            public Lock permit(String name, int permits) {
                return RedissonSemaphores.expirable(client, name, permits, ttlMillis);
            }
        };
    }

    RedissonClient client(long ttlMillis) {
        Config config = new Config();
        config.setLockWatchdogTimeout(ttlMillis).setEventLoopGroup(network).setExecutor(threads);
        // Of 24 connections by default; there are more, up to 64, when several threads need them.
        config.useSingleServer().setAddress(url).setConnectionMinimumIdleSize(1);
        return Redisson.create(config);
    }

    private record Held(RLock lock) implements Lock {
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
