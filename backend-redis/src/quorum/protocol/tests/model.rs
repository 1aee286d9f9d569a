//! One server as its scripts make it, as a model. `differential` holds the scripts against it.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use leasehold_core::clock::Moment;

use super::events::Mutant;
use crate::quorum::protocol::{Recovered, Standing, Ticket, VoteReply};
use crate::quorum::scripts::{Ballot, Looker, Renewed};
use crate::scripts::Script;

/// One name and its namespace. The clock is in microseconds, the ends of keys in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Server {
    /// Which run of the process.
    pub(super) run: u64,
    pub(super) vote: Option<(Ballot, u64)>,
    pub(super) count: Option<Count>,
    /// In the order of their tickets.
    pub(super) waits: BTreeSet<Ticket>,
    pub(super) waits_until: u64,
    pub(super) space: Option<Space>,
    /// How far numbers are noted ahead, in microseconds.
    pub(super) ahead: u64,
    pub(super) mutant: Mutant,
}

/// A request for a vote.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) ballot: Ballot,
    pub(super) ttl: u64,
    pub(super) proposal: u64,
    pub(super) since: u64,
    pub(super) waits: bool,
    /// It may be in the queue.
    pub(super) again: bool,
    pub(super) terms: &'static str,
}

/// The last vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Count {
    pub(super) n: u64,
    pub(super) ballot: Ballot,
    pub(super) since: u64,
    pub(super) until: u64,
}

/// What a server keeps of the namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Space {
    pub(super) run: u64,
    pub(super) floor: u64,
    pub(super) has_another_format: bool,
    pub(super) own: Standing,
}

/// That of a server which knows nothing.
pub(super) fn unknown() -> Standing {
    Standing {
        run: String::new(),
        episode: String::new(),
        whole: false,
        claims: false,
        id: String::new(),
        is_used: false,
        max: 0,
        clock: 0,
        sent_at: Moment::from_nanos(0),
        up_for: Duration::ZERO,
        since: Vec::new(),
        pause: Duration::ZERO,
        terms: String::new(),
        beside: Vec::new(),
    }
}

impl Space {
    /// Whether that `run` knows all votes that it gave, and may give others.
    fn serves(&self, run: u64) -> bool {
        self.own.whole && self.run == run && !self.has_another_format
    }
}

pub(super) const DAY: u64 = 86_400_000;

/// The answer to a request for a vote; `None` by a server that may have forgotten votes.
pub(super) type Voted = Option<VoteReply>;

impl Server {
    /// One that knows nothing, and notes numbers so far `ahead`.
    pub(super) fn new(run: u64, ahead: u64, mutant: Mutant) -> Self {
        let (vote, count, waits, waits_until, space) = (None, None, BTreeSet::new(), 0, None);
        Self { run, vote, count, waits, waits_until, space, ahead, mutant }
    }

    /// Removes the keys that have ended. One that ends now is still there.
    pub(super) fn expire(&mut self, now: u64) {
        let now = now / 1000;
        self.vote = self.vote.filter(|(_, until)| now <= *until);
        self.count = self.count.filter(|count| now <= count.until);
        if self.waits_until < now {
            self.waits.clear();
        }
        if self.waits.is_empty() {
            self.waits_until = 0;
        }
    }

    fn knows(&mut self, n: u64) {
        if let Some(space) = self.space.as_mut().filter(|_| self.mutant != Mutant::NotesNothing) {
            space.own.max = space.own.max.max(n);
        }
    }

    /// A number is kept until its server's clock has passed it by a day, and until a day after `at`.
    fn write(&mut self, n: u64, ballot: Ballot, since: u64, at: u64) {
        self.count = Some(Count { n, ballot, since, until: n.max(at).div_ceil(1000) + DAY });
    }

    /// What a vote by others than the server's terms is refused with.
    pub(super) fn says_of_terms(&self, terms: &str) -> String {
        let known = self.space.as_ref().filter(|space| space.serves(self.run));
        let differs = known.is_some_and(|space| space.own.terms != terms);
        if differs { "other terms" } else { "a vote" }.to_owned()
    }

    pub(super) fn vote(&mut self, now: u64, asked: Asked) -> Voted {
        let Asked { ballot, ttl, proposal, since, waits, again, terms } = asked;
        self.expire(now);
        let is_agreed = |space: &&Space| space.own.terms == terms || self.mutant == Mutant::VotesByAnyTerms;
        let known = self.space.as_ref().filter(|space| space.serves(self.run));
        let known = known.filter(is_agreed);
        let (floor, max) = known.map(|space| (space.floor, space.own.max))?;
        if let Some((by, until)) = self.vote {
            if by.ticket.owner != ballot.ticket.owner {
                let rank = if waits { self.wait(now, ballot.ticket, ttl, until) } else { 0 };
                let left = until - now / 1000 + 1 + (rank * 50).min(500);
                return Some(VoteReply::Held { by: by.ticket, ask_in: Duration::from_millis(left) });
            }
            if by.round > ballot.round {
                return Some(VoteReply::Abstains { ask_in: Duration::ZERO });
            }
        }
        let is_again = self.vote.is_some_and(|(by, _)| by == ballot);
        self.vote = Some((ballot, now / 1000 + ttl));
        let n = match self.count {
            Some(count) if is_again && count.ballot == ballot => count.n,
            count => {
                // The clock stands for what is not remembered.
                let n = count.map_or(now, |count| count.n + 1).max(proposal).max(floor + 1);
                // A proposed number ends by its own value, for which no clock is needed.
                self.write(n, ballot, since, if n == proposal { n } else { now });
                n
            }
        };
        if again {
            self.leave(ballot.ticket);
        }
        // And for a while to come.
        if max < n {
            self.knows(n + self.ahead);
        }
        Some(VoteReply::Voted { n })
    }

    /// Its place in the queue.
    fn wait(&mut self, now: u64, ticket: Ticket, ttl: u64, until: u64) -> u64 {
        self.waits.insert(ticket);
        self.waits_until = self.waits_until.max(now / 1000 + ttl).max(until + ttl);
        self.waits.iter().take_while(|other| **other != ticket).count() as u64
    }

    fn leave(&mut self, ticket: Ticket) {
        self.waits.remove(&ticket);
        if self.waits.is_empty() {
            self.waits_until = 0;
        }
    }

    pub(super) fn confirm(
        &mut self,
        now: u64,
        ballot: Ballot,
        ttl: u64,
        (number, token): (u64, u64),
    ) -> bool {
        self.expire(now);
        if self.mutant == Mutant::NoConfirm {
            return true;
        }
        // It may have been asked for that before.
        let Some(since) = self.since(ballot, number..=token).filter(|_| self.extends()) else {
            return false;
        };
        self.vote = Some((ballot, now / 1000 + ttl));
        self.write(token, ballot, since, now);
        self.knows(token);
        true
    }

    /// When that very vote was given, if it is still there.
    fn since(&self, ballot: Ballot, numbers: RangeInclusive<u64>) -> Option<u64> {
        let count = self.count.filter(|count| count.ballot == ballot && numbers.contains(&count.n))?;
        self.vote.filter(|(by, _)| *by == ballot).map(|_| count.since)
    }

    /// Whether it knows all its votes, so that it gave no other.
    fn extends(&self) -> bool {
        let serves = |space: &Space| space.serves(self.run);
        self.mutant == Mutant::ExtendsWhilePausing || self.space.as_ref().is_some_and(serves)
    }

    pub(super) fn renew(&mut self, now: u64, ballot: Ballot, ttl: u64, number: u64) -> Renewed {
        self.expire(now);
        if self.mutant == Mutant::RenewsWhatIsGone && self.vote.is_none() {
            let terms = "0";
            let asked = Asked { ballot, ttl, proposal: 0, since: now, waits: false, again: false, terms };
            return match self.vote(now, asked) {
                Some(VoteReply::Voted { .. }) => Renewed::Kept,
                _ => Renewed::Gone,
            };
        }
        let again = self.mutant == Mutant::RenewsWhatIsGone && self.vote.is_some_and(|(by, _)| by == ballot);
        if !again && self.since(ballot, number..=number).is_none() {
            return Renewed::Gone;
        }
        if !self.extends() {
            return Renewed::Pauses;
        }
        self.vote = Some((ballot, now / 1000 + ttl));
        if let Some(count) = self.count.as_mut().filter(|count| count.until < now / 1000 + 2 * ttl) {
            count.until = now / 1000 + DAY;
        }
        Renewed::Kept
    }

    /// Ends what the owner has, up to a round; one that `waits` stays in the queue. Returns whether it had the vote, and the waiter
    /// that receives the message.
    pub(super) fn release(
        &mut self,
        now: u64,
        ballot: Ballot,
        ttl: u64,
        waits: bool,
        hears: impl Fn(Ticket) -> bool,
    ) -> (bool, Option<Ticket>) {
        self.expire(now);
        let later = self.mutant == Mutant::GivesBackLaterRounds;
        let had = self.vote.is_some_and(|(by, _)| {
            by.ticket.owner == ballot.ticket.owner && (later || by.round <= ballot.round)
        });
        self.leave(ballot.ticket);
        if had {
            self.vote = None;
        }
        // The owner that leaves may have received the message.
        let is_free = had || !waits && self.vote.is_none();
        let told = if is_free { self.wake(hears) } else { None };
        if waits {
            self.wait(now, ballot.ticket, ttl, now / 1000);
        }
        (had, told)
    }

    /// The first waiter that listens.
    fn wake(&mut self, hears: impl Fn(Ticket) -> bool) -> Option<Ticket> {
        while let Some(first) = self.waits.first().copied() {
            // One that asks again is in the queue again.
            self.leave(first);
            if hears(first) {
                return Some(first);
            }
        }
        None
    }

    /// What the server knows of itself, in its run.
    pub(super) fn admit(&mut self, now: u64, looker: &Looker<'_>) -> Standing {
        self.expire(now);
        let begun = Space { run: 0, floor: 0, has_another_format: false, own: unknown() };
        let space = self.space.get_or_insert(begun);
        let own = &mut space.own;
        if space.run != self.run || !own.whole && own.episode.is_empty() {
            (own.claims, own.whole, space.run) = (own.whole || own.claims, false, self.run);
            (own.run, own.pause, own.since) = (self.run.to_string(), Duration::ZERO, Vec::new());
            let of_run = self.mutant == Mutant::RunIsEpisode;
            own.episode = if of_run { self.run.to_string() } else { looker.episode.to_hex() };
        } else if let (false, Some(met)) = (own.whole, looker.met)
            && met.episode == own.episode
        {
            if met.since == own.since {
                own.since.clone_from(&met.clocks);
            }
            own.is_used |= met.is_used;
        }
        own.claims &= !looker.has_followed || self.mutant == Mutant::ForgetsDistrust;
        if !own.whole {
            let is_firm = !own.id.is_empty() && self.mutant != Mutant::ProposesFirmTerms;
            let is_first = !is_firm && Script::hash_of(looker.terms) < Script::hash_of(&own.terms);
            let is_better = own.pause.is_zero() && (!looker.pause.is_zero() || is_first);
            if own.terms.is_empty() || is_better && self.mutant != Mutant::FirstTermsStay {
                looker.terms.clone_into(&mut own.terms);
            }
            own.pause = own.pause.max(looker.pause);
        }
        self.standing(now)
    }

    pub(super) fn standing(&self, now: u64) -> Standing {
        let own = self.space.as_ref().map(|space| space.own.clone());
        Standing { clock: now, ..own.unwrap_or_else(unknown) }
    }

    /// What a blank server may have forgotten; nothing if it is not blank, or not as it was seen.
    pub(super) fn install(&mut self, found: &Standing, told: &Recovered, terms: &str) -> bool {
        let is_as_found = |own: &Standing| {
            let found_alike =
                (&own.episode, &own.terms, own.pause) == (&found.episode, &found.terms, found.pause);
            found_alike && !own.episode.is_empty() && !own.whole
        };
        let Some(space) = self.space.as_mut().filter(|space| is_as_found(&space.own)) else { return false };
        let own = &mut space.own;
        (own.whole, own.is_used, own.claims, space.floor) = (true, true, false, told.floor);
        own.max = own.max.max(told.floor);
        own.beside.clone_from(&told.beside);
        terms.clone_into(&mut own.terms);
        if told.is_copy || own.id.is_empty() {
            own.id.clone_from(&own.episode);
        }
        true
    }
}
