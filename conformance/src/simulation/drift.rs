//! A clock that runs at a rate of its own, and timers that can stand still.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use lockcore::clock::{Clock, Deadline, Moment};

use crate::network::Switch;

/// The clock of one process: another one that runs faster or slower than it should (A1).
///
/// Its timers stand still after [`stop`](Self::stop), as those of a stopped process, while the
/// clock runs on. Clones are the same clock.
#[derive(Clone)]
pub struct DriftClock {
    truth: Arc<dyn Clock>,
    /// How much faster than the truth, in millionths.
    ppm: i32,
    stopped: Switch,
}

impl DriftClock {
    /// A clock that gains `ppm` millionths on `truth`.
    pub fn new(truth: Arc<dyn Clock>, ppm: i32) -> Self {
        Self { truth, ppm, stopped: Switch::default() }
    }

    /// Timers stand still from here on.
    pub fn stop(&self) {
        self.stopped.turn(true);
    }

    /// Timers fire again, those that are late at once.
    pub fn resume(&self) {
        self.stopped.turn(false);
    }

    /// When this clock reads `at`, on the true one.
    pub fn truth_of(&self, at: Moment) -> Moment {
        let nanos = u128::from(at.as_nanos()) * MILLION / self.rate();
        Moment::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// `deadline` of this clock on the true one.
    pub fn truth_of_deadline(&self, deadline: Deadline) -> Deadline {
        match deadline {
            Deadline::At(at) => Deadline::At(self.truth_of(at)),
            Deadline::Never => Deadline::Never,
        }
    }

    /// Ends after `span` on this clock.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the timer.
    pub async fn sleep(&self, span: Duration) {
        self.sleep_until(self.now() + span).await;
    }

    fn rate(&self) -> u128 {
        MILLION.saturating_add_signed(self.ppm.into())
    }
}

impl Clock for DriftClock {
    fn now(&self) -> Moment {
        let nanos = u128::from(self.truth.now().as_nanos()) * self.rate() / MILLION;
        Moment::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn sleep_until(&self, at: Moment) -> BoxFuture<'static, ()> {
        let clock = self.clone();
        Box::pin(async move {
            while clock.now() < at {
                // Rounded down, the true time may be a nanosecond early.
                clock.truth.sleep_until(clock.truth_of(at) + Duration::from_nanos(1)).await;
            }
            clock.stopped.wait_for(false).await;
        })
    }

    fn wall_time(&self) -> SystemTime {
        self.truth.wall_time()
    }
}

impl fmt::Debug for DriftClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriftClock").field("ppm", &self.ppm).finish_non_exhaustive()
    }
}

const MILLION: u128 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use lockcore::clock::ManualClock;

    /// A fast clock is ahead by its rate, and the way back is exact to the nanosecond.
    #[test]
    fn a_fast_clock_gains_on_the_truth() {
        let truth = ManualClock::new();
        let fast = DriftClock::new(Arc::new(truth.clone()), 10_000);
        truth.advance(Duration::from_secs(99));
        assert_eq!(fast.now(), Moment::from_nanos(101_000_000_000));
        assert!(truth.now().since(fast.truth_of(fast.now())) <= Duration::from_nanos(1));
    }

    /// A stopped timer fires late, and then at once.
    #[test]
    fn stopped_timers_fire_when_they_resume() {
        let truth = ManualClock::new();
        let clock = DriftClock::new(Arc::new(truth.clone()), -10_000);
        let mut sleep = clock.sleep_until(clock.now() + Duration::from_secs(1));
        assert!(sleep.as_mut().now_or_never().is_none());
        clock.stop();
        truth.advance(Duration::from_secs(9));
        assert!(sleep.as_mut().now_or_never().is_none());
        clock.resume();
        assert!(sleep.as_mut().now_or_never().is_some());
    }
}
