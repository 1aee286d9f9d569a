//! For how long the entries of an owner id that is not wanted any more are released, as a pure state machine.
//!
//! # Invariants
//! - **redis.orphans-1** It is released until the server has answered, or for one ttl: every request that had arrived before
//!   has ended by then (G5).
//! - **redis.orphans-2** A request without an answer may arrive later, for as long as the network was cut. So releases are
//!   repeated until a ttl after the server was reached by a newer connection; a release that is answered on the request's own
//!   connection, or is sent there for a ttl, has come after it (G5, G8). That this one is up proves nothing before.
//!
//! Checked by `protocol/tests/orphans.rs`.

use std::time::Duration;

use leasehold_core::clock::Moment;
use smallvec::SmallVec;

/// A connection that is up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Up {
    /// Unlike that of any other.
    pub(crate) id: u64,
    pub(crate) at: Moment,
}

/// Requests that had no answer, and may still be on their way through connections that broke.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Unanswered(SmallVec<[Sent; 1]>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Sent {
    connection: u64,
    /// Since when the server was reached by a newer connection.
    reached_at: Option<Moment>,
}

impl Unanswered {
    /// A request is about to be sent through `connection`.
    pub(crate) fn sent(&mut self, connection: u64) {
        self.0.push(Sent { connection, reached_at: None });
    }

    /// The latest one was answered.
    pub(crate) fn answered(&mut self) {
        self.0.pop();
        if self.0.is_empty() {
            // Nearly always, and for as long as a lock is held: without the room for more.
            self.0 = SmallVec::new();
        }
    }

    /// A later request was answered on `connection`: earlier requests there have arrived before it.
    pub(crate) fn overtaken(&mut self, connection: u64) {
        self.0.retain(|sent| sent.connection != connection);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Forgets the requests that have arrived, or whose leases of `ttl` have ended in any case; `up` is the connection on which
    /// releases were sent for as long, if there is one.
    fn expire(&mut self, now: Moment, up: Option<Up>, ttl: Duration) {
        self.0.retain_mut(|sent| {
            match up {
                // A connection that has answered nothing would be abandoned.
                Some(up) if up.id == sent.connection => return false,
                Some(up) => _ = sent.reached_at.get_or_insert(up.at),
                None => {}
            }
            sent.reached_at.is_none_or(|reached_at| now < reached_at + ttl)
        });
    }
}

/// The leftovers of one owner id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Orphans {
    ttl: Duration,
    /// When the leases of the requests that had arrived end.
    over_at: Moment,
    is_settled: bool,
    unanswered: Unanswered,
}

/// The next action after a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Release again at once: the lock is free, and waiters are behind more ended entries.
    GoOn,
    /// Release again after a pause: there was no answer.
    Retry,
    /// The leases of arrived requests have ended. Release again after a pause: a request may still arrive.
    Look,
    /// Nothing.
    Stop,
}

impl Orphans {
    /// Entries that are released from `now` on, with leases of `ttl`.
    pub(crate) fn new(now: Moment, ttl: Duration, unanswered: Unanswered) -> Self {
        Self { ttl, over_at: now + ttl, is_settled: false, unanswered }
    }

    /// A release was answered on `connection`; `is_unswept` if waiters are behind more ended entries than it
    /// dropped.
    pub(crate) fn answered(
        &mut self,
        now: Moment,
        up: Option<Up>,
        connection: u64,
        is_unswept: bool,
    ) -> Next {
        if is_unswept && now < self.over_at {
            return Next::GoOn;
        }
        self.is_settled = true;
        self.unanswered.overtaken(connection);
        self.next(now, up)
    }

    /// A release had no answer.
    pub(crate) fn unanswered(&mut self, now: Moment, up: Option<Up>) -> Next {
        self.is_settled |= self.over_at <= now;
        self.next(now, up)
    }

    fn next(&mut self, now: Moment, up: Option<Up>) -> Next {
        if !self.is_settled {
            return Next::Retry;
        }
        self.unanswered.expire(now, up, self.ttl);
        if self.unanswered.is_empty() {
            return Next::Stop;
        }
        // Each check is a release of its own, repeated until it is answered.
        (self.is_settled, self.over_at) = (false, now + self.ttl);
        Next::Look
    }
}
