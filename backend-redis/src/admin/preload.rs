//! Loading the scripts ahead of their use, for users who may only run what is loaded.

use std::io;
use std::pin::pin;
use std::time::Duration;

use leasehold_core::{Error, Result};
use redis::AsyncConnectionConfig;
use tokio::time::timeout;

use crate::config::RedisConfig;
use crate::error;
use crate::scripts::Script;

impl RedisConfig {
    /// Loads the scripts of this version into the server, as a user who may `SCRIPT LOAD`; how many.
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
        let told = |error: Error| error.with_context("server", self.address());
        let (client, options) =
            (self.client(BOUND)?, AsyncConnectionConfig::new().set_response_timeout(Some(BOUND)));
        let connecting = timeout(BOUND, client.connect(options)).await;
        let connecting =
            connecting.unwrap_or_else(|_late| Err(io::Error::from(io::ErrorKind::TimedOut).into()));
        let (mut connection, driver) = connecting.map_err(|error| told(error::of_opening(error)))?;
        let mut loading = pin!(async {
            let mut loaded_scripts = 0;
            for script in Script::all() {
                let loaded = script.load().query_async(&mut connection).await;
                let loaded: String = loaded.map_err(|error| told(error::of(error)))?;
                if !script.is_kept_as(&loaded) {
                    return Err(told(error::unexpected("to SCRIPT LOAD")));
                }
                loaded_scripts += 1;
            }
            Ok(loaded_scripts)
        });
        tokio::select! {
            biased;
            loaded = &mut loading => loaded,
            () = driver => loading.await,
        }
    }
}

/// How long connecting and each answer may take.
const BOUND: Duration = Duration::from_secs(5);
