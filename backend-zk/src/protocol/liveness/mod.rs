//! Until when a session cannot have ended at the server.
//!
//! An answered write proves a quorum, but does not move the session's end: the server we talk to
//! reports to the leader that we are alive only with its next ping, at most half a tick later. A second
//! write that is sent later than that, and answered, proves that the ping went through, since both
//! travel on one ordered connection. No session is shorter than two ticks, unless the server is set to allow
//! it, so half a tick is at most a quarter of it.
//!
//! The next renewal confirms the last one. When it is late, the session writes once by itself: that makes the last renewal
//! worth its full timeout, and no more. The proof of that write counts with the renewal after it: else one that is repeated a
//! third of the timeout late would itself be confirmed when the session is abandoned.
//!
//! # Invariants
//! - **zk.liveness-1** The session ends at the server no earlier than its timeout after [`Liveness::base`].
//!   The base is when a write was *sent* whose answer was followed, a quarter of the timeout and the lag
//!   later, by the sending of another that was answered too; at first, when the connection was requested.
//! - **zk.liveness-2** The base never moves back.
//! - **zk.liveness-3** However often the session is proved, the memory of it is bounded.
//! - **zk.liveness-4** Without renewals the base is at most when the last one was sent.
//! - **zk.liveness-5** The base never moves once the session was abandoned, its margin before its end: the loss of its holds
//!   has been reported.

use std::collections::VecDeque;
use std::time::Duration;

use leasehold_core::clock::Moment;

/// The life of a session that its answered writes prove.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Liveness {
    /// The timeout that the server granted.
    pub(crate) timeout: Duration,
    margin: Duration,
    /// From when on the session lives for at least its timeout.
    pub(crate) base: Moment,
    /// Answered, the oldest first, and not yet followed by one that confirms them.
    unconfirmed: VecDeque<Write>,
}

/// An answered write of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Write {
    pub(crate) sent: Moment,
    pub(crate) answered: Moment,
    pub(crate) purpose: Purpose,
}

/// The purpose of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    /// The lease is to last longer.
    Renewal,
    /// The last renewal is to count.
    Confirmation,
}

impl Liveness {
    /// A session of `timeout` that was requested at `asked`, and is abandoned `margin` before its end.
    pub(crate) fn new(asked: Moment, timeout: Duration, margin: Duration) -> Self {
        Self { timeout, margin, base: asked, unconfirmed: VecDeque::new() }
    }

    /// When the oldest unconfirmed renewal needs a confirmation, unless another renewal comes before.
    pub(crate) fn confirm_at(&self) -> Option<Moment> {
        let oldest = self.unconfirmed.iter().find(|write| write.purpose == Purpose::Renewal)?;
        Some(oldest.answered + self.told_after() + self.timeout / 12)
    }

    /// A write of this session was answered; returns whether that was before the session was abandoned.
    #[must_use]
    pub(crate) fn proved(&mut self, write: Write) -> bool {
        // The core is notified of it some time later.
        if self.base + self.timeout < write.answered + self.margin + self.timeout / 48 {
            return false;
        }
        while let Some(earlier) = self.unconfirmed.front() {
            // zk.liveness-4: only a renewal makes a confirmation count.
            let is_renewed = write.purpose == Purpose::Renewal || self.confirm_at().is_some();
            if !is_renewed || earlier.answered + self.told_after() > write.sent {
                break;
            }
            self.base = self.base.max(earlier.sent);
            self.unconfirmed.pop_front();
        }
        match self.unconfirmed.back_mut() {
            // Writes close to each other prove the same; the earlier is confirmed sooner.
            Some(last) if write.sent < last.sent + self.timeout / 48 => {
                if write.purpose == Purpose::Renewal && last.sent <= write.sent {
                    last.purpose = Purpose::Renewal;
                }
            }
            _ => self.unconfirmed.push_back(write),
        }
        true
    }

    /// How long after a write's answer the leader certainly knows that we are alive, if the network is open.
    fn told_after(&self) -> Duration {
        self.timeout / 4 + self.timeout / 20
    }
}

#[cfg(test)]
mod tests;
