//! The scripts on a lock that other libraries take too.

use super::{Asker, ENDLESS, Entry, Fault, First, Message, Server};
use crate::protocol::ScriptReply;

/// The turns of foreign clients, in milliseconds, and the notes about them.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) poll: u64,
    pub(crate) after: u64,
    pub(crate) every: u64,
    /// For how long.
    pub(crate) rest: u64,
    /// Foreign clients get a message when the lock is free.
    pub(crate) signals: bool,
    /// Until when the list on which they wait has its element, in milliseconds; never, if they do not wait on one.
    pub(crate) element_until: Option<u64>,
    /// Some may wait.
    pub(crate) may_wait: bool,
    /// Hand-overs in a row, and since when.
    pub(crate) turns: Option<(u64, u64)>,
    /// Until when ours stand back, in microseconds.
    pub(crate) rests_until: Option<u64>,
}

impl Shared {
    /// As `format=string` has them.
    pub(crate) const STRINGS: Self = Self {
        poll: 100,
        after: u64::MAX,
        every: 1_000,
        rest: 150,
        signals: false,
        element_until: None,
        may_wait: true,
        turns: None,
        rests_until: None,
    };
}

impl Server {
    /// How often the first of ours polls, if a foreign client holds the lock.
    pub(super) fn poll(&self) -> Option<u64> {
        let (holder, _) = self.lock?;
        let shared = self.shared.as_ref()?;
        let is_ours = self.was_granted_to(holder) || self.fault == Fault::NoPoll;
        (!is_ours).then_some(shared.poll)
    }

    /// For how long a free lock is left alone.
    pub(super) fn rest(&self, now: u64) -> Option<u64> {
        if let Some(left) = self.pause(now) {
            return Some(left);
        }
        let shared = self.shared.as_ref()?;
        let left = shared.rests_until?.saturating_sub(now).div_ceil(1000);
        (1..=shared.rest).contains(&left).then_some(left)
    }

    /// The lock has gone from one of ours to another.
    pub(super) fn passed(&mut self, now: u64, lease: u64) {
        if let Some(shared) = &mut self.shared {
            let (turns, since) = shared.turns.unwrap_or((0, now));
            (shared.turns, shared.rests_until) = (Some((turns + 1, since)), None);
            self.entries_until = self.entries_until.max(now / 1000 + lease);
        }
    }

    /// The caller acquires a free lock, maybe soon after a release without a waiter.
    pub(super) fn taken(&mut self, now: u64, Asker { owner, client, ttl, .. }: Asker) -> ScriptReply {
        if let Some(Shared { turns: Some((turns, _)), .. }) = &mut self.shared {
            *turns += 1;
            self.entries_until = self.entries_until.max(now / 1000 + ttl);
        }
        (self.lock, self.handed_on) = (Some((owner, now / 1000 + ttl)), false);
        ScriptReply::Holds { counter: self.count(now, owner, client, true) }
    }

    /// If one of them holds.
    pub(super) fn foreign_had_a_turn(&mut self) {
        if self.poll().is_some()
            && let Some(shared) = &mut self.shared
        {
            shared.turns = None;
            self.forget_empty_keys();
        }
    }

    /// The lock is free without a waiter of ours.
    pub(super) fn keep_turns(&mut self, now: u64) {
        if let Some(shared) = &mut self.shared {
            shared.rests_until = None;
            let turns = shared.turns.take().unwrap_or((0, now));
            if shared.rest > 0 && self.fault != Fault::ForgetsTurns {
                shared.turns = Some(turns);
                self.entries_until = now / 1000 + shared.rest.div_ceil(3);
            }
        }
    }

    pub(super) fn notes_foreign(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.turns.is_some() || shared.rests_until.is_some())
    }

    pub(crate) fn forget_foreign(&mut self) {
        if let Some(shared) = &mut self.shared {
            (shared.turns, shared.rests_until) = (None, None);
        }
    }

    /// Frees the lock.
    pub(super) fn free(&mut self, now: u64, pushes: &mut Vec<Message>) {
        self.lock = None;
        let Some(shared) = &mut self.shared else { return };
        shared.element_until = shared.element_until.map(|_| now / 1000 + 1_000);
        if shared.signals {
            pushes.push(Message::Signal);
        }
        if let Some(grant) = &mut self.grant {
            grant.over = true;
        }
    }

    /// The holder releases; returns whether a waiter may be behind more ended entries.
    pub(super) fn let_go(&mut self, now: u64, pushes: &mut Vec<Message>) -> bool {
        if let Some(left) = self.pause(now) {
            self.free_for_a_while(now, left, pushes);
            return false;
        }
        if self.have_their_turn(now, pushes) {
            return false;
        }
        let held = self.lock.take();
        let more = self.hand_on(now, pushes);
        if self.lock.is_none() {
            self.lock = held;
            self.free(now, pushes);
            self.revoked = None;
            if more {
                self.forget_foreign();
            } else {
                self.keep_turns(now);
            }
            self.forget_empty_keys();
        }
        more
    }

    /// Foreign clients have their turn, if it is time for that.
    fn have_their_turn(&mut self, now: u64, pushes: &mut Vec<Message>) -> bool {
        let Some(Shared { after, every, rest, may_wait, turns: Some((turns, since)), .. }) = self.shared
        else {
            return false;
        };
        let is_time = turns >= after || since + every * 1000 <= now;
        if !is_time || rest == 0 || self.fault == Fault::NoTurns {
            return false;
        }
        let first = self.first_live(now);
        if matches!(first, First::Unknown) || !may_wait {
            return false;
        }
        self.free(now, pushes);
        self.revoked = None;
        if let Some(shared) = &mut self.shared {
            (shared.turns, shared.rests_until) = (None, Some(now + rest * 1000));
            self.entries_until = self.entries_until.max(now / 1000 + rest);
        }
        if let First::Is(owner) = first {
            let Entry { client, .. } = self.entries[&owner];
            pushes.push(Message::Due { client, owner, ask_in: rest });
        }
        true
    }

    /// A foreign client takes the lock for so many milliseconds or without end, if it is free; returns whether it was.
    pub(crate) fn taken_by(&mut self, now: u64, foreign: u64, lease: Option<u64>) -> bool {
        self.expire(now);
        let is_free = self.lock.is_none();
        if is_free {
            self.lock = Some((foreign, lease.map_or(ENDLESS, |lease| now / 1000 + lease)));
        }
        is_free
    }
}
