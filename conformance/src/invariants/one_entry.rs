//! B1, one acquisition per name: a process has at most one alive, and asks only for what fits beside its grants
//! and unconfirmed releases. With exclusive locks that is one entry in all.
//!
//! Applies to histories with the calls of the core (`EntryRule`). A dead process ends everything.

use std::collections::BTreeMap;

use leasehold_core::Mode;
use leasehold_core::backend::Load;

use super::violation::{Property, Violation};
use crate::history::{Entry, History, What};

/// Entries that began beside another one.
pub fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut alive: BTreeMap<_, BTreeMap<Entry, Own>> = BTreeMap::new();
    for event in history.events() {
        let own = alive.entry((&event.actor, event.name.as_ref())).or_default();
        match event.what {
            What::EntryBegan { entry, mode } => {
                let load: Load = own.values().map(|own| own.mode).collect();
                let asks = own.iter().find(|(_, own)| !own.granted);
                let in_the_way = asks.or_else(|| own.iter().next_back().filter(|_| !load.admits(mode)));
                if let Some((other, _)) = in_the_way {
                    let detail = format!("{} begins {entry} while {other} is not over", event.actor);
                    found.push(Violation::of(Property::OneEntry, event, detail));
                }
                own.insert(entry, Own { mode, granted: false });
            }
            What::EntryGranted { entry } => {
                own.entry(entry).and_modify(|own| own.granted = true);
            }
            What::EntryEnded { entry } => {
                own.remove(&entry);
            }
            _ => {}
        }
    }
    found
}

/// What a process has in the store.
struct Own {
    mode: Mode,
    granted: bool,
}
