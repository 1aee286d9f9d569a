//! Logging in again before credentials end.
//!
//! A server may end a connection with the token that it has logged in by. So a link asks for the next one while three quarters
//! of the time are over, and sends it over the open connection: nothing in flight is lost, and no message is missed.

use std::time::Duration;

use leasehold_core::backend::{Backoff, Login};
use leasehold_core::{Error, ErrorKind, Result};

use super::{Connected, Link};

impl Link {
    /// Logs in again whenever the credentials of the connection are about to end; does not end by itself.
    pub(super) async fn stay_logged_in(&self, connected: &Connected) {
        let Some((login, valid_for)) = &connected.0.client.renewal else {
            return std::future::pending().await;
        };
        let mut pauses = Backoff::new(LEAST_BETWEEN, MOST_BETWEEN);
        let mut next_at = connected.0.began_at + before_the_end(*valid_for);
        loop {
            self.env.sleep_until(next_at).await;
            let asked_at = self.env.now();
            match self.log_in_again(login, connected).await {
                Ok(None) => return std::future::pending().await,
                Ok(Some(valid_for)) => {
                    next_at = asked_at + before_the_end(valid_for);
                    pauses.reset();
                }
                Err(error) => {
                    tracing::warn!(error = ?format!("{error:#}"), "cannot log in again before the credentials end");
                    next_at = self.env.now() + pauses.next(&self.env);
                }
            }
        }
    }

    /// For how long the next credentials are valid, if they end.
    async fn log_in_again(&self, login: &Login, connected: &Connected) -> Result<Option<Duration>> {
        let bound = self.env.timing().connect_timeout;
        let credentials = tokio::select! {
            biased;
            credentials = login.ask() => credentials?,
            () = self.env.sleep(bound) => {
                let late = Error::not_applied(ErrorKind::Unavailable, "cannot get the next credentials");
                return Err(late.with_source(format!("no answer within {bound:?}")));
            }
        };
        connected.log_in(&credentials).await?;
        Ok(credentials.valid_for)
    }
}

fn before_the_end(valid_for: Duration) -> Duration {
    (valid_for / 4 * 3).max(LEAST_BETWEEN)
}

/// Between two attempts to log in again.
const LEAST_BETWEEN: Duration = Duration::from_millis(100);
const MOST_BETWEEN: Duration = Duration::from_secs(10);
