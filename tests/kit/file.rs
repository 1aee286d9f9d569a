//! The file store as a subject of the kit: a directory for each namespace.

use std::time::Duration;

use leasehold::backend::StoreConfig;
use leasehold::file::FileConfig;
use leasehold_conformance::{Pace, Subject};
use testbed::Scratch;

/// A directory per namespace, in one that goes with the test.
#[derive(Debug)]
pub(crate) struct Directories(Scratch);

impl Directories {
    pub(crate) fn new() -> Self {
        Self(Scratch::new("kit-file").expect("there is room for a directory"))
    }
}

impl Subject for Directories {
    fn name(&self) -> &str {
        "file"
    }

    fn pace(&self) -> Pace {
        Pace::Real { ttl: Duration::from_secs(3) }
    }

    fn config(&self, namespace: &str) -> Box<dyn StoreConfig> {
        Box::new(FileConfig::new(self.0.path().join(namespace)))
    }

    fn periods(&self) -> (u32, u32) {
        crate::periods()
    }
}
