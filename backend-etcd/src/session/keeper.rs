//! Renewals: one stream per session, one message per renewal.
//!
//! Answers come in the order of sending. A renewal that the caller has stopped waiting for leaves
//! its answer in the stream, so every answer is matched with the moment its own message was sent.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{LeaseKeepAliveStream, LeaseKeeper};
use leasehold_core::backend::Renewal;
use leasehold_core::clock::{Deadline, Moment};
use leasehold_core::{LostReason, Result};

use super::Session;
use crate::connection::backoff;
use crate::error;

#[derive(Debug)]
pub(super) struct Stream {
    keeper: LeaseKeeper,
    answers: LeaseKeepAliveStream,
    generation: usize,
    /// When the messages were sent that are not answered yet.
    sent: VecDeque<Moment>,
}

impl Session {
    /// Renews the lease.
    ///
    /// # Cancel safety
    ///
    /// An answer that nobody waits for is taken by the next renewal, for what it is worth.
    pub(super) async fn renew(self: &Arc<Self>) -> Renewal {
        if !self.lives() {
            return Renewal::Gone(LostReason::SessionLost);
        }
        let env = self.env();
        let bound = env.timing().op_timeout;
        let give_up_at = env.now() + bound;
        let mut keepalive = self.keepalive.lock().await;
        let mut pauses = backoff(env);
        loop {
            let error = match self.renew_once(&mut keepalive).await {
                Ok(deadline) if self.lives() => {
                    self.watch_what_is_held();
                    self.tidy_the_inbox();
                    return Renewal::Until(deadline);
                }
                Ok(_) => return Renewal::Gone(LostReason::SessionLost),
                Err(error) => error,
            };
            *keepalive = None;
            if error.lost_reason().is_some() {
                self.lose(LostReason::SessionLost);
                return Renewal::Gone(LostReason::SessionLost);
            }
            if give_up_at <= env.now() || self.ended.is_cancelled() {
                return Renewal::Unknown(error);
            }
            pauses.pause(env).await;
        }
    }

    /// Whether a hold would be born dying. The core's renewals make this rare.
    pub(super) fn is_nearly_over(&self) -> bool {
        self.deadline().remaining(self.env().now()) < self.ttl / 6
    }

    async fn renew_once(self: &Arc<Self>, keepalive: &mut Option<Stream>) -> Result<Deadline> {
        let (endpoints, bound) = (&self.sessions.endpoints, self.sessions.endpoints.attempt_bound());
        // One that the requests have left may be dead: it renews on theirs.
        let link = endpoints.link().await?;
        keepalive.take_if(|stream| stream.generation != link.generation);
        if let Some(stream) = keepalive {
            let renewed = tokio::select! {
                biased;
                renewed = self.renew_on(stream) => renewed,
                () = self.env().sleep(bound) => Err(error::silent(bound)),
            };
            return renewed.inspect_err(|error| {
                if error::may_pass(error) {
                    endpoints.failed(link.generation);
                }
            });
        }
        let (lease, sent_at) = (self.lease, self.env().now());
        // Opening it renews once.
        let (keeper, answers) = endpoints
            .call_first(|client| async move { client.lease_client().keep_alive(lease).await })
            .await?;
        *keepalive = Some(Stream { keeper, answers, generation: link.generation, sent: VecDeque::new() });
        Ok(self.extend(sent_at, self.ttl))
    }

    async fn renew_on(self: &Arc<Self>, stream: &mut Stream) -> Result<Deadline> {
        let sent_at = self.env().now();
        stream.sent.push_back(sent_at);
        stream.keeper.keep_alive().await.map_err(error::of_client)?;
        loop {
            let answer = stream.answers.message().await.map_err(error::of_client)?;
            let answer = answer.ok_or_else(|| error::cut("the keepalive stream"))?;
            let answered = stream.sent.pop_front().ok_or_else(|| error::malformed("what was not asked"))?;
            self.is_of_cluster(answer.header())?;
            let Some(ttl) = u64::try_from(answer.ttl()).ok().filter(|ttl| *ttl > 0) else {
                return Err(leasehold_core::Error::lost(LostReason::SessionLost));
            };
            let deadline = self.extend(answered, Duration::from_secs(ttl));
            if stream.sent.is_empty() {
                return Ok(deadline);
            }
        }
    }
}
