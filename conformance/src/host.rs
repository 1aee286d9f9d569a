//! A host of its own: its clock may run fast or slow, and it may be suspended.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use lockcore::clock::{Clock, Moment};
use tokio::sync::watch;

/// The clock of one host, derived from the world's.
///
/// While the host is suspended the clock runs on and timers stand still, as `CLOCK_BOOTTIME` and
/// tokio's timers do.
#[derive(Clone, Debug)]
pub struct HostClock {
    world: Arc<dyn Clock>,
    origin: Moment,
    /// How much slower than the world's this clock runs, in parts per million.
    slow_ppm: u64,
    sleep: watch::Sender<Sleep>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sleep {
    since: Option<Moment>,
    before: Duration,
}

impl HostClock {
    pub(crate) fn new(world: Arc<dyn Clock>, slow_ppm: u64) -> Self {
        let origin = world.now();
        Self { world, origin, slow_ppm, sleep: watch::Sender::new(Sleep::default()) }
    }

    /// The host falls asleep: none of its timers fires.
    pub fn suspend(&self) {
        let now = self.now();
        self.sleep.send_modify(|sleep| sleep.since = Some(now));
    }

    /// The host wakes up.
    pub fn resume(&self) {
        let now = self.now();
        self.sleep.send_modify(|sleep| {
            if let Some(since) = sleep.since.take() {
                sleep.before += now.since(since);
            }
        });
    }

    /// How long the host has been suspended so far.
    pub fn asleep(&self) -> Duration {
        let sleep = *self.sleep.borrow();
        sleep.before + sleep.since.map_or(Duration::ZERO, |since| self.now().since(since))
    }

    /// As long on the world's clock as `span` on this one, or a little longer.
    fn in_the_world(&self, span: Duration) -> Duration {
        let nanos = span.as_nanos() * 1_000_000 / u128::from(1_000_000 - self.slow_ppm) + 1;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Clock for HostClock {
    fn now(&self) -> Moment {
        let elapsed = self.world.now().since(self.origin).as_nanos();
        let elapsed = elapsed - elapsed * u128::from(self.slow_ppm) / 1_000_000;
        self.origin + Duration::from_nanos(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }

    fn sleep_until(&self, at: Moment) -> BoxFuture<'static, ()> {
        let clock = self.clone();
        Box::pin(async move {
            let mut sleep = clock.sleep.subscribe();
            // Timers count the time awake.
            let fires_at = at.saturating_sub(clock.asleep());
            loop {
                let asleep = clock.sleep.borrow().since.is_some();
                let left = fires_at.since(clock.now().saturating_sub(clock.asleep()));
                if !asleep && left == Duration::ZERO {
                    return;
                }
                let wake_at = clock.world.now() + clock.in_the_world(left);
                tokio::select! {
                    biased;
                    // The sender lives in `clock`.
                    _ = sleep.changed() => {}
                    () = clock.world.sleep_until(wake_at), if !asleep => {}
                }
            }
        })
    }

    fn wall_time(&self) -> SystemTime {
        self.world.wall_time()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use lockcore::clock::ManualClock;

    /// Asleep, the clock runs and the timers do not; awake, they catch up with what they have seen.
    #[tokio::test]
    async fn timers_count_the_time_awake() {
        let world = ManualClock::new();
        let host = HostClock::new(Arc::new(world.clone()), 0);
        let began = host.now();
        let mut timer = host.sleep_until(began + Duration::from_secs(10));
        assert!(timer.as_mut().now_or_never().is_none());
        host.suspend();
        world.advance(Duration::from_secs(60));
        host.resume();
        assert_eq!(host.now().since(began), Duration::from_secs(60));
        assert_eq!(host.asleep(), Duration::from_secs(60));
        assert!(timer.as_mut().now_or_never().is_none());
        world.advance(Duration::from_secs(11));
        assert!(timer.as_mut().now_or_never().is_some());
    }

    /// One percent slow is one percent slow, and its timers are late by as much.
    #[tokio::test]
    async fn a_slow_clock_is_slow() {
        let world = ManualClock::new();
        let host = HostClock::new(Arc::new(world.clone()), 10_000);
        let began = host.now();
        let mut timer = host.sleep_until(began + Duration::from_millis(99));
        assert!(timer.as_mut().now_or_never().is_none());
        world.advance(Duration::from_millis(100) + Duration::from_micros(1));
        assert!(host.now().since(began) >= Duration::from_millis(99));
        assert!(timer.as_mut().now_or_never().is_some());
    }
}
