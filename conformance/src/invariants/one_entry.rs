//! B1, one entry per name: of the acquisitions, grants and unconfirmed releases that a process has
//! of a name, one at most is alive.
//!
//! Applies to histories with the calls of the core (`EntryRuleConfig`). A dead process ends everything.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_core::LockName;

use super::violation::{Property, Violation};
use crate::history::{Entry, History, What};

/// Entries that began beside another one.
pub fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut alive: BTreeMap<(&Arc<str>, Option<&LockName>), Entry> = BTreeMap::new();
    for event in history.events() {
        let key = (&event.actor, event.name.as_ref());
        match event.what {
            What::EntryBegan { entry } => {
                if let Some(other) = alive.insert(key, entry) {
                    let detail = format!("{} begins {entry} while {other} is not over", event.actor);
                    found.push(Violation::of(Property::OneEntry, event, detail));
                }
            }
            What::EntryEnded { entry } if alive.get(&key) == Some(&entry) => {
                alive.remove(&key);
            }
            _ => {}
        }
    }
    found
}
