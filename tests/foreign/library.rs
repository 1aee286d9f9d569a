//! The libraries of others that lock on one Redis server.

use std::path::{Path, PathBuf};

/// One of them, by the program that speaks for it.
#[derive(Debug)]
pub(crate) struct Library {
    /// As its program calls it.
    pub(crate) name: &'static str,
    folder: &'static str,
    /// How its locks are laid out, as our URLs call it, with further options.
    pub(crate) format: &'static str,
    /// What stands before the name in the key of a lock.
    pub(crate) prefix: &'static str,
    /// Whether it renews its leases by itself; otherwise that is its user's business.
    pub(crate) renews: bool,
    /// Whether it says that what it was to release was not its own any more.
    pub(crate) tells_of_loss: bool,
    /// Whether its fleet leaves for etcd in the long run of the tests.
    pub(crate) has_a_story: bool,
}

const fn string(name: &'static str, folder: &'static str) -> Library {
    let (format, prefix) = ("string", "");
    Library { name, folder, format, prefix, renews: false, tells_of_loss: true, has_a_story: false }
}

const fn redisson(name: &'static str) -> Library {
    Library { format: "redisson", renews: true, has_a_story: true, ..string(name, "java") }
}

const fn spring(name: &'static str) -> Library {
    Library { format: "spring&registry=locks", prefix: "locks:", ..redisson(name) }
}

const fn shedlock(name: &'static str) -> Library {
    let (format, prefix) = ("shedlock", "job-lock:default:");
    Library { format, prefix, tells_of_loss: false, has_a_story: true, ..string(name, "java") }
}

/// ShedLock, which compares no values by default.
pub(crate) static UNSAFE: Library = shedlock("shedlock-unsafe");

/// All others.
pub(crate) const LIBRARIES: [Library; 12] = [
    Library { has_a_story: true, ..string("redis-py", "python") },
    Library { has_a_story: true, ..string("redsync", "go") },
    string("redislock", "go"),
    Library { has_a_story: true, ..string("node-redlock", "node") },
    string("node-redlock-5", "node"),
    Library { tells_of_loss: false, ..string("rslock", "rust") },
    redisson("redisson"),
    redisson("redisson-3.21"),
    spring("spring"),
    spring("spring-spin"),
    shedlock("shedlock"),
    Library {
        format: "python-redis-lock",
        prefix: "lock:",
        has_a_story: true,
        ..string("python-redis-lock", "python")
    },
];

impl Library {
    /// Its program.
    pub(crate) fn program(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("comparison/peers").join(self.folder).join("run")
    }
}
