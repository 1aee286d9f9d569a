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
pub(crate) struct KnownHolders(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// With when each was kept last.
    directories: HashMap<LockName, (u64, Directory)>,
    kept: u64,
}

/// The holders of one lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directory {
    /// When a child had come or gone last; unknown where no listing was read with it.
    pub(crate) changed: Option<i64>,
    pub(crate) holding: Vec<Holding>,
    /// The holder that a refused try has read since.
    pub(crate) tried: Option<Holding>,
}

impl KnownHolders {
    pub(crate) fn of(&self, name: &LockName) -> Directory {
        self.0.lock().directories.get(name).map(|(_, directory)| directory.clone()).unwrap_or_default()
    }

    pub(crate) fn keep(&self, name: &LockName, directory: Directory) {
        self.change(name, |known| *known = directory);
    }

    pub(crate) fn keep_tried(&self, name: &LockName, holding: Holding) {
        self.change(name, |known| known.tried = Some(holding));
    }

    /// If there are too many locks, the one that was kept longest ago is forgotten.
    fn change(&self, name: &LockName, change: impl FnOnce(&mut Directory)) {
        let mut known = self.0.lock();
        let Known { directories, kept } = &mut *known;
        if directories.len() == REMEMBERED && !directories.contains_key(name) {
            let oldest = directories.iter().min_by_key(|(_, (kept, _))| *kept).map(|(name, _)| name.clone());
            oldest.and_then(|name| directories.remove(&name));
        }
        *kept += 1;
        let (when, directory) = directories.entry(name.clone()).or_default();
        *when = *kept;
        change(directory);
    }
}

impl Directory {
    /// A child that was read, in a directory that has `changed` so.
    pub(crate) fn find(&self, child: &str, changed: Option<i64>) -> Option<&Holding> {
        let is_alone = || keys::owner_of(child, keys::mode_of(child)).is_some();
        let is_same = (changed.is_some() && self.changed == changed) || is_alone();
        self.holding.iter().chain(&self.tried).find(|seen| is_same && seen.child() == child)
    }
}

/// Of so many locks this is remembered.
const REMEMBERED: usize = 1_024;
