//! The real clock.

use std::time::Duration;

use futures_util::future::BoxFuture;
use rustix::time::{ClockId, clock_gettime};

use super::{Clock, Moment};

/// Monotonic time that runs while the host is suspended: `CLOCK_BOOTTIME`.
///
/// Where the system has no such clock, `CLOCK_MONOTONIC`; there G2 does not cover suspend.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct BootClock;

impl BootClock {
    /// The host's clock.
    pub const fn new() -> Self {
        Self
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

impl Clock for BootClock {
    fn now(&self) -> Moment {
        let time = clock_gettime(CLOCK);
        // A monotonic clock counts up from boot: neither part is ever negative.
        Moment::from_nanos(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
    }

    fn sleep_until(&self, at: Moment) -> BoxFuture<'static, ()> {
        let clock = *self;
        Box::pin(async move {
            loop {
                let left = at.since(clock.now());
                if left == Duration::ZERO {
                    return;
                }
                tokio::time::sleep(left).await;
            }
        })
    }
}
