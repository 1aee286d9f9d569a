//! What all sessions of one manager share.
//!
//! Among that, which locks could be taken and not let go. Each such lesson costs a session, with everything
//! that it holds. So before such a lock is taken again, it is tried whether it can be let go.

use std::collections::VecDeque;

use leasehold_core::backend::Events;
use leasehold_core::{Env, ErrorKind, LockName, Result};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::Session;
use crate::config::ZkConfig;
use crate::keys::Namespace;

/// Where a manager's sessions are, and what they have learnt.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) config: ZkConfig,
    pub(crate) namespace: Namespace,
    pub(crate) env: Env,
    pub(crate) events: Events,
    /// The manager was closed.
    pub(crate) closed: CancellationToken,
    pub(super) barred: Mutex<Barred>,
}

impl Site {
    pub(crate) fn new(config: ZkConfig, env: Env, events: Events) -> Result<Self> {
        let (namespace, closed) = (config.namespace()?, CancellationToken::new());
        Ok(Self { config, namespace, env, events, closed, barred: Mutex::default() })
    }
}

/// The directories in which a node of ours could not be deleted, the latest last.
#[derive(Debug, Default)]
pub(super) struct Barred(VecDeque<String>);

impl Barred {
    pub(super) fn add(&mut self, directory: &str) {
        self.remove(directory);
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(directory.to_owned());
    }

    fn remove(&mut self, directory: &str) {
        self.0.retain(|known| known != directory);
    }

    fn contains(&self, directory: &str) -> bool {
        self.0.iter().any(|known| known == directory)
    }
}

impl Session {
    /// Refuses a lock that could not be let go the last time, and still cannot.
    ///
    /// # Errors
    ///
    /// `Denied`, and nothing was made.
    pub(crate) async fn may_enter(&self, name: &LockName) -> Result<()> {
        let directory = self.site.namespace.directory(name);
        if !self.site.barred.lock().contains(&directory) {
            return Ok(());
        }
        match self.connection.try_rights(&format!("{directory}/{:016x}-rights", self.id)).await {
            Err(error) if *error.kind() == ErrorKind::Denied => Err(error),
            // A directory that is gone is made anew, with our rights; whatever else it is, the
            // acquisition meets it, too.
            Err(_) => Ok(()),
            Ok(()) => {
                self.site.barred.lock().remove(&directory);
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
        let mut barred = Barred::default();
        barred.add("/a");
        for number in 0..REMEMBERED {
            barred.add(&format!("/{number}"));
            barred.add("/a");
        }
        assert_eq!(barred.0.len(), REMEMBERED);
        assert!(barred.contains("/a") && barred.contains("/1") && !barred.contains("/0"));
        barred.remove("/a");
        assert!(!barred.contains("/a"));
    }
}
