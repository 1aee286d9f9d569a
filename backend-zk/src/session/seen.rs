//! The holders that a session has read, so that it reads none of them twice.
//!
//! The data of a node names the holder when it is made, and no later write changes the holder. So a node that was read is
//! known while it is the same one: by a unique name, or because no child of its directory has come or gone.

use std::collections::HashMap;

use leasehold_core::LockName;
use parking_lot::Mutex;

use crate::admin::Holding;
use crate::keys;

/// The last holders of each lock that were read.
#[derive(Debug, Default)]
pub(crate) struct KnownHolders(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// With the order in which they were kept.
    directories: HashMap<LockName, (u64, Directory)>,
    kept: u64,
}

/// The holders of one lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directory {
    /// The transaction of the last change of the children; unknown without a listing.
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

/// The number of locks that are remembered.
const REMEMBERED: usize = 1_024;
