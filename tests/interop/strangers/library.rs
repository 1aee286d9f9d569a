//! The libraries of others that lock on one Redis server.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// One of them, by the program that speaks for it.
#[derive(Debug)]
pub(crate) struct Library {
    /// As its program calls it.
    pub(crate) name: &'static str,
    folder: &'static str,
    /// How its locks are laid out, as our URLs call it.
    pub(crate) format: &'static str,
    /// For how long ours stand back for it: longer than its looks are apart.
    pub(crate) yield_for: Duration,
    /// Whether it renews its leases by itself; otherwise that is its user's business.
    pub(crate) renews: bool,
    /// Whether it says that what it was to release was not its own any more.
    pub(crate) tells_of_loss: bool,
    /// Whether its fleet leaves for etcd in the long run of the tests.
    pub(crate) has_a_story: bool,
}

const fn string(name: &'static str, folder: &'static str) -> Library {
    let yield_for = Duration::from_millis(150);
    let (renews, tells_of_loss, has_a_story) = (false, true, false);
    Library { name, folder, format: "string", yield_for, renews, tells_of_loss, has_a_story }
}

/// One that looks again after such a pause at most.
const fn patient(name: &'static str, folder: &'static str, pause: u64) -> Library {
    Library { yield_for: Duration::from_millis(pause + 50), ..string(name, folder) }
}

const fn redisson(name: &'static str) -> Library {
    Library { format: "redisson", renews: true, has_a_story: true, ..string(name, "java") }
}

/// All of them.
pub(crate) const LIBRARIES: [Library; 8] = [
    Library { has_a_story: true, ..string("redis-py", "python") },
    Library { has_a_story: true, ..patient("redsync", "go", 250) },
    string("redislock", "go"),
    Library { has_a_story: true, ..patient("node-redlock", "node", 300) },
    patient("node-redlock-5", "node", 300),
    Library { tells_of_loss: false, ..patient("rslock", "rust", 200) },
    redisson("redisson"),
    redisson("redisson-3.21"),
];

impl Library {
    /// Its program.
    pub(crate) fn program(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("comparison/peers").join(self.folder).join("run")
    }
}
