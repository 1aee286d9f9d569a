package peers;

import java.util.List;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/**
 * The semaphores of Redisson. RSemaphore is a number that goes down and up, whoever has a permit; it has no lease, and
 * no lock that one holds alone. RPermitExpirableSemaphore gives each permit a name and, here, the lease that is asked
 * for, which it does not renew.
 */
final class RedissonSemaphores implements Library {
    private final RedissonLocks clients;

    RedissonSemaphores(List<String> urls) {
        clients = new RedissonLocks(urls, false);
    }

    @Override
    public String version() {
        return Library.versionOf(Redisson.class);
    }

    @Override
    public Session open(long ttlMillis) {
        RedissonClient client = clients.client(ttlMillis);
        return new Session() {
            @Override
            public Lock lock(String name, int slot) {
                throw new UnsupportedOperationException("a semaphore is no lock");
            }

            @Override
            public Lock permit(String name, int permits) {
                RSemaphore semaphore = client.getSemaphore(name);
                // Does nothing if that has been done.
                semaphore.trySetPermits(permits);
                return new Counted(semaphore);
            }
        };
    }

    static Library.Lock expirable(RedissonClient client, String name, int permits, long ttlMillis) {
        RPermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore(name);
        semaphore.trySetPermits(permits);
        return new Expirable(semaphore, ttlMillis);
    }

    private record Counted(RSemaphore semaphore) implements Lock {
        @Override
        public void acquire() throws InterruptedException {
            semaphore.acquire();
        }

        @Override
        public boolean tryAcquire() {
            return semaphore.tryAcquire();
        }

        @Override
        public void release() {
            semaphore.release();
        }
    }

    private static final class Expirable implements Lock {
        private final RPermitExpirableSemaphore semaphore;
        private final long ttlMillis;
        private String permit;

        Expirable(RPermitExpirableSemaphore semaphore, long ttlMillis) {
            this.semaphore = semaphore;
            this.ttlMillis = ttlMillis;
        }

        @Override
        public void acquire() throws InterruptedException {
            permit = semaphore.acquire(ttlMillis, TimeUnit.MILLISECONDS);
        }

        @Override
        public boolean tryAcquire() throws InterruptedException {
            permit = semaphore.tryAcquire(0, ttlMillis, TimeUnit.MILLISECONDS);
            return permit != null;
        }

        @Override
        public void release() {
            semaphore.release(permit);
        }
    }
}
