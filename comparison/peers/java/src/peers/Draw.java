package peers;

import java.util.List;

/**
 * What contenders want of a lock, the last word of the order {@code run}: the same as {@code mode.rs} of
 * comparison/contender-protocol.
 */
record Draw(Kind kind, int number) {
    enum Kind {
        ALONE,
        /** So many times in a hundred to read, otherwise to write. */
        READS,
        /** The first so many contenders write, the others read. */
        WRITERS,
        /** One of so many permits. */
        PERMITS
    }

    static final Draw ALONE = new Draw(Kind.ALONE, 1);

    static Draw of(String word) {
        if (word.equals("exclusive")) {
            return ALONE;
        }
        if (word.startsWith("reads=")) {
            return new Draw(Kind.READS, Integer.parseInt(word.substring("reads=".length())));
        }
        if (word.startsWith("writers=")) {
            return new Draw(Kind.WRITERS, Integer.parseInt(word.substring("writers=".length())));
        }
        if (word.startsWith("1/")) {
            return new Draw(Kind.PERMITS, Integer.parseInt(word.substring("1/".length())));
        }
        throw new UnsupportedOperationException("it has no lock that is " + word);
    }

    /** All that may be drawn. Who writes among readers has another lock than who is alone. */
    List<Library.Lock> locks(Library.Session session, String name, int slot) throws Exception {
        return switch (kind) {
            case ALONE -> List.of(session.lock(name, slot));
            case READS, WRITERS -> List.of(session.write(name), session.read(name));
            case PERMITS -> List.of(session.permit(name, number));
        };
    }

    /** Which of them a contender wants that asks at that time. */
    int drawn(int contender, long requested) {
        return switch (kind) {
            case ALONE, PERMITS -> 0;
            case READS -> Long.remainderUnsigned(mixed(requested), 100) < number ? 1 : 0;
            case WRITERS -> contender < number ? 0 : 1;
        };
    }

    /** How the journal says that it was held; nothing, if alone. */
    String mode(int drawn) {
        if (kind == Kind.PERMITS) {
            return " 1/" + number;
        }
        return drawn == 1 ? " shared" : "";
    }

    /** SplitMix64. */
    private static long mixed(long clock) {
        long bits = clock + 0x9e3779b97f4a7c15L;
        bits = (bits ^ (bits >>> 30)) * 0xbf58476d1ce4e5b9L;
        bits = (bits ^ (bits >>> 27)) * 0x94d049bb133111ebL;
        return bits ^ (bits >>> 31);
    }
}
