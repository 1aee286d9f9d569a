//! A clock that a test moves by hand, suspend included.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{Clock, Moment};

/// A clock that moves only by its methods; clones share it.
#[derive(Clone, Debug)]
pub struct ManualClock {
    state: Arc<Mutex<ManualState>>,
}

#[derive(Debug)]
struct ManualState {
    now: Moment,
    /// The time of the timers: `now` less the time spent suspended.
    awake: Duration,
    next_timer: u64,
    timers: BTreeMap<(Duration, u64), oneshot::Sender<()>>,
}

impl ManualClock {
    /// A clock that reads one second.
    pub fn new() -> Self {
        Self {
            state: Arc::new(Mutex::new(ManualState {
                now: Moment::from_nanos(1_000_000_000),
                awake: Duration::ZERO,
                next_timer: 0,
                timers: BTreeMap::new(),
            })),
        }
    }

    /// Lets `span` pass and fires the timers that are due.
    pub fn advance(&self, span: Duration) {
        let mut state = self.state.lock();
        state.now = state.now + span;
        state.awake += span;
        let later = (state.awake + Duration::from_nanos(1), 0);
        let waiting = state.timers.split_off(&later);
        let due = std::mem::replace(&mut state.timers, waiting);
        drop(state);
        for (_, timer) in due {
            // A timer whose sleeper has left needs no call.
            let _ = timer.send(());
        }
    }

    /// Lets `span` pass as a suspended host does: the clock runs on, timers stop.
    pub fn suspend(&self, span: Duration) {
        let mut state = self.state.lock();
        state.now = state.now + span;
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        self.state.lock().now
    }

    fn sleep_until(&self, at: Moment) -> BoxFuture<'static, ()> {
        let clock = self.clone();
        Box::pin(async move {
            loop {
                let fired = {
                    let mut state = clock.state.lock();
                    let left = at.since(state.now);
                    if left == Duration::ZERO {
                        return;
                    }
                    let (timer, fired) = oneshot::channel();
                    let key = (state.awake + left, state.next_timer);
                    state.next_timer += 1;
                    state.timers.insert(key, timer);
                    fired
                };
                // The sender lives in `clock` until it fires; after an error the loop only checks again.
                let _ = fired.await;
            }
        })
    }

    fn wall_time(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_nanos(self.now().as_nanos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    /// A suspended host's timers fire late, by the time it was suspended.
    #[test]
    fn timers_stand_still_while_the_clock_is_suspended() {
        let clock = ManualClock::new();
        let mut sleep = clock.sleep_until(clock.now() + Duration::from_secs(10));
        assert!(sleep.as_mut().now_or_never().is_none());
        clock.suspend(Duration::from_secs(60));
        assert!(sleep.as_mut().now_or_never().is_none());
        clock.advance(Duration::from_secs(10));
        assert!(sleep.as_mut().now_or_never().is_some());
    }
}
