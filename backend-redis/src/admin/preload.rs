//! Loading the scripts ahead of their use, for users who may only run what is loaded.

use std::time::Duration;

use leasehold_core::{Error, Result};
use redis::AsyncConnectionConfig;

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
        let options = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(BOUND))
            .set_response_timeout(Some(BOUND));
        let client = self.client(BOUND)?;
        let connection = client.get_multiplexed_async_connection_with_config(&options).await;
        let server = client.get_connection_info().addr();
        let told = |error: Error| error.with_context("server", server);
        let mut connection = connection.map_err(|error| told(error::of_opening(error)))?;
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
    }
}

/// How long connecting and each answer may take.
const BOUND: Duration = Duration::from_secs(5);
