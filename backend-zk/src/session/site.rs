//! The state that all sessions of one manager share.
//!
//! It includes the locks that could be acquired and not released. Each of these has ended a session with all its holds. So
//! before such a lock is acquired again, the manager tries whether it could be released.

use std::collections::HashSet;

use leasehold_core::backend::Events;
use leasehold_core::{Env, ErrorKind, LockName, Result};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::Session;
use crate::config::ZkConfig;
use crate::keys::Namespace;

/// The configuration of a manager's sessions, and their common knowledge.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) config: ZkConfig,
    pub(crate) namespace: Namespace,
    pub(crate) env: Env,
    pub(crate) events: Events,
    /// The manager was closed.
    pub(crate) closed: CancellationToken,
    /// The directories in which a node of a session could not be deleted.
    barred: Mutex<HashSet<String>>,
}

impl Site {
    pub(crate) fn new(config: ZkConfig, env: Env, events: Events) -> Result<Self> {
        let (namespace, closed) = (config.namespace()?, CancellationToken::new());
        Ok(Self { config, namespace, env, events, closed, barred: Mutex::default() })
    }

    /// Remembers a directory; if there are too many, the others are forgotten.
    pub(super) fn bar(&self, directory: &str) {
        let mut barred = self.barred.lock();
        if barred.len() == REMEMBERED {
            barred.clear();
        }
        barred.insert(directory.to_owned());
    }
}

impl Session {
    /// Refuses a lock that could not be released the last time, and still cannot.
    ///
    /// # Errors
    ///
    /// `Denied`, and nothing was made.
    pub(crate) async fn may_enter(&self, name: &LockName) -> Result<()> {
        if self.site.barred.lock().is_empty() {
            return Ok(());
        }
        let directory = self.site.namespace.directory(name);
        if !self.site.barred.lock().contains(&directory) {
            return Ok(());
        }
        match self.connection.try_rights(&format!("{directory}/{:016x}-rights", self.id)).await {
            Err(error) if *error.kind() == ErrorKind::Denied => Err(error),
            // A missing directory is made again with the configured rights. Any other failure meets the acquisition as well.
            Err(_) => Ok(()),
            Ok(()) => {
                self.site.barred.lock().remove(&directory);
                Ok(())
            }
        }
    }
}

/// The number of locks that are remembered: far more than are closed by mistake.
const REMEMBERED: usize = 1_024;
