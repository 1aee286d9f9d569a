//! Removing what nobody uses, by hand.

use leasehold_core::{Env, Result, Timing};

use crate::config::FileConfig;
use crate::directory::Directory;

impl FileConfig {
    /// Removes every lock file that nobody holds, and what processes that died have left; how many
    /// lock files. Safe at any time, also while others lock: the counters are kept.
    ///
    /// # Errors
    ///
    /// As opening the directory.
    ///
    /// # Cancel safety
    ///
    /// What is removed is removed in order; call it again for the rest.
    pub async fn sweep(&self) -> Result<usize> {
        // The rest is calls in place: who sweeps in a loop would keep its thread, and with it a task that
        // was just woken there, for ever.
        tokio::task::yield_now().await;
        let env = Env::new(Timing::for_ttl(Timing::DEFAULT_TTL))?;
        Directory::open(self, &env)?.sweep(&env, || true).await
    }
}
