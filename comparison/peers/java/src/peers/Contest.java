package peers;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/**
 * What is asked for in the order {@code run}. A contender is a thread, and has a lock object of its own.
 *
 * <p>{@link System#nanoTime} is CLOCK_MONOTONIC on Linux, which all processes of a host share.
 */
final class Contest {
    private final String name;
    private final int contenders;
    private final long most;
    private final long bound;
    private final long holdMicros;
    private final long start;
    private final String journal;
    private final String counter;
    private final Draw draw;
    private final AtomicLong begun = new AtomicLong();

    Contest(String[] words) {
        name = words[1];
        contenders = Integer.parseInt(words[2]);
        most = Long.parseLong(words[3]);
        bound = TimeUnit.MILLISECONDS.toNanos(Long.parseLong(words[4]));
        holdMicros = Long.parseLong(words[5]);
        start = Long.parseLong(words[6]);
        journal = words[7];
        counter = words[8];
        draw = words.length == 9 ? Draw.ALONE : Draw.of(words[9]);
    }

    String carryOut(List<Library.Session> sessions) throws Exception {
        List<Contender> running = new ArrayList<>();
        for (int index = 0; index < contenders; index++) {
            Library.Session session = sessions.get(index % sessions.size());
            running.add(new Contender(index, draw.locks(session, name, index / sessions.size())));
        }
        for (Contender contender : running) {
            contender.start();
        }
        for (Contender contender : running) {
            contender.join();
        }
        if (!journal.equals("-")) {
            write(running);
        }
        int cycles = running.stream().mapToInt(contender -> contender.cycles.size()).sum();
        List<Throwable> failures = new ArrayList<>();
        for (Contender contender : running) {
            if (contender.failure != null) {
                failures.add(contender.failure);
            }
        }
        String first = failures.isEmpty() ? "" : ' ' + Program.oneLine(failures.get(0));
        return "done " + cycles + ' ' + failures.size() + first;
    }

    private boolean takeOne() {
        return most == 0 || begun.incrementAndGet() <= most;
    }

    private void write(List<Contender> finished) throws IOException {
        var text = new StringBuilder();
        for (int index = 0; index < finished.size(); index++) {
            for (Cycle cycle : finished.get(index).cycles) {
                text.append(index).append(' ').append(cycle.requested).append(' ').append(cycle.granted);
                text.append(' ').append(cycle.releasing).append(' ').append(cycle.released).append(" -");
                text.append(cycle.mode).append('\n');
            }
        }
        Files.writeString(Path.of(journal), text);
    }

    private record Cycle(long requested, long granted, long releasing, String released, String mode) {}

    /** Goes through the lock again and again, and remembers the times until the contest is over. */
    private final class Contender extends Thread {
        private final int index;
        /** One for each that may be drawn. */
        private final List<Library.Lock> locks;
        private final List<Cycle> cycles = new ArrayList<>();
        private Throwable failure;

        Contender(int index, List<Library.Lock> locks) {
            this.index = index;
            this.locks = locks;
            setDaemon(true);
        }

        @Override
        public void run() {
            try (FileChannel number = counter.equals("-") ? null : open(Path.of(counter))) {
                goThrough(number);
            } catch (Throwable stopped) {
                failure = stopped;
            }
        }

        private void goThrough(FileChannel number) throws Exception {
            TimeUnit.NANOSECONDS.sleep(start - System.nanoTime());
            long began = System.nanoTime();
            while (true) {
                long requested = System.nanoTime();
                if (bound != 0 && requested - began >= bound || !takeOne()) {
                    return;
                }
                int drawn = draw.drawn(index, requested);
                Library.Lock lock = locks.get(drawn);
                lock.acquire();
                long granted = System.nanoTime();
                if (number != null) {
                    addOne(number);
                }
                if (holdMicros != 0) {
                    TimeUnit.MICROSECONDS.sleep(holdMicros);
                } else if (contenders > 1) {
                    Thread.yield();
                }
                long releasing = System.nanoTime();
                String released = "-";
                try {
                    lock.release();
                    released = Long.toString(System.nanoTime());
                } finally {
                    // A hold whose release failed is one nonetheless.
                    cycles.add(new Cycle(requested, granted, releasing, released, draw.mode(drawn)));
                }
            }
        }
    }

    private static FileChannel open(Path path) throws IOException {
        return FileChannel.open(path, StandardOpenOption.READ, StandardOpenOption.WRITE);
    }

    /** Reads the number that nothing but the lock protects, adds and writes: two at once lose one. */
    private static void addOne(FileChannel file) throws IOException {
        ByteBuffer text = ByteBuffer.allocate(20);
        file.read(text, 0);
        long number = Long.parseLong(StandardCharsets.US_ASCII.decode(text.flip()).toString().trim());
        file.write(StandardCharsets.US_ASCII.encode(Long.toString(number + 1)), 0);
    }
}
