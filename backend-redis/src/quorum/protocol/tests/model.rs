//! One server as its scripts make it, as a model. `differential` holds the scripts against it.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use leasehold_core::clock::Moment;

use crate::quorum::protocol::{Answer, Clock, Recovered, Standing, Ticket};
use crate::quorum::scripts::{Ballot, Looker, Renewed};
use crate::scripts::{Script, millis};

/// One name and its namespace. The clock is in microseconds, the ends of keys in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::quorum) struct Server {
    /// Which run of the process.
    pub(in crate::quorum) run: u64,
    pub(in crate::quorum) vote: Option<(Ballot, u64)>,
    pub(in crate::quorum) count: Option<Count>,
    /// In the order of their tickets.
    pub(in crate::quorum) waits: BTreeSet<Ticket>,
    pub(in crate::quorum) waits_until: u64,
    pub(in crate::quorum) space: Option<Space>,
    /// How far numbers are noted ahead, in microseconds.
    pub(in crate::quorum) ahead: u64,
    pub(in crate::quorum) fault: Fault,
}

/// A request for a vote.
#[derive(Clone, Copy, Debug)]
pub(in crate::quorum) struct Asked {
    pub(in crate::quorum) ballot: Ballot,
    pub(in crate::quorum) ttl: u64,
    pub(in crate::quorum) proposal: u64,
    pub(in crate::quorum) since: u64,
    pub(in crate::quorum) waits: bool,
    /// It may have a place among those who wait.
    pub(in crate::quorum) again: bool,
    pub(in crate::quorum) terms: &'static str,
}

/// The last vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::quorum) struct Count {
    pub(in crate::quorum) n: u64,
    pub(in crate::quorum) ballot: Ballot,
    pub(in crate::quorum) since: u64,
    pub(in crate::quorum) until: u64,
}

/// What a server keeps of the namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::quorum) struct Space {
    pub(in crate::quorum) run: u64,
    pub(in crate::quorum) episode: String,
    pub(in crate::quorum) whole: bool,
    pub(in crate::quorum) floor: u64,
    /// No number is above it.
    pub(in crate::quorum) max: u64,
    /// The episodes that were blank beside its own.
    pub(in crate::quorum) beside: Vec<String>,
    /// What the clocks were when it was first met.
    pub(in crate::quorum) since: Vec<Clock>,
    /// It was whole in an earlier run.
    pub(in crate::quorum) claims: bool,
    pub(in crate::quorum) pause: u64,
    pub(in crate::quorum) terms: String,
    pub(in crate::quorum) id: String,
    /// It was told something once, or met beside one that was.
    pub(in crate::quorum) is_used: bool,
    pub(in crate::quorum) has_another_format: bool,
}

impl Space {
    /// Whether that `run` knows all votes that it gave, and may give others.
    fn serves(&self, run: u64) -> bool {
        self.whole && self.run == run && !self.has_another_format
    }
}

/// What the scripts do wrong, if anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::quorum) enum Fault {
    None,
    /// A confirmation is answered, and writes nothing.
    ConfirmsNothing,
    /// A renewal votes again where the vote is gone.
    RenewsWhatIsGone,
    /// Giving back an earlier round ends a later one's vote.
    GivesBackLaterRounds,
    /// A number is noted by nobody but the name that it is of.
    NotesNothing,
    /// What came up with the data is renewed and confirmed while the server pauses.
    ExtendsWhilePausing,
    /// A process has one episode, however often it is emptied.
    RunIsEpisode,
    /// That a server has followed another one is not kept.
    ForgetsDistrust,
    /// The terms of whoever opened first stay, in each server.
    FirstTermsStay,
    VotesByAnyTerms,
    /// The terms of a server that was told something are only proposed once it came up again.
    ProposesFirmTerms,
}

pub(in crate::quorum) const DAY: u64 = 86_400_000;

/// What a request for a vote is answered; `None` by a server that does not know yet what it may have forgotten.
pub(in crate::quorum) type Voted = Option<Answer>;

impl Server {
    /// One that knows nothing, and notes numbers so far `ahead`.
    pub(in crate::quorum) fn new(run: u64, ahead: u64, fault: Fault) -> Self {
        let (vote, count, waits, waits_until, space) = (None, None, BTreeSet::new(), 0, None);
        Self { run, vote, count, waits, waits_until, space, ahead, fault }
    }

    /// Removes the keys that have ended. One that ends now is still there.
    pub(in crate::quorum) fn expire(&mut self, now: u64) {
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
        if let Some(space) = self.space.as_mut().filter(|_| self.fault != Fault::NotesNothing) {
            space.max = space.max.max(n);
        }
    }

    /// A number is kept until its server's clock has passed it by a day, and until a day after `at`.
    fn write(&mut self, n: u64, ballot: Ballot, since: u64, at: u64) {
        self.count = Some(Count { n, ballot, since, until: n.max(at).div_ceil(1000) + DAY });
    }

    /// What a vote by others than the server's terms is refused with.
    pub(in crate::quorum) fn says_of_terms(&self, terms: &str) -> String {
        let known = self.space.as_ref().filter(|space| space.serves(self.run));
        let differs = known.is_some_and(|space| space.terms != terms);
        if differs { "other terms" } else { "a vote" }.to_owned()
    }

    pub(in crate::quorum) fn vote(&mut self, now: u64, asked: Asked) -> Voted {
        let Asked { ballot, ttl, proposal, since, waits, again, terms } = asked;
        self.expire(now);
        let is_agreed = |space: &&Space| space.terms == terms || self.fault == Fault::VotesByAnyTerms;
        let known = self.space.as_ref().filter(|space| space.serves(self.run));
        let known = known.filter(is_agreed);
        let (floor, max) = known.map(|space| (space.floor, space.max))?;
        if let Some((by, until)) = self.vote {
            if by.ticket.owner != ballot.ticket.owner {
                let rank = if waits { self.wait(now, ballot.ticket, ttl, until) } else { 0 };
                let left = until - now / 1000 + 1 + (rank * 50).min(500);
                return Some(Answer::Held { by: by.ticket, ask_in: Duration::from_millis(left) });
            }
            if by.round > ballot.round {
                return Some(Answer::Abstains { ask_in: Duration::ZERO });
            }
        }
        let is_again = self.vote.is_some_and(|(by, _)| by == ballot);
        self.vote = Some((ballot, now / 1000 + ttl));
        let n = match self.count {
            Some(count) if is_again && count.ballot == ballot => count.n,
            count => {
                // The clock stands for what is not remembered.
                let n = count.map_or(now, |count| count.n + 1).max(proposal).max(floor + 1);
                // What was proposed ends by its own value, for which no clock is needed.
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
        Some(Answer::Voted { n })
    }

    /// Its place among those who wait.
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

    pub(in crate::quorum) fn confirm(
        &mut self,
        now: u64,
        ballot: Ballot,
        ttl: u64,
        (number, token): (u64, u64),
    ) -> bool {
        self.expire(now);
        if self.fault == Fault::ConfirmsNothing {
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

    /// Whether it knows all that it did, so that nobody else was voted for.
    fn extends(&self) -> bool {
        let serves = |space: &Space| space.serves(self.run);
        self.fault == Fault::ExtendsWhilePausing || self.space.as_ref().is_some_and(serves)
    }

    pub(in crate::quorum) fn renew(&mut self, now: u64, ballot: Ballot, ttl: u64, number: u64) -> Renewed {
        self.expire(now);
        if self.fault == Fault::RenewsWhatIsGone && self.vote.is_none() {
            let terms = "0";
            let asked = Asked { ballot, ttl, proposal: 0, since: now, waits: false, again: false, terms };
            return match self.vote(now, asked) {
                Some(Answer::Voted { .. }) => Renewed::Kept,
                _ => Renewed::Gone,
            };
        }
        let again = self.fault == Fault::RenewsWhatIsGone && self.vote.is_some_and(|(by, _)| by == ballot);
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

    /// Ends what `ticket`'s owner has, up to a round, and stays among those who wait if it `waits`; whether it had the vote, and who is told
    /// that the server votes again.
    pub(in crate::quorum) fn release(
        &mut self,
        now: u64,
        ballot: Ballot,
        ttl: u64,
        waits: bool,
        hears: impl Fn(Ticket) -> bool,
    ) -> (bool, Option<Ticket>) {
        self.expire(now);
        let later = self.fault == Fault::GivesBackLaterRounds;
        let had = self.vote.is_some_and(|(by, _)| {
            by.ticket.owner == ballot.ticket.owner && (later || by.round <= ballot.round)
        });
        self.leave(ballot.ticket);
        if had {
            self.vote = None;
        }
        // Whoever was told so may be the one who leaves.
        let is_free = had || !waits && self.vote.is_none();
        let told = if is_free { self.wake(hears) } else { None };
        if waits {
            self.wait(now, ballot.ticket, ttl, now / 1000);
        }
        (had, told)
    }

    /// The first of those who wait that is there.
    fn wake(&mut self, hears: impl Fn(Ticket) -> bool) -> Option<Ticket> {
        while let Some(first) = self.waits.first().copied() {
            // Whoever asks again has a place.
            self.leave(first);
            if hears(first) {
                return Some(first);
            }
        }
        None
    }

    /// What the server knows of itself, in its run.
    pub(in crate::quorum) fn admit(&mut self, now: u64, looker: &Looker<'_>) -> Standing {
        self.expire(now);
        let space = self.space.get_or_insert_default();
        if space.run != self.run || !space.whole && space.episode.is_empty() {
            (space.claims, space.whole) = (space.whole || space.claims, false);
            (space.run, space.pause, space.since) = (self.run, 0, Vec::new());
            let of_run = self.fault == Fault::RunIsEpisode;
            space.episode = if of_run { self.run.to_string() } else { looker.episode.to_hex() };
        } else if let (false, Some(met)) = (space.whole, looker.met)
            && met.episode == space.episode
        {
            if met.since == space.since {
                space.since.clone_from(&met.clocks);
            }
            space.is_used |= met.is_used;
        }
        space.claims &= !looker.has_followed || self.fault == Fault::ForgetsDistrust;
        if !space.whole {
            let is_firm = !space.id.is_empty() && self.fault != Fault::ProposesFirmTerms;
            let is_first = !is_firm && Script::hash_of(looker.terms) < Script::hash_of(&space.terms);
            let is_better = space.pause == 0 && (!looker.pause.is_zero() || is_first);
            if space.terms.is_empty() || is_better && self.fault != Fault::FirstTermsStay {
                looker.terms.clone_into(&mut space.terms);
            }
            space.pause = space.pause.max(millis(looker.pause));
        }
        self.standing(now)
    }

    pub(in crate::quorum) fn standing(&self, now: u64) -> Standing {
        let space = self.space.clone().unwrap_or_default();
        Standing {
            run: space.run.to_string(),
            episode: space.episode,
            whole: space.whole,
            claims: space.claims,
            id: space.id,
            is_used: space.is_used,
            max: space.max,
            clock: now,
            sent_at: Moment::from_nanos(0),
            up_for: Duration::ZERO,
            since: space.since,
            pause: Duration::from_millis(space.pause),
            terms: space.terms,
            beside: space.beside,
        }
    }

    /// What a blank server may have forgotten; nothing if it is not blank, or not as it was seen.
    pub(in crate::quorum) fn install(&mut self, own: &Standing, told: &Recovered, terms: &str) -> bool {
        match &mut self.space {
            Some(space)
                if space.episode == own.episode
                    && !space.episode.is_empty()
                    && !space.whole
                    && space.terms == own.terms
                    && space.pause == millis(own.pause) =>
            {
                (space.whole, space.is_used, space.claims, space.floor) = (true, true, false, told.floor);
                space.max = space.max.max(told.floor);
                space.beside.clone_from(&told.beside);
                terms.clone_into(&mut space.terms);
                if told.is_copy || space.id.is_empty() {
                    space.id.clone_from(&space.episode);
                }
                true
            }
            _ => false,
        }
    }
}
