//! A timer of the kernel. The runtime's count in whole milliseconds: behind those, what costs less would not show.

use std::io;
use std::os::fd::OwnedFd;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// One instant after another.
#[derive(Debug)]
pub(super) struct Timer(AsyncFd<OwnedFd>);

impl Timer {
    #[expect(deprecated, reason = "of an `OwnedFd` it is sound, and what replaces it is unsafe to call")]
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self(AsyncFd::with_interest(timer, Interest::READABLE)?))
    }

    /// Waits until the clock of [`contender_protocol::now`] says so.
    pub(super) async fn until(&mut self, nanos: u64) -> io::Result<()> {
        let at = Timespec {
            tv_sec: (nanos / NANOS_PER_S).cast_signed(),
            tv_nsec: (nanos % NANOS_PER_S).cast_signed(),
        };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::ABSTIME, &once)?;
        let expired = |timer: &OwnedFd| Ok(rustix::io::read(timer, &mut [0_u8; size_of::<u64>()])?);
        self.0.async_io(Interest::READABLE, expired).await.map(drop)
    }
}

const NANOS_PER_S: u64 = 1_000_000_000;
