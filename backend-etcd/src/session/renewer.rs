//! Renewals: each a stream of one message, so that the reply belongs to this renewal.

use std::sync::Arc;

use leasehold_core::LostReason;
use leasehold_core::backend::Renewal;

use super::Session;
use crate::connection::{Silence, backoff};

impl Session {
    /// Renews the lease.
    ///
    /// # Cancel safety
    ///
    /// It may have been renewed, which the next renewal finds out.
    pub(crate) async fn renew(self: &Arc<Self>) -> Renewal {
        let (env, lease) = (self.env(), self.lease);
        let give_up_at = env.now() + env.timing().op_timeout;
        let mut pauses = backoff(env);
        while self.lives() {
            let renewed = self.sessions.endpoints.call(Silence::IsOfTheMember, |client| async move {
                let sent_at = env.now();
                client.lease_client().keep_alive(lease).await.map(|_stream| sent_at)
            });
            match renewed.await {
                Ok(sent_at) => {
                    let until = self.extend(sent_at);
                    if self.lives() {
                        self.watch_what_is_held();
                        self.tidy_the_inbox();
                        return Renewal::Until(until);
                    }
                }
                Err(error) if error.lost_reason().is_some() => self.lose(LostReason::SessionLost),
                Err(error) if give_up_at <= env.now() => return Renewal::Unknown(error),
                Err(_) => pauses.pause(env).await,
            }
        }
        Renewal::Gone(LostReason::SessionLost)
    }

    /// Whether a new hold would end soon. The core's renewals make this rare.
    pub(super) fn is_nearly_over(&self) -> bool {
        self.deadline().remaining(self.env().now()) < self.ttl / 6
    }
}
