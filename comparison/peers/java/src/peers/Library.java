package peers;

import java.nio.file.Path;
import java.security.CodeSource;

/** What can be compared, told where its store is. */
interface Library {
    String version();

    /** Opens a session with a connection of its own and leases of that length. */
    Session open(long ttlMillis) throws Exception;

    /** One participant of the store. */
    interface Session {
        /**
         * Prepares the lock of that name for one contender. {@code slot} counts those who share this
         * session, for libraries in which a lease can own a lock only once.
         */
        Lock lock(String name, int slot) throws Exception;

        /** Prepares it for one who reads beside others. */
        default Lock read(String name) throws Exception {
            throw new UnsupportedOperationException("it has no lock for readers");
        }

        /** Prepares it for one who excludes readers. */
        default Lock write(String name) throws Exception {
            throw new UnsupportedOperationException("it has no lock for readers");
        }

        /** Prepares one of so many permits. */
        default Lock permit(String name, int permits) throws Exception {
            throw new UnsupportedOperationException("it has no permits");
        }
    }

    /** Used by one contender, in the same thread from acquisition to release. */
    interface Lock {
        /** Waits as long as it takes. */
        void acquire() throws Exception;

        /** Whether it is held now, without waiting. */
        default boolean tryAcquire() throws Exception {
            throw new UnsupportedOperationException("it cannot try");
        }

        /** Gives the lease its whole length again. */
        default void extend() throws Exception {
            throw new UnsupportedOperationException("it renews by itself");
        }

        /** Returns when the store has confirmed it. May be called again, which is a mistake. */
        void release() throws Exception;
    }

    /** The version in the name of the jar that {@code type} is from. */
    static String versionOf(Class<?> type) {
        CodeSource jar = type.getProtectionDomain().getCodeSource();
        String name = Path.of(jar.getLocation().getPath()).getFileName().toString();
        return name.replaceFirst("^.*?-(?=\\d)", "").replaceFirst("\\.jar$", "");
    }

    /** {@code host:port}, without the scheme. */
    static String address(String url) {
        return url.substring(url.indexOf("://") + 3);
    }
}
