//! A host of its own: its clock may run fast or slow, its process may be stopped, and it may be
//! suspended.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use leasehold_core::clock::{Clock, Deadline, Moment};
use parking_lot::Mutex;

use crate::switch::Switch;

/// The clock of one host: another one that runs faster or slower than it should (A1). Clones are the
/// same clock.
///
/// While the process is stopped or the host suspended the clock runs on, as `CLOCK_BOOTTIME` does, and
/// timers stand still. After a stop those that are late fire at once; a suspend they have not seen, as
/// tokio's have not.
#[derive(Clone, Debug)]
pub struct HostClock {
    truth: Arc<dyn Clock>,
    /// How much faster than the truth, in millionths.
    ppm: i32,
    stopped: Switch,
    sleep: Arc<Mutex<Sleep>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sleep {
    since: Option<Moment>,
    before: Duration,
}

impl HostClock {
    /// A clock that gains `ppm` millionths on `truth`.
    pub fn new(truth: Arc<dyn Clock>, ppm: i32) -> Self {
        Self { truth, ppm, stopped: Switch::default(), sleep: Arc::default() }
    }

    /// The process stands still: none of its timers fires.
    pub fn stop(&self) {
        self.stopped.turn(true);
    }

    /// The host falls asleep: none of its timers fires or counts.
    pub fn suspend(&self) {
        self.sleep.lock().since = Some(self.now());
        self.stop();
    }

    /// Whatever stood still goes on.
    pub fn resume(&self) {
        let asleep = self.asleep();
        *self.sleep.lock() = Sleep { since: None, before: asleep };
        self.stopped.turn(false);
    }

    /// How long the host has been suspended so far.
    pub fn asleep(&self) -> Duration {
        let sleep = *self.sleep.lock();
        sleep.before + sleep.since.map_or(Duration::ZERO, |since| self.now().since(since))
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

impl Clock for HostClock {
    fn now(&self) -> Moment {
        let nanos = u128::from(self.truth.now().as_nanos()) * self.rate() / MILLION;
        Moment::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn sleep_until(&self, at: Moment) -> BoxFuture<'static, ()> {
        let clock = self.clone();
        Box::pin(async move {
            // Timers count the time awake.
            let fires_at = at.saturating_sub(clock.asleep());
            loop {
                clock.stopped.wait_for(false).await;
                let now = clock.now();
                let left = fires_at.since(now.saturating_sub(clock.asleep()));
                if left == Duration::ZERO {
                    return;
                }
                // Rounded down, the true time may be a nanosecond early.
                clock.truth.sleep_until(clock.truth_of(now + left) + Duration::from_nanos(1)).await;
            }
        })
    }

    fn wall_time(&self) -> SystemTime {
        self.truth.wall_time()
    }
}

const MILLION: u128 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use leasehold_core::clock::ManualClock;

    fn host(ppm: i32) -> (ManualClock, HostClock) {
        let truth = ManualClock::new();
        (truth.clone(), HostClock::new(Arc::new(truth), ppm))
    }

    #[test]
    fn a_slow_clock_is_slow() {
        let (truth, slow) = host(-10_000);
        let began = slow.now();
        let mut timer = slow.sleep_until(began + Duration::from_millis(99));
        assert!(timer.as_mut().now_or_never().is_none());
        truth.advance(Duration::from_micros(99_900));
        assert!(timer.as_mut().now_or_never().is_none());
        truth.advance(Duration::from_micros(101));
        assert!(slow.now().since(began) >= Duration::from_millis(99));
        assert!(timer.as_mut().now_or_never().is_some());
    }

    #[test]
    fn stopped_timers_fire_when_they_resume() {
        let (truth, host) = host(-10_000);
        let mut timer = host.sleep_until(host.now() + Duration::from_secs(1));
        assert!(timer.as_mut().now_or_never().is_none());
        host.stop();
        truth.advance(Duration::from_secs(9));
        assert!(timer.as_mut().now_or_never().is_none());
        host.resume();
        assert!(timer.as_mut().now_or_never().is_some());
    }

    #[test]
    fn timers_count_the_time_awake() {
        let (truth, host) = host(0);
        let began = host.now();
        let mut timer = host.sleep_until(began + Duration::from_secs(10));
        assert!(timer.as_mut().now_or_never().is_none());
        host.suspend();
        truth.advance(Duration::from_secs(60));
        host.resume();
        assert_eq!(host.now().since(began), Duration::from_secs(60));
        assert_eq!(host.asleep(), Duration::from_secs(60));
        assert!(timer.as_mut().now_or_never().is_none());
        truth.advance(Duration::from_secs(11));
        assert!(timer.as_mut().now_or_never().is_some());
    }
}
