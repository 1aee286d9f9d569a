//! Loading the scripts ahead of their use, for users that may only run loaded scripts.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Env, Result, Timing};
use tokio_util::sync::CancellationToken;

use crate::config::RedisConfig;
use crate::connection::Link;
use crate::error;
use crate::scripts::{Script, text};

impl RedisConfig {
    /// Loads the scripts of this version, as a user that may `SCRIPT LOAD`; returns how many.
    ///
    /// Managers whose user has no `+eval` need it: before they are opened, and again whenever the server
    /// has started or its scripts were flushed. Scripts of other versions stay.
    ///
    /// # Errors
    ///
    /// As connecting; [`ErrorKind::Denied`](leasehold_core::ErrorKind::Denied) without the right.
    ///
    /// # Cancel safety
    ///
    /// Some of the scripts may be loaded; loading is repeatable.
    pub async fn load_scripts(&self) -> Result<usize> {
        self.checked()?;
        self.load_each().await.map_err(|error| error.with_context("server", self.address()))
    }

    async fn load_each(&self) -> Result<usize> {
        let mut timing = Timing::for_ttl(Timing::DEFAULT_TTL);
        timing.connect_timeout = BOUND;
        let (env, closed) = (Env::new(timing)?, CancellationToken::new());
        let _open = closed.clone().drop_guard();
        let link = Arc::new(Link::new(env.clone(), self.whereabouts(BOUND)?, None, None));
        link.start(closed).await?;
        let mut loaded_scripts = 0;
        for script in Script::all() {
            let give_up_at = env.now() + BOUND;
            let loaded = link.connected(give_up_at).await?.ask(&script.load(), give_up_at).await?;
            if text(&loaded) != Some(&script.hash) {
                return Err(error::unexpected("to SCRIPT LOAD"));
            }
            loaded_scripts += 1;
        }
        Ok(loaded_scripts)
    }
}

/// How long connecting and each answer may take.
const BOUND: Duration = Duration::from_secs(5);
