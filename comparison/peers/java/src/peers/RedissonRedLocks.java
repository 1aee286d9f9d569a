package peers;

import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.nio.NioIoHandler;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * RedissonRedLock: an RLock at each of several servers, one server after the other, of which a majority is enough.
 *
 * <p>It is deprecated, and the only lock of Redisson on servers that know nothing of each other. Each of its locks is
 * taken without a lease time, so that Redisson renews it: the ttl is the watchdog's timeout, 30 s by default. Who waits
 * does so at one server after the other, for 1.5 s each, and begins anew; the waiting has no bound.
 */
final class RedissonRedLocks implements Library {
    private final List<String> urls;

    // As in RedissonLocks.
    private final EventLoopGroup network = new MultiThreadIoEventLoopGroup(32, NioIoHandler.newFactory());
    private final ExecutorService threads = Executors.newFixedThreadPool(16);

    RedissonRedLocks(List<String> urls) {
        this.urls = urls;
    }

    @Override
    public String version() {
        return Library.versionOf(Redisson.class);
    }

    @Override
    public Session open(long ttlMillis) {
        List<RedissonClient> clients = new ArrayList<>();
        for (String url : urls) {
            Config config = new Config();
            config.setLockWatchdogTimeout(ttlMillis).setEventLoopGroup(network).setExecutor(threads);
            config.useSingleServer().setAddress(url).setConnectionMinimumIdleSize(1);
            clients.add(Redisson.create(config));
        }
        return (name, slot) -> {
            RLock[] locks = clients.stream().map(client -> client.getLock(name)).toArray(RLock[]::new);
            return new Held(new RedissonRedLock(locks));
        };
    }

    private record Held(RLock lock) implements Lock {
        @Override
        public void acquire() {
            lock.lock();
        }

        @Override
        public void release() {
            lock.unlock();
        }
    }
}
