//! One timer of the runtime for all that waits in an environment: until a moment, and for what it checks when it is called.
//! Timers of the runtime cost more, and few of these fire.
//!
//! A task sleeps until the earliest moment. Which that is, and who is called then, decides [`Waiters`], which is pure.
//!
//! # Invariants
//! - **timer-1** A waiter is called when its moment is reached: the task never sleeps beyond the earliest moment, and wakes
//!   for one that is earlier.
//! - **timer-2** A waiter that checks after it has its place misses nothing: whatever it checks changes before all are called.
//! - **timer-3** The task lives until the environment or the runtime is gone. Dropped by the runtime, it calls all (env-3).
//!
//! Checked by the tests below, and those of `env`.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::backend::panic::waking;
use crate::clock::{Clock, Moment};

/// The timer of an environment, whose end is its task's.
#[derive(Debug)]
pub(super) struct Timer(Arc<TimerState>);

#[derive(Debug)]
struct TimerState {
    clock: Arc<dyn Clock>,
    is_needless: AtomicBool,
    /// The runtime has dropped the task.
    is_gone: AtomicBool,
    waiters: Mutex<Waiters<Waker>>,
    task: AtomicWaker,
}

/// The waiters, in the order of their moments.
#[derive(Debug)]
struct Waiters<W> {
    places: BTreeMap<(Moment, u64), W>,
    entered: u64,
    /// When the task looks by itself.
    looks_at: Option<Moment>,
    /// Timers of the runtime stand still while a host is suspended: none is longer.
    longest: Duration,
}

/// A place among the waiters, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    timer: Arc<Timer>,
    at: Moment,
    number: Option<u64>,
}

impl Timer {
    /// No timer of the runtime is longer than `longest`.
    pub(super) fn start(runtime: &Handle, clock: Arc<dyn Clock>, longest: Duration) -> Arc<Self> {
        let waiters = Waiters { places: BTreeMap::new(), entered: 0, looks_at: None, longest };
        let state = Arc::new(TimerState {
            clock,
            is_needless: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            waiters: Mutex::new(waiters),
            task: AtomicWaker::new(),
        });
        // Not one of the environment's tasks, which end with a shutdown.
        runtime.spawn(TimerTask(Arc::clone(&state)).run());
        Arc::new(Self(state))
    }

    pub(super) fn is_gone(&self) -> bool {
        self.0.is_gone.load(Ordering::SeqCst)
    }

    /// Calls all waiters: what they check has changed.
    pub(super) fn call_all(&self) {
        self.0.call_all();
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.is_needless.store(true, Ordering::SeqCst);
        self.0.task.wake();
    }
}

impl TimerState {
    fn call_all(&self) {
        let places = std::mem::take(&mut self.waiters.lock().places);
        call(places.into_values());
    }
}

fn call(waiters: impl IntoIterator<Item = Waker>) {
    waiters.into_iter().for_each(|waiter| _ = waking(|| waiter.wake()));
}

impl Place {
    /// A place from the first poll on; at [`Moment::LAST`] it is called only with all.
    pub(super) fn new(timer: &Arc<Timer>, at: Moment) -> Self {
        Self { timer: Arc::clone(timer), at, number: None }
    }

    /// Ready when the moment is reached; the waker of `cx` is called then, and with all.
    pub(super) fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        let Self { timer, at, number } = self;
        let TimerState { clock, waiters, task, .. } = &*timer.0;
        let now = if *at == Moment::LAST { Moment::from_nanos(0) } else { clock.now() };
        if *at <= now {
            return Poll::Ready(());
        }
        let is_known = |number| {
            waiters.lock().places.get(&(*at, number)).is_some_and(|known| known.will_wake(cx.waker()))
        };
        if number.is_some_and(is_known) {
            return Poll::Pending;
        }
        let waker = cx.waker().clone();
        let (old, wakes) = {
            let waiters = &mut *waiters.lock();
            let old = number.and_then(|number| waiters.places.remove(&(*at, number)));
            let (new, wakes) = waiters.enter(now, *at, waker);
            *number = Some(new);
            (old, wakes)
        };
        drop(old);
        if wakes {
            task.wake();
        }
        Poll::Pending
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let left = self.timer.0.waiters.lock().places.remove(&(self.at, number));
            drop(left);
        }
    }
}

impl<W> Waiters<W> {
    /// Adds one; returns its number, and whether the task has to look again.
    fn enter(&mut self, now: Moment, at: Moment, waiter: W) -> (u64, bool) {
        let number = self.entered;
        self.entered += 1;
        self.places.insert((at, number), waiter);
        // RACE: a task that should have looked before `now` slept through a suspend, and may sleep on.
        let looks_in_time = self.looks_at.is_some_and(|looks_at| now < looks_at && looks_at <= at);
        if looks_in_time || at == Moment::LAST {
            return (number, false);
        }
        self.looks_at = Some(at.min(now + self.longest));
        (number, true)
    }

    /// The task looks: who is called, and when it looks again.
    fn look(&mut self, now: Moment) -> (Vec<W>, Option<Moment>) {
        let mut due = Vec::new();
        while let Some(first) = self.places.first_entry().filter(|first| first.key().0 <= now) {
            due.push(first.remove());
        }
        let next = self.places.first_key_value().map(|((at, _), _)| *at).filter(|at| *at < Moment::LAST);
        self.looks_at = next.map(|at| at.min(now + self.longest));
        (due, self.looks_at)
    }
}

struct TimerTask(Arc<TimerState>);

impl TimerTask {
    async fn run(self) {
        let TimerState { clock, is_needless, waiters, task, .. } = &*self.0;
        let mut sleep = None::<(Moment, BoxFuture<'static, ()>)>;
        poll_fn(|cx| {
            task.register(cx.waker());
            if is_needless.load(Ordering::SeqCst) {
                return Poll::Ready(());
            }
            // A clock is foreign code: not with the waiters locked.
            let now = clock.now();
            let (due, next) = waiters.lock().look(now);
            call(due);
            sleep = sleep.take().filter(|(at, _)| Some(*at) == next);
            if let Some(at) = next {
                let (_, timer) = sleep.get_or_insert_with(|| (at, clock.sleep_until(at)));
                if timer.as_mut().poll(cx).is_ready() {
                    sleep = None;
                    cx.waker().wake_by_ref();
                }
            }
            Poll::Pending
        })
        .await;
    }
}

impl Drop for TimerTask {
    fn drop(&mut self) {
        self.0.is_gone.store(true, Ordering::SeqCst);
        drop(self.0.task.take());
        self.0.call_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Each is called at its moment, however they come and go. A suspend delays that by its own length at most, and until the
        /// next one comes if a moment has passed in it (timer-1).
        #[test]
        fn waiters_are_called_in_time(steps in prop::collection::vec((0_u8..4, 1_u64..20), 1..80)) {
            let longest = Duration::from_nanos(12);
            let mut waiters = Waiters { places: BTreeMap::new(), entered: 0, looks_at: None, longest };
            let (mut now, mut fires_at, mut suspended) = (Moment::from_nanos(0), None, Duration::ZERO);
            for (kind, span) in steps {
                let span = Duration::from_nanos(span);
                match kind {
                    0 => {
                        let (_, looks) = waiters.enter(now, now + span, ());
                        if looks {
                            fires_at = Some(now);
                        }
                        let is_late = waiters.places.first_key_value().is_some_and(|((at, _), ())| *at <= now);
                        prop_assert!(!is_late || fires_at == Some(now));
                    }
                    1 => _ = waiters.places.pop_first(),
                    2 => {
                        (now, suspended) = (now + span, suspended + span);
                        fires_at = fires_at.map(|at| at + span);
                    }
                    _ => for _ in 0..span.as_nanos() {
                        if fires_at.is_some_and(|at| at <= now) {
                            (_, fires_at) = waiters.look(now);
                            prop_assert!(fires_at.is_none_or(|at| at <= now + longest));
                            suspended = Duration::ZERO;
                        }
                        let mut late = waiters.places.keys().filter(|(at, _)| *at + suspended < now);
                        prop_assert_eq!(late.next(), None);
                        now = now + Duration::from_nanos(1);
                    },
                }
            }
        }
    }
}
