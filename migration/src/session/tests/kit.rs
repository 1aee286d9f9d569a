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

#[test]
fn the_kit_passes_in_every_phase() {
    for phase in Phase::ALL {
        let report = check(In { phase, stores: Mutex::default() });
        println!("{}", report.unwrap_or_else(|report| panic!("in {phase}: {report}")));
    }
}
