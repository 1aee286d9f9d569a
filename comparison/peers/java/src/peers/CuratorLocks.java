package peers;

import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * InterProcessMutex of Curator. Waits by watching the node before its own.
 *
 * <p>A lock belongs to an object and a thread. The ttl is the session's timeout (60 s by default), which the
 * server may raise or lower to what it allows. The waiting has no bound. There is no default for how failed
 * requests are tried again; here it is as in Curator's introduction, 3 times from 1 s on. Readers and writers have an
 * InterProcessReadWriteLock, permits an InterProcessSemaphoreV2.
 */
final class CuratorLocks implements Library {
    private final String servers;

    CuratorLocks(List<String> urls) {
        servers = urls.stream().map(Library::address).collect(Collectors.joining(","));
    }

    @Override
    public String version() {
        return Library.versionOf(InterProcessMutex.class);
    }

    @Override
    public Session open(long ttlMillis) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.builder()
                .connectString(servers)
                .sessionTimeoutMs(Math.toIntExact(ttlMillis))
                .retryPolicy(new ExponentialBackoffRetry(1000, 3))
                .build();
        client.start();
        if (!client.blockUntilConnected(CONNECTING_SECONDS, TimeUnit.SECONDS)) {
            throw new TimeoutException("no connection to " + servers);
        }
        return new Session() {
            @Override
            public Lock lock(String name, int slot) {
                return new Held(new InterProcessMutex(client, "/locks/" + name));
            }

            @Override
            public Lock read(String name) {
                return new Held(new InterProcessReadWriteLock(client, "/locks/" + name).readLock());
            }

            @Override
            public Lock write(String name) {
                return new Held(new InterProcessReadWriteLock(client, "/locks/" + name).writeLock());
            }

            @Override
            public Lock permit(String name, int permits) {
                return new Permit(new InterProcessSemaphoreV2(client, "/locks/" + name, permits));
            }
        };
    }

    private static final int CONNECTING_SECONDS = 15;

    private record Held(InterProcessMutex mutex) implements Lock {
        @Override
        public void acquire() throws Exception {
            mutex.acquire();
        }

        @Override
        public void release() throws Exception {
            mutex.release();
        }
    }

    private static final class Permit implements Lock {
        private final InterProcessSemaphoreV2 semaphore;
        private Lease lease;

        Permit(InterProcessSemaphoreV2 semaphore) {
            this.semaphore = semaphore;
        }

        @Override
        public void acquire() throws Exception {
            lease = semaphore.acquire();
        }

        @Override
        public boolean tryAcquire() throws Exception {
            lease = semaphore.acquire(0, TimeUnit.SECONDS);
            return lease != null;
        }

        @Override
        public void release() {
            semaphore.returnLease(lease);
        }
    }
}
