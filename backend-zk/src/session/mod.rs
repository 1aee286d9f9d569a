//! One session: opened, proved, ended.
//!
//! # Invariants
//! - **zk.session-1** A session ends once, for one reason, and that is reported once.
//! - **zk.session-2** An answered write counts as a proof only if the connection did not change while it was pending, and
//!   every change before it was checked: a server that is not quite a ZooKeeper may give a new session where it should
//!   refuse.
//! - **zk.session-3** A session that the core does not renew is ended, even if the client library keeps it alive.
//! - **zk.session-4** A client that requests a revocation writes the session's own node after its inbox. So a foreign version
//!   in the answer to the next renewal has the inbox read, even if the watch on it is lost.

mod acquisition;
mod holds;
mod ledger;
mod opening;
mod proof;
mod renewer;
mod seen;
mod site;

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold_core::backend::{Holder, Lease, LeaseId, LeaseScope, Renewal, StoreEvent};
use leasehold_core::clock::Deadline;
use leasehold_core::{Effect, Error, ErrorKind, FencingToken, LockName, LostReason, Result};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};
use zookeeper_client::{Stat, StateWatcher};

use crate::connection::{Connection, Silence};
use crate::error;
use crate::keys::Note;
use crate::protocol::{Holds, Liveness, Purpose, Untouched, Writers};

use holds::HoldWatch;
pub(crate) use opening::stored_base;
pub(crate) use seen::{Directory, KnownHolders};
pub(crate) use site::Site;

/// A session with the ensemble.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) connection: Connection,
    pub(crate) site: Arc<Site>,
    pub(crate) id: i64,
    /// The node whose writes prove it.
    pub(crate) node: String,
    /// Counts the writes of that node.
    writers: Mutex<Writers>,
    /// Another client has written it.
    knocked: Notify,
    token_base: u64,
    why_over: OnceLock<LostReason>,
    liveness: Mutex<Liveness>,
    changes: Mutex<Changes>,
    /// The number of checked changes of the connection; published when all are checked.
    looked_into: watch::Sender<u64>,
    holds: Mutex<Holds>,
    /// The watches on the nodes of holds, for the task that waits for them.
    watches: mpsc::UnboundedSender<HoldWatch>,
    /// The locks for which foreign contenders were reported.
    foreign: Mutex<HashSet<LockName>>,
    /// The locks that no other client has entered since.
    untouched: Mutex<Untouched<Silence>>,
    /// The holders that were read.
    pub(crate) seen: KnownHolders,
}

/// How often the connection has changed.
#[derive(Debug)]
struct Changes {
    states: StateWatcher,
    seen: u64,
    /// Broken by the next one: looking for it costs more.
    still: Silence,
}

impl Session {
    pub(crate) fn lease_id(&self) -> LeaseId {
        LeaseId::new(self.id.cast_unsigned())
    }

    /// The timeout that the server granted.
    pub(crate) fn timeout(&self) -> Duration {
        self.liveness.lock().timeout
    }

    /// Why the session has ended, if it has.
    pub(crate) fn why_over(&self) -> Option<LostReason> {
        self.why_over.get().copied()
    }

    /// The error of a request to this session, which has ended.
    fn lost(&self) -> Error {
        match self.why_over().unwrap_or(LostReason::SessionLost) {
            LostReason::Shutdown => error::closed(),
            reason => Error::lost(reason),
        }
    }

    /// The deadline of all holds of the session.
    pub(crate) fn deadline(&self) -> Deadline {
        let liveness = self.liveness.lock();
        self.site.env.deadline(liveness.base, liveness.timeout)
    }

    pub(crate) fn lease(&self) -> Lease {
        Lease::new(self.lease_id(), LeaseScope::Session, self.timeout(), self.deadline())
    }

    /// Ends the session for `reason`, at the server too; its holds and queue entries end with it.
    ///
    /// The guards are notified before the server, which lets the next contender hold. So the server learns it at their
    /// deadline, from the task that watches the session. A manager that closes has notified them itself.
    pub(crate) fn end(&self, reason: LostReason) {
        if self.why_over.set(reason).is_err() {
            return;
        }
        if reason != LostReason::Shutdown {
            tracing::warn!(session = format_args!("{:#x}", self.id), %reason, "session lost");
            self.site.events.tell(StoreEvent::LeaseLost { lease: self.lease_id(), reason });
        }
        self.connection.end();
        if reason == LostReason::Shutdown {
            self.connection.close();
        }
    }

    /// How long the server keeps the session by the renewals so far, if that has not passed (zk.session-3).
    ///
    /// Longer than [`deadline`](Self::deadline): until then the core may still be notifying the guards.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        let liveness = self.liveness.lock();
        let left = (liveness.base + liveness.timeout).since(self.site.env.now());
        (left > Duration::ZERO).then_some(left)
    }

    /// Renews the lease.
    pub(crate) async fn renew(&self) -> Renewal {
        match self.prove(Purpose::Renewal).await {
            Ok(()) if self.deadline().has_passed(self.site.env.now()) => Renewal::Gone(LostReason::Expired),
            Ok(()) => Renewal::Until(self.deadline()),
            Err(unanswered) => match self.why_over() {
                Some(reason) => Renewal::Gone(reason),
                None => Renewal::Unknown(unanswered.into_error("confirm the session")),
            },
        }
    }

    /// Confirms the last renewal if the next one is late, and announces the new deadline.
    pub(crate) async fn confirm_if_late(&self) {
        let due = self.liveness.lock().confirm_at();
        if due.is_none_or(|due| self.site.env.now() < due) {
            return;
        }
        if self.prove(Purpose::Confirmation).await.is_ok() && self.why_over().is_none() {
            self.announce();
        }
    }

    /// The counter of a grant that the transaction `czxid` made.
    pub(crate) fn counter(&self, czxid: i64) -> Result<u64> {
        let counter = u64::try_from(czxid).ok().and_then(|czxid| czxid.checked_add(self.token_base));
        counter.filter(|counter| *counter <= FencingToken::MAX_COUNTER).ok_or_else(|| {
            let message = format!(
                "cannot make a token of transaction {czxid:#x} and the token_base: the sum exceeds the \
                 largest token"
            );
            Error::new(ErrorKind::Protocol, Effect::Unknown, message)
        })
    }

    /// The holder that made a node.
    pub(crate) fn holder(&self, note: Note, stat: &Stat) -> Result<Holder> {
        Ok(note.into_holder(self.counter(stat.czxid)?, stat.ctime))
    }

    fn announce(&self) {
        self.site.events.tell(StoreEvent::LeaseOpened(self.lease()));
    }

    /// Waits until the session lasts long enough for a grant; false if it ends instead.
    pub(crate) async fn freshened(&self) -> bool {
        while self.deadline().remaining(self.site.env.now()) <= self.timeout() / 12 {
            tokio::select! {
                biased;
                () = self.connection.over.cancelled() => break,
                () = self.site.env.sleep(self.timeout() / 48) => {}
            }
        }
        !self.connection.over.is_cancelled()
    }
}
