//! The libraries of others that lock on one Redis server.

use std::path::{Path, PathBuf};

/// One of them, by the program that speaks for it.
#[derive(Debug)]
pub(crate) struct Library {
    /// As its program calls it.
    pub(crate) name: &'static str,
    folder: &'static str,
    /// How its locks are laid out, as our URLs call it.
    pub(crate) format: &'static str,
    /// Whether it renews its leases by itself; otherwise that is its user's business.
    pub(crate) renews: bool,
    /// Whether it says that what it was to release was not its own any more.
    pub(crate) tells_of_loss: bool,
    /// Whether its fleet leaves for etcd in the long run of the tests.
    pub(crate) has_a_story: bool,
}

const fn string(name: &'static str, folder: &'static str) -> Library {
    Library { name, folder, format: "string", renews: false, tells_of_loss: true, has_a_story: false }
}

const fn redisson(name: &'static str) -> Library {
    Library { format: "redisson", renews: true, has_a_story: true, ..string(name, "java") }
}

/// All of them.
pub(crate) const LIBRARIES: [Library; 8] = [
    Library { has_a_story: true, ..string("redis-py", "python") },
    Library { has_a_story: true, ..string("redsync", "go") },
    string("redislock", "go"),
    Library { has_a_story: true, ..string("node-redlock", "node") },
    string("node-redlock-5", "node"),
    Library { tells_of_loss: false, ..string("rslock", "rust") },
    redisson("redisson"),
    redisson("redisson-3.21"),
];

impl Library {
    /// Its program.
    pub(crate) fn program(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("comparison/peers").join(self.folder).join("run")
    }
}
