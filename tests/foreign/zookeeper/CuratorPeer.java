// A holder of Curator's InterProcessMutex, driven by lines on its standard input.
//
//   acquire PATH     -> held                      when it is
//   revocable PATH   -> held                      when it is, and able to be asked to let go
//   asked            -> asked                     when a revocable one is
//   try PATH MILLIS  -> held | busy
//   release          -> released | refused REASON
//   state            -> acquired | free, and what the connection is: CONNECTED, SUSPENDED, LOST, ...
//   quit
//
// Arguments: HOST:PORT SESSION_SECONDS

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryForever;

public class CuratorPeer {
    public static void main(String[] arguments) throws Exception {
        int session = 1000 * Integer.parseInt(arguments[1]);
        CuratorFramework client =
                CuratorFrameworkFactory.newClient(arguments[0], session, session, new RetryForever(100));
        AtomicReference<Object> connection = new AtomicReference<>("CONNECTING");
        client.getConnectionStateListenable().addListener((of, state) -> connection.set(state));
        client.start();
        if (!client.blockUntilConnected(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no connection");
        }
        System.out.println("ready");
        CountDownLatch asked = new CountDownLatch(1);
        InterProcessMutex mutex = null;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "acquire":
                    mutex = new InterProcessMutex(client, words[1]);
                    mutex.acquire();
                    System.out.println("held");
                    break;
                case "revocable":
                    mutex = new InterProcessMutex(client, words[1]);
                    mutex.makeRevocable(of -> asked.countDown());
                    mutex.acquire();
                    System.out.println("held");
                    break;
                case "asked":
                    asked.await();
                    System.out.println("asked");
                    break;
                case "try":
                    mutex = new InterProcessMutex(client, words[1]);
                    boolean held = mutex.acquire(Long.parseLong(words[2]), TimeUnit.MILLISECONDS);
                    System.out.println(held ? "held" : "busy");
                    break;
                case "release":
                    try {
                        mutex.release();
                        System.out.println("released");
                    } catch (IllegalMonitorStateException refused) {
                        System.out.println("refused " + refused.getMessage());
                    }
                    break;
                case "state":
                    boolean acquired = mutex != null && mutex.isAcquiredInThisProcess();
                    System.out.println((acquired ? "acquired " : "free ") + connection.get());
                    break;
                case "quit":
                    client.close();
                    return;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
        // Standard input has ended: the test is gone, and with it the reason to wait for anything.
        Runtime.getRuntime().halt(0);
    }
}
