//! One acquisition as a pure state machine: answers, messages and the time go in, the next action comes out.
//!
//! A contender enters the queue, or has the lock at once; it is granted by an answer, or by a message
//! in the inbox, whichever arrives first. An entry is a lease: its owner's refreshes keep it, and with
//! the end of one the acquisition is over, however it ended. A caller that still wants the lock begins another one.
//! `orphans` decides for how long its leftovers are released. Only the scripts know whether it holds alone or shares: here a
//! grant is a grant, with a lease of its own.
//!
//! # Invariants
//! - **redis.protocol-1** A deadline counts from the sending of an answered request; never from a message's arrival or from a
//!   refresh without an answer (G1, G2). The server keeps a lock that it passes to the next entry for at least as long as that
//!   entry would have lived.
//! - **redis.protocol-2** A message that grants counter c counts only if c is above every counter that
//!   was answered to a waiting entry: a later answer knows better (G1).
//! - **redis.protocol-3** An owner id that is removed or past its deadline has ended: no later message or answer revives it,
//!   and it never queues again (G4).
//! - **redis.protocol-4** When an entry ends, its grant and its place are released until the server confirms (G5, G8), also
//!   when its owner acquires again meanwhile.
//! - **redis.protocol-5** A waiting entry refreshes by itself only if its turn may come before its next renewal without a
//!   message: when the holder's lease has ended, and so has the entry before it, which would refresh otherwise. So one entry
//!   refreshes at a time, and dead entries are skipped in time (G6, G7). Only an answer to a later request moves that moment.
//! - **redis.protocol-6** An entry that was granted does not hold if a request that was sent after that is answered with
//!   "waits": the server has forgotten the grant, or never gave it (G2).
//! - **redis.protocol-7** The revocation of an owner id is kept until that ends, with the earliest deadline of all answers, and
//!   never applies to a later hold. The lease of a revoked lock goes on.
//! - **redis.protocol-8** A message of a foreign client is only a hint: the first waiter behind it refreshes at once. Every
//!   waiter knows when to refresh without a message, so a foreign client that sends none is followed within a poll (G6).
//! - **redis.protocol-9** If a restarted server must grant nothing at first: each connection leads to one run of it. The first
//!   request returns until when that run may have forgotten holders; every script over the connection gets that moment, and
//!   grants nothing before. No lease is longer than that pause (G1, G2). A message counts only until its connection is
//!   abandoned, which is before the link makes the next one. A hold that the server does not extend, as a primary before may
//!   end its lease, ends at its deadline. With `wait_replicas`, replies come over a second link: there a
//!   grant is returned only after a refresh that was sent after the message (redis.protocol-6).
//! - **redis.protocol-10** No message ends a hold, and none grants a counter far above the server's last answer: both are
//!   checked at the server first, as a message may be forged (G1, G3). Revocations of one hold are checked at a limited rate,
//!   however many messages announce them, and each message by a request that is sent after it.
//!
//! Not promised: that messages arrive. Checked by `protocol/tests`, against a model of the scripts.

mod orphans;

use std::time::Duration;

use leasehold_core::LostReason;
use leasehold_core::clock::{Deadline, Moment};

use self::ContenderPhase::{Entering, Holding, Over, Waiting};
pub(crate) use self::orphans::{Next, Orphans, Unanswered, Up};

/// One entry of a name, from its first request to its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Contender {
    ttl: Duration,
    margin: Duration,
    phase: ContenderPhase,
    ask: Ask,
    /// The deadline of the revocation.
    asked: Option<Moment>,
    /// A revocation message is not checked at the server yet.
    check_is_due: bool,
    /// When the last such check was sent.
    checked_at: Option<Moment>,
}

/// When a waiting entry refreshes because its turn may have come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Ask {
    at: Option<Moment>,
    /// Requests from before this may not know of it.
    known_at: Option<Moment>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ContenderPhase {
    /// No request was answered.
    Entering {
        /// The largest counter that a message has granted meanwhile, and when that arrived.
        told: Option<(u64, Moment)>,
    },
    /// In the queue.
    Waiting {
        /// When the latest answered request was sent.
        sent_at: Moment,
        /// The largest counter that was answered.
        seen: u64,
        /// As of that request, no entry of this manager is before it, and a foreign client holds.
        behind_foreign: bool,
    },
    /// Granted, by an answer or a message at `heard_at`.
    Holding { counter: u64, heard_at: Moment, deadline: Deadline },
    /// Nothing may come of this owner id any more.
    Over(LostReason),
}

/// The server's answer about an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ScriptReply {
    /// It holds the lock, extended by the full ttl.
    Holds { counter: u64 },
    /// It waits, refreshed by the full ttl; when its turn may come without a message, if ever, and whether it is the
    /// first one behind a foreign client.
    Waits { seen: u64, ask_in: Option<Duration>, behind_foreign: bool },
    /// It holds the lock, in the same way, and the lock was revoked with that grace period.
    Revoked { counter: u64, grace: Duration },
    /// There is no such entry.
    Gone,
    /// It holds the lock, and was not extended: a primary before may end the lease and grant the lock again.
    HoldsOn,
}

impl ScriptReply {
    /// The answer as of now if it was written up to `ago` before: the next refresh is rather too early than too late.
    pub(crate) fn written_before(mut self, ago: Duration) -> Self {
        if let Self::Waits { ask_in: Some(ask_in), .. } = &mut self {
            *ask_in = ask_in.saturating_sub(ago);
        }
        self
    }
}

/// The meaning of an answer for the entry's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Verdict {
    Until(Deadline),
    /// It lasts until the deadline that is known.
    Unchanged,
    Gone(LostReason),
}

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// Send the request to enter, again if it was sent before.
    Enter,
    /// Send a refresh of this entry alone.
    Refresh,
    /// Nothing, until a message or that moment.
    Wait(Moment),
    /// Give the lock to the caller.
    Take { counter: u64, deadline: Deadline },
    /// It has ended, and its grant or place is to be released.
    Over(LostReason),
}

impl Contender {
    /// An entry without a request, with leases of `ttl` that count as ended `margin` early.
    pub(crate) fn new(ttl: Duration, margin: Duration) -> Self {
        let phase = Entering { told: None };
        Self { ttl, margin, phase, ask: Ask::default(), asked: None, check_is_due: false, checked_at: None }
    }

    /// For how long the server keeps it without a refresh.
    pub(crate) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// The next action at `now`.
    pub(crate) fn step(&mut self, now: Moment) -> Step {
        self.expire(now);
        match self.phase {
            Entering { .. } => Step::Enter,
            Waiting { .. } if self.ask.at.is_some_and(|at| at <= now) => Step::Refresh,
            Waiting { sent_at, .. } => {
                let over_at = sent_at + self.ttl.saturating_sub(self.margin);
                Step::Wait(self.ask.at.map_or(over_at, |at| at.min(over_at)))
            }
            Holding { counter, deadline, .. } => Step::Take { counter, deadline },
            Over(reason) => Step::Over(reason),
        }
    }

    /// Applies the answer to the request sent at `sent_at`; returns its meaning for the lease.
    pub(crate) fn answered(&mut self, now: Moment, sent_at: Moment, answer: ScriptReply) -> Verdict {
        self.expire(now);
        if let ScriptReply::Revoked { grace, .. } = answer {
            self.asked(now, grace);
        }
        let deadline = self.deadline(sent_at);
        match (answer, &mut self.phase) {
            // redis.protocol-3: an answer to a request that was long on its way revives nothing.
            (_, Over(_)) => {}
            (ScriptReply::HoldsOn, Holding { .. }) => return Verdict::Unchanged,
            (ScriptReply::Gone | ScriptReply::HoldsOn, phase) => *phase = Over(LostReason::Gone),
            (ScriptReply::Holds { .. } | ScriptReply::Revoked { .. }, Holding { deadline: until, .. }) => {
                *until = deadline.max(*until)
            }
            (ScriptReply::Holds { counter } | ScriptReply::Revoked { counter, .. }, phase) => {
                *phase = Holding { counter, heard_at: now, deadline }
            }
            (ScriptReply::Waits { seen, .. }, Holding { counter, heard_at, .. })
                if seen < *counter && sent_at <= *heard_at =>
            {
                // It may have been answered before the grant; a later request was not (redis.protocol-6).
            }
            (ScriptReply::Waits { .. }, phase @ Holding { .. }) => *phase = Over(LostReason::Gone),
            (ScriptReply::Waits { seen, ask_in, behind_foreign }, &mut Entering { told }) => {
                self.phase = Waiting { sent_at, seen, behind_foreign };
                self.ask(now, sent_at, ask_in);
                // redis.protocol-2: a message from before that request is older than its answer.
                if let Some((counter, heard_at)) = told
                    && heard_at > sent_at
                {
                    self.told(now, counter);
                }
            }
            (
                ScriptReply::Waits { seen, ask_in, behind_foreign },
                &mut Waiting { sent_at: last, seen: before, behind_foreign: was },
            ) => {
                let behind_foreign = if last <= sent_at { behind_foreign } else { was };
                self.phase = Waiting { sent_at: sent_at.max(last), seen: seen.max(before), behind_foreign };
                self.ask(now, sent_at, ask_in);
            }
        }
        self.expire(now);
        self.verdict()
    }

    /// A refresh of this entry alone had no answer: another one later.
    pub(crate) fn unanswered(&mut self, now: Moment) {
        if let Some(at) = &mut self.ask.at {
            *at = now + self.ttl / 24;
        }
    }

    /// A message announces a grant to this entry, as `counter`.
    pub(crate) fn told(&mut self, now: Moment, counter: u64) {
        self.expire(now);
        match &mut self.phase {
            // Not before the server has sent a counter to compare it with.
            Entering { told } => *told = Some((counter, now)).max(*told),
            // redis.protocol-2
            Waiting { seen, .. } if counter <= *seen => {}
            // redis.protocol-10
            Waiting { sent_at, seen, .. } if counter - *seen > LEAP => {
                let at = now.max(*sent_at + APART);
                self.ask = Ask { at: Some(at), known_at: Some(now) };
            }
            // redis.protocol-1
            Waiting { sent_at, .. } => {
                let sent_at = *sent_at;
                self.phase = Holding { counter, heard_at: now, deadline: self.deadline(sent_at) };
            }
            Holding { .. } | Over(_) => {}
        }
        self.expire(now);
    }

    /// A message announces when the turn of this entry may come without a further message: the one before it has left.
    pub(crate) fn due(&mut self, now: Moment, ask_in: Duration) {
        // It may come before the answer to the request that has entered.
        let at = self.ask.at.into_iter().chain([now + ask_in + EXPIRY]).min();
        self.ask = Ask { at, known_at: Some(now) };
    }

    /// A message came in the foreign clients' channel, or the subscription begins: the first waiter behind one of them
    /// refreshes (redis.protocol-8).
    pub(crate) fn spoken(&mut self, now: Moment) {
        if let Waiting { sent_at, behind_foreign: true, .. } = self.phase {
            self.ask = Ask { at: Some(now.max(sent_at + APART)), known_at: Some(now) };
        }
    }

    /// A message announces the revocation of the lock; returns when a refresh has to check that, unless one is due already
    /// (redis.protocol-10).
    pub(crate) fn told_revoked(&mut self, now: Moment) -> Option<Moment> {
        if self.check_is_due || matches!(self.phase, Over(_)) {
            return None;
        }
        self.check_is_due = true;
        Some(self.checked_at.map_or(now, |last| now.max(last + CHECKS_APART.min(self.ttl / 24))))
    }

    /// A request that is sent after this checks the revocation; returns the counter of the hold, if it holds.
    pub(crate) fn checks_revocation(&mut self, now: Moment) -> Option<u64> {
        (self.check_is_due, self.checked_at) = (false, Some(now));
        self.held_as()
    }

    /// The lock was revoked, with `grace` from now.
    fn asked(&mut self, now: Moment, grace: Duration) {
        self.asked = self.asked.into_iter().chain([now + grace]).min();
    }

    /// The counter of the hold and the rest of the grace period, if the lock was revoked.
    pub(crate) fn wanted(&self, now: Moment) -> Option<(u64, Duration)> {
        Some((self.held_as()?, self.asked?.since(now)))
    }

    /// Ends the entry, if it has not ended.
    pub(crate) fn end(&mut self, reason: LostReason) {
        if !matches!(self.phase, Over(_)) {
            self.phase = Over(reason);
        }
    }

    /// Whether the entry waits in the queue.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.phase, Waiting { .. })
    }

    /// Whether the entry is this manager's first while a foreign client holds the lock, as far as it knows.
    pub(crate) fn is_behind_foreign(&self) -> bool {
        matches!(self.phase, Waiting { behind_foreign: true, .. })
    }

    /// Until when the entry keeps its place, if it waits.
    pub(crate) fn waits_until(&self) -> Option<Deadline> {
        let Waiting { sent_at, .. } = self.phase else { return None };
        Some(self.deadline(sent_at))
    }

    /// The counter under which the lock is held.
    pub(crate) fn held_as(&self) -> Option<u64> {
        let Holding { counter, .. } = self.phase else { return None };
        Some(counter)
    }

    fn verdict(&self) -> Verdict {
        match self.phase {
            // Nothing is answered before it was sent.
            Entering { .. } => Verdict::Gone(LostReason::Gone),
            Waiting { sent_at, .. } => Verdict::Until(self.deadline(sent_at)),
            Holding { deadline, .. } => Verdict::Until(deadline),
            Over(reason) => Verdict::Gone(reason),
        }
    }

    fn expire(&mut self, now: Moment) {
        if matches!(self.verdict(), Verdict::Until(deadline) if deadline.has_passed(now)) {
            self.phase = Over(LostReason::Expired);
        }
    }

    fn deadline(&self, sent_at: Moment) -> Deadline {
        Deadline::of_lease(sent_at, self.ttl, self.margin)
    }

    /// redis.protocol-5: the answer to the request sent at `sent_at` says when to refresh; the next renewal is sent a third of
    /// the ttl after the last.
    fn ask(&mut self, now: Moment, sent_at: Moment, ask_in: Option<Duration>) {
        let ask_at = ask_in.map(|ask_in| now + ask_in + EXPIRY).filter(|at| *at < sent_at + self.ttl / 3);
        let Ask { at: before, known_at } = self.ask;
        self.ask = match known_at {
            // A message, or an answer to a later request, has come before it.
            Some(known_at) if sent_at <= known_at => {
                Ask { at: before.into_iter().chain(ask_at).min(), known_at: Some(known_at) }
            }
            _ => Ask { at: ask_at, known_at: Some(sent_at) },
        };
    }
}

/// How late a key may expire, by the server's rounding.
const EXPIRY: Duration = Duration::from_millis(1);

/// How far above the last counter that was answered, in microseconds, a message's may be: counters follow the server's clock,
/// so a grant after a longer hold costs one request more.
const LEAP: u64 = 60_000_000;

/// The longest pause between two checks of one hold after revocation messages: by that much a made-up message can delay a
/// true one.
const CHECKS_APART: Duration = Duration::from_millis(250);

/// The shortest pause between refreshes after messages, however many come.
const APART: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests;
