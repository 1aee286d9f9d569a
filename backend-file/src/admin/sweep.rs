//! Removing unused files, by hand.

use leasehold_core::{Env, Result, Timing};

use crate::config::FileConfig;
use crate::directory::Directory;

impl FileConfig {
    /// Removes every lock file that is not held, and the files of processes that died; returns the number of lock files.
    /// Safe at any time, also while others lock: the counters are kept.
    ///
    /// # Errors
    ///
    /// As opening the directory.
    ///
    /// # Cancel safety
    ///
    /// Call it again for the rest.
    pub async fn sweep(&self) -> Result<usize> {
        // The rest is calls in place: a loop of sweeps would keep its thread for ever, and with it a task that was just
        // woken there.
        tokio::task::yield_now().await;
        let env = Env::new(Timing::for_ttl(Timing::DEFAULT_TTL))?;
        Directory::open(self, &env)?.sweep(&env, || true).await
    }
}
