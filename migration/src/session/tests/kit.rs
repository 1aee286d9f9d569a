//! The conformance kit, in each phase.

use std::collections::HashMap;

use leasehold_conformance::{Pace, Subject, check};
use leasehold_core::backend::StoreConfig;
use leasehold_core::backend::stage::{Phase, Side};
use leasehold_core::memory::MemoryConfig;
use parking_lot::Mutex;

use super::{stands, store, write};
use crate::Migration;
use crate::protocol::Pair;

#[derive(Debug)]
struct In {
    phase: Phase,
    stores: Mutex<HashMap<String, (MemoryConfig, MemoryConfig)>>,
}

impl Subject for In {
    fn name(&self) -> &str {
        self.phase.word()
    }

    fn pace(&self) -> Pace {
        Pace::Virtual
    }

    fn config(&self, namespace: &str) -> Box<dyn StoreConfig> {
        let mut stores = self.stores.lock();
        let (old, new) = stores.entry(namespace.to_owned()).or_insert_with(|| {
            let stores = Pair { old: store(), new: store() };
            let stands = stands(self.phase);
            write(&stores, Side::Old, stands.0);
            write(&stores, Side::New, stands.1);
            (stores.old, stores.new)
        });
        Box::new(Migration::new(old.clone(), new.clone()))
    }
}

fn the_kit_in(phase: Phase) {
    let report = check(In { phase, stores: Mutex::default() }).unwrap_or_else(|report| panic!("{report}"));
    println!("{report}");
}

#[test]
fn the_kit_passes_in_old() {
    the_kit_in(Phase::Old);
}

#[test]
fn the_kit_passes_in_shadow() {
    the_kit_in(Phase::Shadow);
}

#[test]
fn the_kit_passes_in_both() {
    the_kit_in(Phase::Both);
}

#[test]
fn the_kit_passes_in_drain() {
    the_kit_in(Phase::Drain);
}

#[test]
fn the_kit_passes_in_new() {
    the_kit_in(Phase::New);
}
