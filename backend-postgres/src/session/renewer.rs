//! Renewals: one statement for all locks of the session.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::{Backoff, Renewal};
use leasehold_core::{LostReason, Result};
use tokio_postgres::types::Type;

use super::Session;

impl Session {
    /// Renews the session.
    ///
    /// # Cancel safety
    ///
    /// It may have been renewed, which the next renewal finds out.
    pub(crate) async fn renew(self: &Arc<Self>) -> Renewal {
        let env = self.env();
        let bound = env.timing().op_timeout;
        let (give_up_at, mut pauses) = (env.now() + bound, Backoff::new(bound / 32, bound / 4));
        while self.lives() {
            let sent_at = env.now();
            match self.renew_once().await {
                Ok((true, asks)) => {
                    let until = self.extend(sent_at);
                    if asks {
                        let session = Arc::clone(self);
                        env.spawn(async move { session.look_who_asks().await });
                    }
                    if self.lives() {
                        return Renewal::Until(until);
                    }
                }
                Ok((false, _)) => self.lose(LostReason::SessionLost),
                Err(error) if give_up_at <= env.now() => return Renewal::Unknown(error),
                Err(_) => pauses.pause(env).await,
            }
        }
        Renewal::Gone(LostReason::SessionLost)
    }

    /// Whether it lives, and whether the release of an entry is requested.
    async fn renew_once(&self) -> Result<(bool, bool)> {
        let line = self.sessions.server.line().await?;
        let statement = format!("SELECT * FROM {}.renew($1)", self.sessions.schema);
        let reply = line.renewals.ask(&statement, &[(&self.number, Type::INT8)]).await?;
        let row = reply.one()?;
        Ok((row.get(0)?, row.get::<i32>(1)? > 0))
    }

    /// A message may have been missed; the next renewal asks again.
    async fn look_who_asks(self: Arc<Self>) {
        let Ok((line, _)) = self.line().await else {
            return;
        };
        for (seq, millis) in self.asked(&line).await.unwrap_or_default() {
            self.asked_to_let_go(seq, Duration::from_millis(millis.unsigned_abs()));
        }
    }

    /// Whether a new hold would end soon. The core's renewals make this rare.
    pub(super) fn is_nearly_over(&self) -> bool {
        self.deadline().remaining(self.env().now()) < self.ttl / 6
    }
}
