package peers;

import java.util.List;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.springframework.integration.redis.util.RedisLockRegistry.RedisLockType;

/**
 * Lock libraries of others in Java, each as a contender of the comparison: {@code Peers NAME URL…}.
 *
 * <p>Every library is used as its documentation shows, with its defaults.
 */
public final class Peers {
    private Peers() {}

    public static void main(String[] arguments) throws Exception {
        String name = arguments.length == 0 ? "" : arguments[0];
        List<String> urls = List.of(arguments).subList(Math.min(1, arguments.length), arguments.length);
        // What does not log through slf4j, such as gRPC.
        Logger.getLogger("").setLevel(Level.WARNING);
        // A class is loaded when it is named, so those whose library is not on the class path do not matter.
        Library library =
                switch (name) {
                    case "redisson", "redisson-3.21" -> new RedissonLocks(urls, false);
                    case "redisson-fair" -> new RedissonLocks(urls, true);
                    case "redisson-semaphore" -> new RedissonSemaphores(urls);
                    case "redisson-redlock" -> new RedissonRedLocks(urls);
                    case "spring" -> new SpringLocks(urls, RedisLockType.PUB_SUB_LOCK);
                    case "spring-spin" -> new SpringLocks(urls, RedisLockType.SPIN_LOCK);
                    case "shedlock" -> new ShedLocks(urls, true);
                    case "shedlock-unsafe" -> new ShedLocks(urls, false);
                    case "curator" -> new CuratorLocks(urls);
                    case "jetcd" -> new JetcdLocks(urls);
                    default -> null;
                };
        if (library == null) {
            System.out.println("missing nobody here is called \"" + name + '"');
            return;
        }
        new Program(library).serve();
        // The libraries have threads that would keep the process.
        System.exit(0);
    }
}
