//! Locks that could be taken and not let go, as the sessions of one manager have learnt.
//!
//! Each such lesson costs a session, with everything that it holds. So before such a lock is taken again,
//! it is tried whether it can be let go.

use std::collections::VecDeque;
use std::sync::Arc;

use leasehold_core::{ErrorKind, LockName, Result};
use parking_lot::Mutex;

use super::Session;

/// The directories in which a node of ours could not be deleted, the latest last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Barred(Arc<Mutex<VecDeque<String>>>);

impl Barred {
    pub(super) fn add(&self, directory: &str) {
        let mut barred = self.0.lock();
        barred.retain(|known| known != directory);
        if barred.len() == REMEMBERED {
            barred.pop_front();
        }
        barred.push_back(directory.to_owned());
    }

    fn remove(&self, directory: &str) {
        self.0.lock().retain(|known| known != directory);
    }

    fn contains(&self, directory: &str) -> bool {
        self.0.lock().iter().any(|known| known == directory)
    }
}

impl Session {
    /// Refuses a lock that could not be let go the last time, and still cannot.
    ///
    /// # Errors
    ///
    /// `Denied`, and nothing was made.
    pub(crate) async fn may_enter(&self, name: &LockName) -> Result<()> {
        let directory = self.namespace.directory(name);
        if !self.barred.contains(&directory) {
            return Ok(());
        }
        match self.connection.try_rights(&format!("{directory}/{:016x}-rights", self.id)).await {
            Err(error) if *error.kind() == ErrorKind::Denied => Err(error),
            // A directory that is gone is made anew, with our rights; whatever else it is, the
            // acquisition meets it, too.
            Err(_) => Ok(()),
            Ok(()) => {
                self.barred.remove(&directory);
                Ok(())
            }
        }
    }
}

/// Of how many locks this is remembered: far more than anybody closes by mistake.
const REMEMBERED: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    /// The latest are remembered, each once, and however many there are.
    #[test]
    fn as_many_are_remembered_as_there_is_room_for() {
        let barred = Barred::default();
        barred.add("/a");
        for number in 0..REMEMBERED {
            barred.add(&format!("/{number}"));
            barred.add("/a");
        }
        assert_eq!(barred.0.lock().len(), REMEMBERED);
        assert!(barred.contains("/a") && barred.contains("/1") && !barred.contains("/0"));
        barred.remove("/a");
        assert!(!barred.contains("/a"));
    }
}
