//! One session with the server: a row with a deadline, the entries of that session, and how its end is noticed.
//!
//! A session outlives its connections: on new ones `mine` begins another epoch and shows what the server has of the session. A
//! session ends once: at its deadline, when the server says so, or when it is closed.
//!
//! | file | contains |
//! |---|---|
//! | `sessions` | which session is the current one |
//! | `opening` | how one begins |
//! | `epochs` | its connections, one after the other |
//! | `renewer` | renewals |
//! | `acquisition` | carries out the steps of the engine |
//! | `holds` | grant, release, loss and revocation of holds |
//! | `requests` | the functions of the server |
//! | `ledger` | the record of a move to another store, and its participants |

mod acquisition;
mod epochs;
mod holds;
mod ledger;
mod opening;
mod renewer;
mod requests;
mod sessions;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::{Backoff, Lease, LeaseId, LeaseScope, StoreEvent};
use leasehold_core::clock::{Deadline, Moment};
use leasehold_core::{Env, Error, ErrorKind, LostReason, Result};
use parking_lot::Mutex;
use tokio::sync::{Mutex as Turn, Notify};
use tokio_util::sync::CancellationToken;

use crate::protocol::{Seq, SessionBook};

pub(crate) use acquisition::acquire;
pub(crate) use sessions::{OpenSessions, Sessions};

pub(crate) struct Session {
    sessions: Arc<Sessions>,
    pub(crate) number: i64,
    ttl: Duration,
    token_base: u64,
    book: Mutex<SessionBook>,
    /// Wakes the acquisition of an entry.
    wakes: Mutex<HashMap<Seq, Arc<Notify>>>,
    /// One epoch begins at a time.
    moving: Turn<()>,
    /// Why the last renewal failed.
    unrenewed: Mutex<Option<Error>>,
    ended: CancellationToken,
}

impl Session {
    fn env(&self) -> &Env {
        &self.sessions.env
    }

    fn id(&self) -> LeaseId {
        LeaseId::new(self.number.unsigned_abs())
    }

    fn lease(&self) -> Lease {
        Lease::new(self.id(), LeaseScope::Session, self.ttl, self.deadline())
    }

    fn deadline(&self) -> Deadline {
        self.book.lock().deadline()
    }

    /// A renewal sent at `sent_at` was answered.
    fn extend(&self, sent_at: Moment) -> Deadline {
        let until = self.env().deadline(sent_at, self.ttl);
        self.book.lock().extend(until, self.env().now());
        until
    }

    /// Whether it can be trusted now; ends it if its deadline has passed.
    fn lives(self: &Arc<Self>) -> bool {
        let is_over = self.deadline().has_passed(self.env().now());
        if is_over {
            self.lose(LostReason::Expired);
        }
        !is_over
    }

    /// Ends the session: notifies its guards, once, and ends it at the server.
    pub(crate) fn lose(self: &Arc<Self>, reason: LostReason) {
        if !self.book.lock().end() {
            return;
        }
        if reason != LostReason::Expired {
            *self.unrenewed.lock() = None;
        }
        if reason != LostReason::Shutdown {
            tracing::warn!(session = self.number, %reason, "session lost");
            self.sessions.events.tell(StoreEvent::LeaseLost { lease: self.id(), reason });
            let session = Arc::clone(self);
            self.env().spawn(async move { session.end_in_background().await });
        }
        self.ended.cancel();
    }

    /// Ends the session at its deadline, and with its manager.
    async fn end_in_time(self: Arc<Self>) {
        while self.lives()
            && let Deadline::At(deadline) = self.deadline()
        {
            if self.ended.run_until_cancelled(self.env().sleep_until(deadline)).await.is_none() {
                // RACE: `close` did not see a session that began just now.
                self.lose(LostReason::Shutdown);
            }
        }
    }

    /// Ends a session that is lost, which frees its locks before its deadline at the server.
    async fn end_in_background(&self) {
        let give_up_at = self.env().now() + self.ttl;
        // Many sessions may be lost at the same time, and new sessions need the server more.
        let mut pauses = Backoff::of_waits(self.env());
        while self.env().now() < give_up_at && !self.sessions.closing.is_cancelled() {
            match self.end_at_the_store().await {
                // Without the right it expires.
                Err(error) if *error.kind() != ErrorKind::Denied => pauses.pause(self.env()).await,
                _ => return,
            }
        }
    }

    /// Ends the session at the server, and releases each of its entries, so that those behind them are told.
    async fn end_at_the_store(&self) -> Result<()> {
        let line = self.sessions.server.line().await?;
        let left = self.end_session(&line).await?;
        self.release_all(&line, left).await
    }

    fn wake(&self, seq: Seq) {
        if let Some(wake) = self.wakes.lock().get(&seq) {
            wake.notify_one();
        }
    }
}
