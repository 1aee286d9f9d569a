//! The number to propose, so that servers whose clocks and counters differ agree at once.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::LockName;
use leasehold_core::clock::Moment;

/// The last known clocks and counters of the servers. A wrong one costs a round trip.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ProposalBound {
    /// Of each server a time, and when it was so.
    clocks: Vec<Option<(Moment, u64)>>,
    /// Of all names whose numbers are near the clocks.
    largest: u64,
    /// Of the names whose numbers are far ahead, so that a clock that was wrong for a moment moves no other name.
    ahead: BTreeMap<LockName, u64>,
}

impl ProposalBound {
    /// A server has answered a request of `sent_at` with its time in microseconds.
    pub(crate) fn learn_time(&mut self, server: usize, now: Moment, sent_at: Moment, micros: u64) {
        if self.clocks.len() <= server {
            self.clocks.resize(server + 1, None);
        }
        // It was read some time in between.
        self.clocks[server] = Some((now, micros.saturating_add(as_micros(now.since(sent_at)))));
    }

    /// A server has counted that far for `name`.
    pub(crate) fn learn_number(&mut self, now: Moment, name: &LockName, n: u64) {
        if n <= self.largest {
            return;
        }
        let near = self.time(now).unwrap_or(0).saturating_add(APART);
        if n <= near {
            self.largest = n;
            return;
        }
        if self.ahead.len() >= MOST {
            self.ahead.clear();
        }
        let largest = self.ahead.entry(name.clone()).or_default();
        *largest = n.max(*largest);
    }

    /// The time of the server whose clock is furthest ahead, in microseconds, among clocks that are not far from the median.
    pub(crate) fn time(&self, now: Moment) -> Option<u64> {
        let time = |(at, micros): &(Moment, u64)| micros.saturating_add(as_micros(now.since(*at)));
        furthest(self.clocks.iter().flatten().map(time))
    }

    /// A number that no server will have reached for `name` within `lead` from now.
    pub(crate) fn proposal(&self, now: Moment, name: &LockName, lead: Duration) -> u64 {
        let time = self.time(now).map_or(0, |time| time.saturating_add(as_micros(lead)));
        let largest = self.ahead.get(name).map_or(self.largest, |ahead| self.largest.max(*ahead));
        time.max(largest.saturating_add(1))
    }
}

/// The clock that is furthest ahead among clocks that are not far from the median.
pub(super) fn furthest(clocks: impl Iterator<Item = u64>) -> Option<u64> {
    let mut clocks: Vec<_> = clocks.collect();
    clocks.sort_unstable();
    let most = clocks.get(clocks.len().checked_sub(1)? / 2)?.saturating_add(APART);
    clocks.into_iter().rfind(|clock| *clock <= most)
}

fn as_micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// In microseconds: further apart than clocks that are kept in time.
const APART: u64 = 60_000_000;
/// More names than are used again soon; a forgotten one costs a round trip.
const MOST: usize = 4_096;
