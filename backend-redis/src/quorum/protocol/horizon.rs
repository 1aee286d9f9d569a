//! What number to propose, so that servers whose clocks and counters differ agree at once.

use std::time::Duration;

use leasehold_core::clock::Moment;

/// The latest that was heard of the servers' clocks and counters. A wrong one costs a round trip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Horizon {
    /// A time, and when it was so.
    clock: Option<(Moment, u64)>,
    largest: u64,
}

impl Horizon {
    /// A server has answered, to what was sent at `sent_at`, with its time in microseconds.
    pub(crate) fn heard_time(&mut self, now: Moment, sent_at: Moment, micros: u64) {
        // It was written some time in between.
        let latest = micros.saturating_add(as_micros(now.since(sent_at)));
        if self.time(now).is_none_or(|time| time < latest) {
            self.clock = Some((now, latest));
        }
    }

    /// A server has counted that far.
    pub(crate) fn heard_number(&mut self, n: u64) {
        self.largest = self.largest.max(n);
    }

    /// The time of the server whose clock is furthest ahead, in microseconds.
    pub(crate) fn time(&self, now: Moment) -> Option<u64> {
        self.clock.map(|(at, micros)| micros.saturating_add(as_micros(now.since(at))))
    }

    /// What no server will have reached when it is asked, within `lead` from now.
    pub(crate) fn proposal(&self, now: Moment, lead: Duration) -> u64 {
        let time = self.time(now).map_or(0, |time| time.saturating_add(as_micros(lead)));
        time.max(self.largest.saturating_add(1))
    }
}

fn as_micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
