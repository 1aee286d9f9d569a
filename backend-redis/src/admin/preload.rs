//! Loading the scripts ahead of their use, for users that may only run loaded scripts.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Env, Result, Timing};
use tokio_util::sync::CancellationToken;

use crate::config::{RedisClusterConfig, RedisConfig};
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
        let (env, closed) = (env()?, CancellationToken::new());
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

impl RedisClusterConfig {
    /// Loads the scripts of this version at every primary and every replica, as [`RedisConfig::load_scripts`] does at one server;
    /// returns how many. Servers do not pass scripts on to each other.
    ///
    /// # Errors
    ///
    /// As [`RedisConfig::load_scripts`], for the first server that refuses.
    ///
    /// # Cancel safety
    ///
    /// Some of the scripts may be loaded; loading is repeatable.
    pub async fn load_scripts(&self) -> Result<usize> {
        self.checked()?;
        let env = env()?;
        let map =
            self.reach(&env)?.map(&env).await.map_err(|error| error.with_context("server", self.place()))?;
        let mut loaded_scripts = 0;
        for shard in map.shards() {
            for server in shard.replicas.iter().chain([&shard.primary]) {
                loaded_scripts = self.server.at_address(server.clone()).load_scripts().await?;
            }
        }
        Ok(loaded_scripts)
    }
}

fn env() -> Result<Env> {
    let mut timing = Timing::for_ttl(Timing::DEFAULT_TTL);
    timing.connect_timeout = BOUND;
    Env::new(timing)
}

/// How long connecting and each answer may take.
const BOUND: Duration = Duration::from_secs(5);
