//! By which servers a slot of a cluster was served for a session, and which of them may go on (redis.slots-2, redis.slots-3).

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::Moment;

use crate::config::Address;

/// By which server a slot was served last.
#[derive(Clone, Debug)]
pub(super) struct Served {
    pub(super) server: Address,
    pub(super) reign: Arc<str>,
    /// Since when the slot is there, by the clock of the server.
    pub(super) since: u64,
    /// For how long it was there by the same clock, when that was answered.
    pub(super) age: Duration,
    /// When the last request was sent that has shown that.
    pub(super) sent_at: Moment,
    /// Until when a primary before the first reign may go on.
    pub(super) lag_end: Moment,
    pub(super) pause_end: Moment,
    /// Earlier reigns, whose servers have not refused the slot yet.
    pub(super) left: Vec<Left>,
}

/// A reign that the session has left, and that may go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub(super) reign: Arc<str>,
    /// As of [`Served`].
    pub(super) since: u64,
    pub(super) left_at: Moment,
    /// Until when the session does not go back to it.
    pub(super) until: Moment,
    /// Until when the session takes it to go on.
    pub(super) lag_end: Moment,
}

impl Served {
    /// The session comes to `next`; and what it has left, if that may go on.
    pub(super) fn followed(self, mut next: Self, now: Moment, left_until: Moment) -> (Self, Option<Left>) {
        let lag_end = next.lag_end;
        let may_go_on = self.reign != next.reign && now < lag_end.max(self.lag_end());
        let Self { reign, since, .. } = self;
        let left = may_go_on.then_some(Left { reign, since, left_at: now, until: left_until, lag_end });
        next.sent_at = next.sent_at.max(self.sent_at);
        // A primary before that one may go on, however long this server is there.
        (next.lag_end, next.left) = (self.lag_end, self.left);
        // One that has the slot anew has given it away before.
        next.left.retain(|left| now < left.until && left.reign != next.reign);
        next.left.extend(left.clone());
        (next, left)
    }

    /// Until when a primary before may go on, and nothing is granted.
    pub(super) fn lag_end(&self) -> Moment {
        self.left.iter().map(|left| left.lag_end).fold(self.lag_end, Moment::max)
    }

    /// Whether the session does not come to `next` now.
    pub(super) fn bars(&self, next: &Self, now: Moment) -> bool {
        self.has_left(next, now) || !self.is_at(&next.reign, next.since) && next.sent_at < self.sent_at
    }

    /// Whether that was left, and the slot did not come there anew since.
    fn has_left(&self, next: &Self, now: Moment) -> bool {
        self.left.iter().any(|left| left.reign == next.reign && now < left.until && !left.is_anew(next))
    }

    /// Whether the slot was served there last, and was nowhere else since then.
    pub(super) fn is_at(&self, reign: &str, since: u64) -> bool {
        &*self.reign == reign && self.since == since
    }
}

impl Left {
    /// Whether the slot came back since it was left: that begins its origin anew. It may have been elsewhere and back before
    /// that, too, unseen by the session; then the origin is later than known, and older than the absence. Two spans are
    /// compared, as the clocks differ.
    fn is_anew(&self, next: &Served) -> bool {
        next.since > self.since && next.age < next.sent_at.since(self.left_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Moment {
        Moment::from_nanos(second * 1_000_000_000)
    }

    fn served(reign: &str, lag_end: u64) -> Served {
        let (server, reign) = (Address::Tcp { host: "a".to_owned(), port: 1 }, reign.into());
        let (lag_end, pause_end) = (at(lag_end), at(90));
        let (age, sent_at, left) = (Duration::from_secs(15), at(9), Vec::new());
        Served { server, reign, since: 1, age, sent_at, lag_end, pause_end, left }
    }

    /// The word of the server before lifts the lag of a move, and not the lag of a promotion before. Without it the session does
    /// not go back within the lag.
    #[test]
    fn lag_is_lifted_by_the_word_of_the_server_before() {
        let (now, until) = (at(10), at(27));
        let follow = |before: Served| {
            let (mut next, left) = before.followed(served("b", 20), now, until);
            let lag_end = next.lag_end();
            let unheard = next.clone();
            next.left.retain(|other| Some(other) != left.as_ref());
            (lag_end, next.lag_end(), unheard)
        };
        for (before, unheard, heard) in [
            (served("a", 5), 20, 5),
            (served("a", 15), 20, 15),
            // This server is there for longer than the lag before lasts.
            (served("a", 25), 25, 25),
            (served("b", 5), 5, 5),
        ] {
            let (lag_end, lifted, next) = follow(before.clone());
            assert_eq!((lag_end, lifted), (at(unheard), at(heard)), "{before:?}");
            let is_left = *before.reign != *next.reign;
            let former = served("a", 5);
            assert_eq!((next.has_left(&former, now), next.has_left(&former, until)), (is_left, false));
        }
        let (.., left) = follow(served("a", 5));
        // A late answer of another server is not believed, nor one from before the slot came back.
        let late = |reign, since| Served { since, sent_at: at(8), ..served(reign, 5) };
        assert!(left.bars(&late("c", 1), until) && !left.bars(&served("c", 5), until));
        assert!(left.bars(&late("b", 2), until) && !left.bars(&late("b", 1), until));
        // Later ones remember it, until the slot is there anew.
        let (third, _) = left.followed(served("c", 30), at(26), at(40));
        assert!(third.bars(&served("a", 5), at(26)) && third.lag_end() == at(30));
        let later = |sent_at| Served { since: 2, sent_at: at(sent_at), ..served("a", 5) };
        // It was left at 10 s, and was elsewhere and back before that.
        assert!(third.bars(&later(25), at(26)));
        let anew = later(26);
        assert!(!third.bars(&anew, at(26)));
        let (back, _) = third.followed(anew, at(26), at(40));
        assert!(!back.has_left(&served("a", 5), at(26)) && back.has_left(&served("c", 5), at(26)));
    }
}
