package peers;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Speaks the protocol of comparison/peers/README.md: carries out orders, one after the other. */
final class Program {
    /** How many locks {@code hold} asks for at the same time. */
    private static final int AT_ONCE = 64;

    private final Library library;
    private final List<Library.Session> sessions = new ArrayList<>();
    private final List<Library.Lock> kept = new ArrayList<>();
    private Library.Lock held;
    private Library.Lock released;

    Program(Library library) {
        this.library = library;
    }

    /** Until standard input ends or says {@code quit}. */
    void serve() throws Exception {
        say("ready " + library.version());
        var orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = orders.readLine(); line != null && !line.equals("quit"); line = orders.readLine()) {
            say(carryOut(line));
        }
    }

    private static void say(String answer) {
        System.out.println(answer);
        System.out.flush();
    }

    /** An answer is one line. */
    static String oneLine(Throwable failure) {
        return failure.toString().replaceAll("\\s+", " ");
    }

    private String carryOut(String line) {
        String[] words = line.split(" ");
        try {
            return switch (words[0] + ' ' + (words.length - 1)) {
                case "open 2" -> open(Integer.parseInt(words[1]), Long.parseLong(words[2]));
                case "run 8", "run 9" -> run(words);
                case "acquire 1" -> acquire(words[1], Draw.ALONE);
                case "acquire 2" -> acquire(words[1], Draw.of(words[2]));
                case "try 1" -> tryOnce(words[1]);
                case "extend 0" -> extend();
                case "release 0" -> release();
                case "again 0" -> again();
                case "count 3" -> count(words[1], Integer.parseInt(words[2]), Draw.of(words[3]));
                case "hold 2" -> hold(words[1], Integer.parseInt(words[2]));
                default -> throw new IllegalArgumentException("no order: \"" + line + '"');
            };
        } catch (Exception failure) {
            return "failed " + System.nanoTime() + ' ' + oneLine(failure);
        }
    }

    private Library.Session first() {
        if (sessions.isEmpty()) {
            throw new IllegalStateException("no session is open");
        }
        return sessions.get(0);
    }

    private String open(int count, long ttlMillis) throws Exception {
        while (sessions.size() < count) {
            sessions.add(library.open(ttlMillis));
        }
        return "opened";
    }

    private String run(String[] words) throws Exception {
        first();
        return new Contest(words).carryOut(sessions);
    }

    private String acquire(String name, Draw draw) throws Exception {
        Library.Lock lock = draw.locks(first(), name, 0).get(0);
        lock.acquire();
        long at = System.nanoTime();
        held = lock;
        return "held " + at + " -";
    }

    private String tryOnce(String name) throws Exception {
        Library.Lock lock = first().lock(name, 0);
        if (!lock.tryAcquire()) {
            return "busy";
        }
        long at = System.nanoTime();
        held = lock;
        return "held " + at + " -";
    }

    private String extend() throws Exception {
        holding().extend();
        return "extended " + System.nanoTime();
    }

    private Library.Lock holding() {
        if (held == null) {
            throw new IllegalStateException("nothing is held");
        }
        return held;
    }

    private String release() throws Exception {
        released = holding();
        held = null;
        return again();
    }

    /** Releases what was released last. */
    private String again() throws Exception {
        if (released == null) {
            throw new IllegalStateException("nothing was held");
        }
        long before = System.nanoTime();
        released.release();
        return "released " + before + ' ' + System.nanoTime();
    }

    /** How many can be taken at the same time without waiting. */
    private String count(String name, int most, Draw draw) throws Exception {
        List<Library.Lock> taken = new ArrayList<>();
        while (taken.size() < most) {
            Library.Lock lock = draw.locks(first(), name, 0).get(0);
            if (!lock.tryAcquire()) {
                break;
            }
            taken.add(lock);
        }
        for (Library.Lock lock : taken) {
            lock.release();
        }
        return "counted " + taken.size();
    }

    private String hold(String name, int count) throws Exception {
        Library.Session session = first();
        long before = System.nanoTime();
        ExecutorService threads = Executors.newFixedThreadPool(AT_ONCE);
        try {
            List<Future<Library.Lock>> taking = new ArrayList<>();
            for (int index = 0; index < count; index++) {
                String one = name + '-' + index;
                taking.add(threads.submit(() -> {
                    Library.Lock lock = session.lock(one, 0);
                    lock.acquire();
                    return lock;
                }));
            }
            for (Future<Library.Lock> taken : taking) {
                kept.add(taken.get());
            }
        } catch (ExecutionException failure) {
            throw failure.getCause() instanceof Exception cause ? cause : failure;
        } finally {
            threads.shutdown();
        }
        return "holding " + count + ' ' + before + ' ' + System.nanoTime();
    }
}
