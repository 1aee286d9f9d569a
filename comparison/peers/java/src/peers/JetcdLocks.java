package peers;

import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.Client;
import io.etcd.jetcd.lease.LeaseKeepAliveResponse;
import io.grpc.stub.StreamObserver;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * The Lock of jetcd, which asks etcd's Lock service: the server waits.
 *
 * <p>Its defaults stay: no bound on the waiting. The lease has no default ttl; it is kept alive by jetcd.
 */
final class JetcdLocks implements Library {
    private final String[] endpoints;

    JetcdLocks(List<String> urls) {
        endpoints = urls.stream().map(url -> "http://" + Library.address(url)).toArray(String[]::new);
    }

    @Override
    public String version() {
        return Library.versionOf(Client.class);
    }

    @Override
    public Session open(long ttlMillis) throws Exception {
        Client client = Client.builder().endpoints(endpoints).build();
        var connection = new Connection(client, Math.max(1, TimeUnit.MILLISECONDS.toSeconds(ttlMillis)));
        connection.lease(0);
        return connection;
    }

    /**
     * Has a lease for each contender that shares it: a lock's owner is a lease, and whoever asks again with
     * the same one is told that it has the lock already.
     */
    private record Connection(Client client, long ttlSeconds, List<Long> leases) implements Session {
        Connection(Client client, long ttlSeconds) {
            this(client, ttlSeconds, new ArrayList<>());
        }

        @Override
        public Lock lock(String name, int slot) throws Exception {
            ByteSequence bytes = ByteSequence.from(name, StandardCharsets.UTF_8);
            return new Held(client.getLockClient(), bytes, lease(slot));
        }

        /** Several may ask for slot 0 at the same time; it was opened with the connection and is only read. */
        private long lease(int slot) throws Exception {
            while (leases.size() <= slot) {
                long lease = client.getLeaseClient().grant(ttlSeconds).get(CONNECTING_SECONDS, TimeUnit.SECONDS).getID();
                client.getLeaseClient().keepAlive(lease, new Ignored());
                leases.add(lease);
            }
            return leases.get(slot);
        }
    }

    private static final int CONNECTING_SECONDS = 15;

    private static final class Held implements Lock {
        private final io.etcd.jetcd.Lock locks;
        private final ByteSequence name;
        private final long lease;
        private ByteSequence key;

        Held(io.etcd.jetcd.Lock locks, ByteSequence name, long lease) {
            this.locks = locks;
            this.name = name;
            this.lease = lease;
        }

        @Override
        public void acquire() throws Exception {
            key = locks.lock(name, lease).get().getKey();
        }

        @Override
        public void release() throws Exception {
            locks.unlock(key).get();
        }
    }

    /** What the server says to a renewal. A lost lease shows when its lock is released. */
    private static final class Ignored implements StreamObserver<LeaseKeepAliveResponse> {
        @Override
        public void onNext(LeaseKeepAliveResponse renewed) {}

        @Override
        public void onError(Throwable failure) {}

        @Override
        public void onCompleted() {}
    }
}
