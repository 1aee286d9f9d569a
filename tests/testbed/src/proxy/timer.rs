//! A timer of the kernel. The runtime's count in whole milliseconds: behind those, what costs less would not show.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// By `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instant(Timespec);

impl Instant {
    /// That long from now.
    pub(super) fn after(delay: Duration) -> Self {
        let now = clock_gettime(ClockId::Monotonic);
        let nanos = now.tv_nsec + i64::from(delay.subsec_nanos());
        let (over, tv_nsec) = (nanos / NANOS_PER_S, nanos % NANOS_PER_S);
        let seconds = i64::try_from(delay.as_secs()).unwrap_or(i64::MAX);
        Self(Timespec { tv_sec: now.tv_sec.saturating_add(seconds).saturating_add(over), tv_nsec })
    }
}

/// Waits for one instant after another.
#[derive(Debug)]
pub(super) struct Timer(AsyncFd<OwnedFd>);

impl Timer {
    #[expect(deprecated, reason = "of an `OwnedFd` it is sound, and what replaces it is unsafe to call")]
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self(AsyncFd::with_interest(timer, Interest::READABLE)?))
    }

    /// # Cancel safety
    ///
    /// May be dropped and called again, for another instant, too.
    pub(super) async fn until(&self, at: Instant) -> io::Result<()> {
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at.0 };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::ABSTIME, &once)?;
        let expired = |timer: &OwnedFd| Ok(rustix::io::read(timer, &mut [0_u8; size_of::<u64>()])?);
        self.0.async_io(Interest::READABLE, expired).await.map(drop)
    }
}

const NANOS_PER_S: i64 = 1_000_000_000;
