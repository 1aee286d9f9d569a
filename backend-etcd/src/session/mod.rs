//! One session with the cluster: a lease, the keys on it, and how its end is noticed.
//!
//! A session has one lease and one watch stream. Its key is on the lease and watched, so that a lease that ends early is
//! noticed within milliseconds, also before a renewal. A session ends once: at its deadline, when its key is deleted, when
//! the cluster is another one, or when it is closed.
//!
//! | file | contains |
//! |---|---|
//! | `sessions` | which session is the current one |
//! | `opening` | how one begins |
//! | `renewer` | renewals |
//! | `acquisition` | carries out the steps of the engine |
//! | `holds` | grant, release, loss and revocation of holds |
//! | `watcher` | the reports of its watches |
//! | `requests` | the transactions on the wire |
//! | `ledger` | the record of a move to another store, and its participants |
//!
//! # Invariants
//! - **etcd.session-1** A session without the right to delete its own entry, or to search one that it may have put, ends:
//!   nothing else removes the entry from its queue, and a release must not wait for a right that may never come back.

mod acquisition;
mod holds;
mod ledger;
mod opening;
mod renewer;
mod requests;
mod sessions;
mod watcher;

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::{Backoff, Lease, LeaseId, LeaseScope, StoreEvent};
use leasehold_core::clock::{Deadline, Moment};
use leasehold_core::{Env, Error, ErrorKind, LockName, LostReason, Mode};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::keys::LockKeys;
use crate::protocol::{Book, Key, Revision, Slot};
use crate::watch::Watches;

pub(crate) use acquisition::acquire;
pub(crate) use requests::{gets, oldest, put_on_lease, revision};
pub(crate) use sessions::{Open, Sessions};

pub(crate) struct Session {
    sessions: Arc<Sessions>,
    lease: i64,
    /// As granted.
    ttl: Duration,
    cluster: u64,
    key: Vec<u8>,
    /// When the key was created.
    created: Revision,
    token_base: u64,
    book: Mutex<Book>,
    /// A name was freed.
    freed: Notify,
    /// Own keys whose watch began at that revision: earlier changes must be read.
    unread: mpsc::UnboundedSender<(Key, Revision)>,
    ended: CancellationToken,
    watches: Arc<Watches>,
}

impl Session {
    fn env(&self) -> &Env {
        &self.sessions.env
    }

    fn id(&self) -> LeaseId {
        LeaseId::new(self.lease.unsigned_abs())
    }

    fn lease(&self) -> Lease {
        Lease::new(self.id(), LeaseScope::Session, self.ttl, self.deadline())
    }

    fn keys(&self, name: &LockName, slot: Slot) -> LockKeys {
        self.sessions.keys.lock(name, slot, self.lease)
    }

    fn deadline(&self) -> Deadline {
        self.book.lock().deadline()
    }

    /// A renewal sent at `sent_at` was answered.
    fn extend(&self, sent_at: Moment) -> Deadline {
        let until = deadline(self.env(), sent_at, self.ttl);
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

    /// Ends the session: notifies its guards, once, and ends its lease at the store.
    pub(crate) fn lose(self: &Arc<Self>, reason: LostReason) {
        if !self.book.lock().end() {
            return;
        }
        if reason != LostReason::Shutdown {
            tracing::warn!(lease = format_args!("{:x}", self.lease), %reason, "session lost");
            self.sessions.events.tell(StoreEvent::LeaseLost { lease: self.id(), reason });
            let session = Arc::clone(self);
            self.env().spawn(async move { session.end_at_the_store().await });
        }
        self.ended.cancel();
    }

    /// Ends the session because a right is missing; later releases return that error.
    fn deny(self: &Arc<Self>, denied: &Error) {
        self.book.lock().deny(Error::not_applied(ErrorKind::Denied, denied.to_string()));
        self.lose(LostReason::SessionLost);
    }

    /// Ends the lease of a session that is lost, which frees its locks before the lease expires.
    async fn end_at_the_store(&self) {
        let give_up_at = self.env().now() + self.ttl;
        // Many sessions may be lost at the same time, and new sessions need the server more.
        let mut pauses = Backoff::of_waits(self.env());
        while self.env().now() < give_up_at && !self.sessions.closing.is_cancelled() {
            match self.sessions.end_lease(self.lease).await {
                // Without the right it expires.
                Err(error) if *error.kind() != ErrorKind::Denied => pauses.pause(self.env()).await,
                _ => return,
            }
        }
    }

    /// Waits until `name` is free and reserves it; the slot of its entry.
    async fn take(&self, name: &LockName, mode: Mode) -> Slot {
        loop {
            let freed = self.freed.notified();
            let taken = self.book.lock().take(name, mode, self.env().now());
            if let Some(slot) = taken {
                return slot;
            }
            freed.await;
        }
    }

    fn free(&self, name: &LockName) {
        self.book.lock().free(name);
        self.freed.notify_waiters();
    }
}

/// The deadline of a lease for which `ttl` was granted to a request sent at `sent_at`.
fn deadline(env: &Env, sent_at: Moment, ttl: Duration) -> Deadline {
    Deadline::of_lease(sent_at, ttl, env.timing().margin(ttl).max(HEARTBEAT))
}

/// A server counts time in heartbeats of this length, unless it is configured otherwise.
const HEARTBEAT: Duration = Duration::from_millis(100);
