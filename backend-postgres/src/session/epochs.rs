//! The connections of a session, one after the other, each with an epoch of its own.

use std::sync::Arc;

use leasehold_core::backend::{Backoff, StoreEvent};
use leasehold_core::{LostReason, Result};

use super::Session;
use crate::connection::Route;
use crate::protocol::Seq;

impl Session {
    /// The connections in use, and the epoch of this session on them. On new ones `mine` comes first.
    pub(super) async fn line(self: &Arc<Self>) -> Result<(Route, i32)> {
        loop {
            let line = self.sessions.server.line().await?;
            if let Some(epoch) = self.book.lock().epoch_on(line.generation) {
                return Ok((line, epoch));
            }
            let _turn = self.moving.lock().await;
            // RACE: another request has begun the epoch meanwhile, or later connections.
            if self.book.lock().epoch_on(line.generation).is_none() && !line.broken.is_cancelled() {
                self.begin_epoch(&line).await?;
            }
        }
    }

    async fn begin_epoch(self: &Arc<Self>, line: &Route) -> Result<()> {
        self.book.lock().moves_to(line.generation);
        let sent_at = self.env().now();
        let (epoch, past, there) = self.mine(line).await?;
        self.extend(sent_at);
        let seqs: Vec<Seq> = there.iter().map(|(_, seq)| *seq).collect();
        let found = self.book.lock().compare(&seqs);
        // Before any request that may fail: a hold that the server does not have ends at once.
        for (name, seq) in found.lost {
            self.book.lock().forget(seq);
            if let Ok(counter) = self.counter(seq) {
                self.sessions.events.tell(StoreEvent::GrantLost { name, counter, reason: LostReason::Gone });
            }
        }
        let unknown = there.into_iter().filter(|(_, seq)| found.unknown.contains(seq)).collect();
        self.release_all(line, unknown).await?;
        self.book.lock().in_epoch(line.generation, epoch, past);
        self.wake_all();
        Ok(())
    }

    /// Connects again whenever the connections have failed: messages are heard on them.
    pub(super) async fn keep_connected(self: Arc<Self>) {
        let mut pauses = Backoff::of_requests(self.env());
        // RACE: a busy machine polls this first when the session has ended and its connections were closed.
        while !self.ended.is_cancelled() {
            match self.line().await {
                Ok((line, _)) => {
                    pauses.reset();
                    line.broken.cancelled().await;
                }
                Err(error) => {
                    tracing::debug!(
                        session = self.number,
                        error = ?format!("{error:#}"),
                        "not connected"
                    );
                    pauses.pause(self.env()).await;
                }
            }
        }
    }

    fn wake_all(&self) {
        for wake in self.wakes.lock().values() {
            wake.notify_one();
        }
    }
}
