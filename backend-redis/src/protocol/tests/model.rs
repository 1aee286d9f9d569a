//! The scripts and the network, as a model.

use std::collections::BTreeSet;
use std::time::Duration;

use super::TTL;
use crate::protocol::Answer;

pub(super) type Owner = u64;

/// The scripts, on a clock in milliseconds.
#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) lock: Option<(Owner, u64)>,
    pub(super) queue: Vec<(Owner, usize, u64)>,
    pub(super) counter: u64,
    pub(super) granted_to: Owner,
    /// The holder was told by a message.
    pub(super) handed_on: bool,
    pub(super) short_hand_on: bool,
    pub(super) released: BTreeSet<Owner>,
}

impl Server {
    pub(super) fn expire(&mut self, now: u64) {
        self.lock = self.lock.filter(|(_, until)| *until > now);
        // A queue's key ends with its last entry.
        if self.queue.iter().all(|(_, _, until)| *until <= now) {
            self.queue.clear();
        }
    }

    pub(super) fn count(&mut self, owner: Owner) -> u64 {
        (self.counter, self.granted_to) = (self.counter + 1, owner);
        self.counter
    }

    pub(super) fn hand_on(&mut self, now: u64, pushes: &mut Vec<Message>) {
        while self.lock.is_none() && !self.queue.is_empty() {
            let (owner, client, until) = self.queue.remove(0);
            if until > now {
                let lease = if self.short_hand_on { TTL / 6 } else { (until - now).max(TTL / 6) };
                (self.lock, self.handed_on) = (Some((owner, now + lease)), true);
                let counter = self.count(owner);
                pushes.push(Message::Push { client, owner, counter });
            }
        }
    }

    pub(super) fn holds(&mut self, owner: Owner, now: u64) -> Answer {
        self.lock = Some((owner, now + TTL));
        let counter = if self.granted_to == owner { self.counter } else { self.count(owner) };
        Answer::Holds { counter }
    }

    pub(super) fn has(&self, owner: Owner) -> bool {
        self.lock.is_some_and(|(holder, _)| holder == owner)
            || self.queue.iter().any(|entry| entry.0 == owner)
    }

    pub(super) fn waits(&self, now: u64) -> Answer {
        let lease_left = self.lock.map(|(_, until)| Duration::from_millis(until - now));
        Answer::Waits { seen: self.counter, lease_left }
    }

    pub(super) fn acquire(
        &mut self,
        now: u64,
        owner: Owner,
        client: usize,
        pushes: &mut Vec<Message>,
    ) -> Answer {
        self.expire(now);
        if self.lock.is_none() {
            self.queue.retain(|(_, _, until)| *until > now);
            if self.queue.first().is_none_or(|(first, ..)| *first == owner) {
                self.queue.retain(|(waiting, ..)| *waiting != owner);
                (self.lock, self.handed_on) = (Some((owner, now)), false);
            }
            self.hand_on(now, pushes);
        }
        if self.lock.is_some_and(|(holder, _)| holder == owner) {
            return self.holds(owner, now);
        }
        match self.queue.iter_mut().find(|(waiting, ..)| *waiting == owner) {
            Some((.., until)) => *until = now + TTL,
            None => self.queue.push((owner, client, now + TTL)),
        }
        self.waits(now)
    }

    pub(super) fn refresh(&mut self, now: u64, owner: Owner, pushes: &mut Vec<Message>) -> Answer {
        self.expire(now);
        self.hand_on(now, pushes);
        if self.lock.is_some_and(|(holder, _)| holder == owner) {
            return self.holds(owner, now);
        }
        let entry = self.queue.iter_mut().find(|(waiting, ..)| *waiting == owner);
        match entry.filter(|(.., until)| *until > now) {
            Some((.., until)) => {
                *until = now + TTL;
                self.waits(now)
            }
            None => {
                self.queue.retain(|(waiting, ..)| *waiting != owner);
                Answer::Gone
            }
        }
    }

    pub(super) fn release(&mut self, now: u64, owner: Owner, pushes: &mut Vec<Message>) {
        self.expire(now);
        self.released.insert(owner);
        self.queue.retain(|(waiting, ..)| *waiting != owner);
        self.lock = self.lock.filter(|(holder, _)| *holder != owner);
        self.hand_on(now, pushes);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Acquire,
    Refresh,
    Release,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Message {
    Request { client: usize, owner: Owner, request: Request, sent_at: u64 },
    Reply { client: usize, owner: Owner, answer: Answer, sent_at: u64 },
    Released { client: usize, owner: Owner },
    Push { client: usize, owner: Owner, counter: u64 },
}

impl Message {
    pub(super) fn client(&self) -> usize {
        match self {
            Self::Request { client, .. }
            | Self::Reply { client, .. }
            | Self::Released { client, .. }
            | Self::Push { client, .. } => *client,
        }
    }

    pub(super) fn is_request(&self) -> bool {
        matches!(self, Self::Request { .. })
    }
}
