//! The requests that a session releases entries, with their deadlines; pure.
//!
//! A message may arrive before its entry is known to exist, and after the entry is deleted.
//!
//! # Invariants
//! - **etcd.revocation-1** Of all requests for an entry the earliest deadline counts, from the moment when it was
//!   received: it stays the same if the request is received again, or the entry held only later.
//! - **etcd.revocation-2** A request that concerns no own entry, present or to come, does not stay.

use std::collections::HashMap;
use std::time::Duration;

use leasehold_core::clock::Moment;

use super::Revision;

#[derive(Debug, Default)]
pub(crate) struct RevokeRequests(HashMap<Revision, RevokeRequest>);

#[derive(Clone, Copy, Debug)]
struct RevokeRequest {
    heard_at: Moment,
    until: Moment,
}

impl RevokeRequests {
    /// Notes a request for the entry created at `create`; whether it shortens the deadline.
    pub(crate) fn heard(&mut self, create: Revision, grace: Duration, now: Moment) -> bool {
        let (until, before) = (now + grace, self.0.get(&create));
        let is_news = before.is_none_or(|before| until < before.until);
        if is_news {
            let heard_at = before.map_or(now, |before| before.heard_at);
            self.0.insert(create, RevokeRequest { heard_at, until });
        }
        is_news
    }

    /// The grace that is left for an entry, if its release was requested.
    pub(crate) fn within(&self, create: Revision, now: Moment) -> Option<Duration> {
        self.0.get(&create).map(|request| request.until.since(now))
    }

    pub(crate) fn forget(&mut self, create: Revision) {
        self.0.remove(&create);
    }

    /// The inbox was read, at `read_at` or later: requests from before that are not there any more are withdrawn.
    pub(crate) fn keep(&mut self, read_at: Moment, is_there: impl Fn(Revision) -> bool) {
        self.0.retain(|create, request| is_there(*create) || read_at <= request.heard_at);
    }

    /// The requests for entries that will not be seen any more: not known, and received before the oldest acquisition
    /// began whose entry may exist without being known.
    pub(crate) fn gone(
        &self,
        is_known: impl Fn(Revision) -> bool,
        oldest_unknown: Option<Moment>,
    ) -> Vec<Revision> {
        let is_gone = |(create, request): (&Revision, &RevokeRequest)| {
            let is_over = !is_known(*create) && oldest_unknown.is_none_or(|began| request.heard_at < began);
            is_over.then_some(*create)
        };
        self.0.iter().filter_map(is_gone).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Moment {
        Moment::from_nanos(0) + span(secs)
    }

    fn span(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn a_grace_counts_from_hearing() {
        let mut asked = RevokeRequests::default();
        assert!(asked.heard(7, span(10), at(100)));
        for (now, left) in [(100, 10), (104, 6), (110, 0), (200, 0)] {
            assert_eq!(asked.within(7, at(now)), Some(span(left)), "at {now}");
        }
        assert_eq!(asked.within(8, at(100)), None);
    }

    /// Neither a longer grace nor the same message again gives more time.
    #[test]
    fn the_earliest_end_counts() {
        let mut asked = RevokeRequests::default();
        asked.heard(7, span(10), at(100));
        for (grace, now, is_news, left) in [
            (10, 100, false, 10),
            (10, 105, false, 5),
            (60, 106, false, 4),
            (2, 107, true, 2),
            (0, 108, true, 0),
        ] {
            assert_eq!(asked.heard(7, span(grace), at(now)), is_news, "{grace} at {now}");
            assert_eq!(asked.within(7, at(now)), Some(span(left)), "at {now}");
        }
    }

    #[test]
    fn missing_entry_is_forgotten() {
        let mut asked = RevokeRequests::default();
        for create in [7, 8, 9] {
            asked.heard(create, span(10), at(100));
        }
        asked.heard(6, span(10), at(101));
        asked.forget(7);
        asked.keep(at(101), |create| create == 9);
        for create in [7, 8] {
            assert_eq!(asked.within(create, at(100)), None, "{create}");
        }
        assert_eq!(asked.within(6, at(101)), Some(span(10)), "it came after the inbox was read");
        assert_eq!(asked.within(9, at(100)), Some(span(10)));
        assert!(asked.heard(7, span(60), at(100)));
        assert_eq!(asked.within(7, at(100)), Some(span(60)));
    }

    /// etcd.revocation-2
    #[test]
    fn messages_to_nobody_are_found() {
        let mut asked = RevokeRequests::default();
        asked.heard(7, span(10), at(100));
        asked.heard(8, span(10), at(100));
        let known = |create| create == 8;
        for (oldest_unknown, gone) in
            [(None, vec![7]), (Some(at(99)), vec![]), (Some(at(100)), vec![]), (Some(at(101)), vec![7])]
        {
            assert_eq!(asked.gone(known, oldest_unknown), gone, "{oldest_unknown:?}");
        }
        // Received again, it keeps its first time.
        asked.heard(7, span(10), at(105));
        assert_eq!(asked.gone(known, Some(at(101))), [7]);
    }
}
