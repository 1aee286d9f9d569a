//! The holders that a session has read, so that it reads none of them twice.
//!
//! A node says who holds when it is made, and what is written there later says nothing of that. So a node that was read
//! is known as long as it is the same one: by a name that nobody else has, or because no child of its directory has
//! come or gone.

use std::collections::HashMap;

use leasehold_core::LockName;
use parking_lot::Mutex;

use crate::admin::Holding;
use crate::keys;

/// What was read last of each lock.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<HashMap<LockName, Directory>>);

/// The holders of one lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directory {
    /// When a child had come or gone last; unknown where no listing was read with it.
    pub(crate) changed: Option<i64>,
    pub(crate) holding: Vec<Holding>,
}

impl Seen {
    pub(crate) fn of(&self, name: &LockName) -> Directory {
        self.0.lock().get(name).cloned().unwrap_or_default()
    }

    /// Remembers a lock; if there are too many, as the first one of the next.
    pub(crate) fn keep(&self, name: &LockName, directory: Directory) {
        let mut seen = self.0.lock();
        if seen.len() == REMEMBERED && !seen.contains_key(name) {
            seen.clear();
        }
        seen.insert(name.clone(), directory);
    }
}

impl Directory {
    /// A child that was read, in a directory that has `changed` so.
    pub(crate) fn find(&self, child: &str, changed: Option<i64>) -> Option<&Holding> {
        let is_alone = || keys::owner_of(child, keys::mode_of(child)).is_some();
        let is_same = (changed.is_some() && self.changed == changed) || is_alone();
        self.holding.iter().find(|seen| is_same && seen.child() == child)
    }
}

/// Of so many locks this is remembered.
const REMEMBERED: usize = 1_024;
