//! A future that its caller polls, until somebody else waits for it: then a task does.
//!
//! Polled in place it costs no task and no hop, and it stands still with a caller whom nobody polls.
//!
//! # Invariants
//! - **request-1** One polls it at a time: its caller, or its task. A task that dies with its runtime leaves
//!   it to the caller.
//! - **request-2** What nobody wants any more is dropped by whoever gives it up, or, if its task is polling it
//!   at that instant, by the task.
//! - **request-3** With the mutex locked no future is polled, and nothing that belongs to others is dropped:
//!   no future, no outcome, no waker.
//!
//! Checked by the tests below and `tests/local`.

use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::ptr;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use crate::backend::env::Env;
use crate::backend::panic::waking;
use crate::core::Core;
use crate::core::names::Name;

/// The caller's end of it.
#[must_use = "futures do nothing unless polled"]
pub(crate) struct Request<T: Send + 'static> {
    inner: Arc<Inner<T>>,
}

/// What may go on as a task.
pub(crate) trait Handle: fmt::Debug + Send + Sync {
    /// Somebody else waits for it: from here on a task polls it.
    fn move_to_task(self: Arc<Self>);
}

struct Inner<T> {
    env: Env,
    /// Who hears the outcome when the caller has left. With nobody, it is given up then.
    unheard: Option<fn(T)>,
    state: Mutex<State<T>>,
}

struct State<T> {
    stage: Stage<T>,
    /// A task polls it, or is about to.
    detached: bool,
    /// The caller has left.
    left: bool,
    caller: Option<Waker>,
    task: Option<Waker>,
}

enum Stage<T> {
    Here(BoxFuture<'static, T>),
    /// Somebody polls it.
    Polled,
    Ready(T),
    /// The outcome was taken, or nobody wants it.
    Over,
}

/// What is left to do for somebody who polls.
enum Taken<T> {
    Future(BoxFuture<'static, T>),
    Outcome(T),
    Nothing,
    Over,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Caller,
    Task,
}

impl<T: Send + 'static> Request<T> {
    fn new(env: &Env, future: BoxFuture<'static, T>, unheard: Option<fn(T)>) -> Self {
        let stage = Stage::Here(future);
        let state = State { stage, detached: false, left: false, caller: None, task: None };
        Self { inner: Arc::new(Inner { env: env.clone(), unheard, state: Mutex::new(state) }) }
    }

    /// Whether it is this one.
    pub(crate) fn is(&self, other: &Weak<dyn Handle>) -> bool {
        ptr::addr_eq(Arc::as_ptr(&self.inner), other.as_ptr())
    }
}

/// What became of a future that was polled once.
pub(crate) enum Flown<T: Send + 'static> {
    Ready(T),
    Pending(Request<T>),
}

impl Core {
    /// Polls `future` once in place. If that is not enough, it goes on as a task once somebody waits for
    /// its queue. With `unheard` it goes on when its caller leaves; without, it is dropped with the request.
    pub(crate) async fn begin<T: Send + 'static>(
        &self,
        queue: &Name,
        mut future: BoxFuture<'static, T>,
        unheard: Option<fn(T)>,
    ) -> Flown<T> {
        if let Poll::Ready(outcome) = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await {
            return Flown::Ready(outcome);
        }
        let request = Request::new(self.env(), future, unheard);
        let under_way: Arc<dyn Handle> = Arc::<Inner<T>>::clone(&request.inner);
        let (goes_on, before) = queue.with(|state| state.sets_out(&under_way, unheard.is_some()));
        if let Some(before) = before {
            before.move_to_task();
        }
        if goes_on || self.is_closed() {
            under_way.move_to_task();
        }
        Flown::Pending(request)
    }
}

impl<T: Send + 'static> Future for Request<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let inner = &self.inner;
        let mut future = match inner.take(By::Caller, cx.waker()) {
            Taken::Future(future) => future,
            Taken::Outcome(outcome) => return Poll::Ready(outcome),
            Taken::Nothing => return Poll::Pending,
            Taken::Over => unreachable!("polled after it was ready, or after it has panicked"),
        };
        let polled = future.as_mut().poll(cx);
        let mut state = inner.state.lock();
        if polled.is_ready() {
            state.stage = Stage::Over;
            return polled;
        }
        state.stage = Stage::Here(future);
        let detached = state.detached;
        drop(state);
        if detached {
            inner.spawn();
        }
        Poll::Pending
    }
}

impl<T: Send + 'static> Drop for Request<T> {
    fn drop(&mut self) {
        let inner = &self.inner;
        let mut state = inner.state.lock();
        state.left = true;
        match (mem::replace(&mut state.stage, Stage::Over), inner.unheard) {
            (Stage::Here(future), Some(_)) => {
                state.stage = Stage::Here(future);
                drop(state);
                inner.move_here();
            }
            (Stage::Polled, Some(_)) => state.stage = Stage::Polled,
            (Stage::Ready(outcome), Some(unheard)) => {
                drop(state);
                unheard(outcome);
            }
            (given_up, _) => {
                let task = state.task.take();
                drop(state);
                drop(given_up);
                // It ends, as there is nothing left to poll.
                if let Some(task) = task {
                    task.wake();
                }
            }
        }
    }
}

impl<T: Send + 'static> fmt::Debug for Request<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Handle for Inner<T> {
    fn move_to_task(self: Arc<Self>) {
        self.move_here();
    }
}

impl<T> fmt::Debug for Inner<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Inner<T> {
    fn move_here(self: &Arc<Self>) {
        let mut state = self.state.lock();
        let spawns = match state.stage {
            Stage::Here(_) => !mem::replace(&mut state.detached, true),
            // Whoever polls it is the task, or will start it.
            Stage::Polled => {
                state.detached = true;
                false
            }
            Stage::Ready(_) | Stage::Over => false,
        };
        drop(state);
        if spawns {
            self.spawn();
        }
    }

    fn spawn(self: &Arc<Self>) {
        self.env.spawn(Task { inner: Arc::clone(self) });
    }

    /// The future, if it is for `by` to poll; `waker` is told of everything else.
    fn take(&self, by: By, waker: &Waker) -> Taken<T> {
        let waker = waker.clone();
        let mut state = self.state.lock();
        let is_its_turn = state.detached == (by == By::Task);
        let place = if by == By::Task { &mut state.task } else { &mut state.caller };
        let previous = place.replace(waker);
        let (stage, taken) = match (mem::replace(&mut state.stage, Stage::Over), by) {
            (Stage::Here(future), _) if is_its_turn => (Stage::Polled, Taken::Future(future)),
            (Stage::Ready(outcome), By::Caller) => (Stage::Over, Taken::Outcome(outcome)),
            (Stage::Over, _) => (Stage::Over, Taken::Over),
            (others, _) => (others, Taken::Nothing),
        };
        state.stage = stage;
        drop(state);
        drop(previous);
        taken
    }

    /// The task is done.
    fn complete(&self, outcome: T) {
        let mut state = self.state.lock();
        if state.left {
            state.stage = Stage::Over;
            drop(state);
            if let Some(unheard) = self.unheard {
                unheard(outcome);
            }
            return;
        }
        state.stage = Stage::Ready(outcome);
        let caller = state.caller.take();
        drop(state);
        if let Some(caller) = caller {
            waking(|| caller.wake());
        }
    }
}

struct Task<T: Send + 'static> {
    inner: Arc<Inner<T>>,
}

impl<T: Send + 'static> Future for Task<T> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Taken::Future(mut future) = self.inner.take(By::Task, cx.waker()) else {
            return Poll::Ready(());
        };
        if let Poll::Ready(outcome) = future.as_mut().poll(cx) {
            drop(future);
            self.inner.complete(outcome);
            return Poll::Ready(());
        }
        let mut state = self.inner.state.lock();
        if matches!(state.stage, Stage::Over) {
            // Given up while it was polled.
            drop(state);
            drop(future);
            return Poll::Ready(());
        }
        state.stage = Stage::Here(future);
        Poll::Pending
    }
}

impl<T: Send + 'static> Drop for Task<T> {
    /// Done, or dropped by a runtime that ends.
    fn drop(&mut self) {
        let mut state = self.inner.state.lock();
        state.detached = false;
        let own = state.task.take();
        let (stage, given_up, caller) = match mem::replace(&mut state.stage, Stage::Over) {
            Stage::Here(future) if state.left => (Stage::Over, Some(future), None),
            Stage::Here(future) => (Stage::Here(future), None, state.caller.take()),
            // It has panicked.
            Stage::Polled => (Stage::Over, None, state.caller.take()),
            others => (others, None, None),
        };
        state.stage = stage;
        drop(state);
        drop((own, given_up));
        if let Some(caller) = caller {
            waking(|| caller.wake());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timing;
    use futures_util::FutureExt;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use tokio::runtime::{Builder, Runtime};
    use tokio::sync::oneshot;
    use tokio::task::JoinSet;

    fn home() -> (Runtime, Env) {
        let home = Builder::new_current_thread().enable_all().build().unwrap();
        let env = home.block_on(async { Env::new(Timing::for_ttl(Timing::DEFAULT_TTL)).unwrap() });
        (home, env)
    }

    /// A request, what completes it, and what lives for as long as its future.
    fn request(env: &Env, unheard: Option<fn(u8)>) -> (Request<u8>, oneshot::Sender<u8>, Weak<()>) {
        let ((complete, ready), alive) = (oneshot::channel(), Arc::new(()));
        let is_alive = Arc::downgrade(&alive);
        let future = async move {
            let outcome = ready.await.unwrap();
            drop(alive);
            outcome
        };
        (Request::new(env, Box::pin(future), unheard), complete, is_alive)
    }

    /// The tasks of flights: every environment has one of its own (env-3).
    fn tasks(home: &Runtime) -> usize {
        home.metrics().num_alive_tasks() - 1
    }

    fn run(home: &Runtime) {
        home.block_on(async {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        });
    }

    /// A task is begun for others, not for the caller; once, however many they are.
    #[test]
    fn it_is_a_task_once_somebody_else_waits() {
        let (home, env) = home();
        let (mut request, complete, _) = request(&env, None);
        assert!((&mut request).now_or_never().is_none());
        assert_eq!(tasks(&home), 0);
        for _ in 0..3 {
            request.inner.move_here();
        }
        assert!((&mut request).now_or_never().is_none());
        run(&home);
        assert_eq!(tasks(&home), 1);
        complete.send(7).unwrap();
        run(&home);
        assert_eq!((tasks(&home), request.now_or_never()), (0, Some(7)));
    }

    /// The caller is told when the task has ready it.
    #[test]
    fn a_task_wakes_the_caller() {
        let (home, env) = home();
        let (request, complete, _) = request(&env, None);
        request.inner.move_here();
        let ready = home.block_on(async {
            let mut caller = JoinSet::from_iter([request]);
            tokio::task::yield_now().await;
            complete.send(7).unwrap();
            caller.join_next().await.unwrap().unwrap()
        });
        assert_eq!(ready, 7);
    }

    /// Somebody begins to wait while the caller is polling it: the caller starts the task.
    #[test]
    fn it_is_detached_while_it_is_polled() {
        let (home, env) = home();
        let begun = Arc::new(Mutex::new(None::<Arc<Inner<u8>>>));
        let in_poll = Arc::clone(&begun);
        let future = poll_fn(move |_| {
            if let Some(inner) = in_poll.lock().take() {
                inner.move_here();
            }
            Poll::<u8>::Pending
        });
        let mut request = Request::new(&env, Box::pin(future), None);
        *begun.lock() = Some(Arc::clone(&request.inner));
        assert!((&mut request).now_or_never().is_none());
        assert_eq!(tasks(&home), 1);
        drop(request);
        run(&home);
        assert_eq!(tasks(&home), 0);
    }

    /// What nobody wants is dropped with the caller's end, and the task ends (request-2).
    #[test]
    fn what_is_given_up_is_dropped_at_once() {
        for detached in [false, true] {
            let (home, env) = home();
            let (mut request, _land, alive) = request(&env, None);
            assert!((&mut request).now_or_never().is_none());
            if detached {
                request.inner.move_here();
                run(&home);
            }
            drop(request);
            assert!(alive.upgrade().is_none());
            run(&home);
            assert_eq!(tasks(&home), 0);
        }
    }

    /// What is given up while its task polls it is dropped by that, after the poll (request-2).
    #[test]
    fn what_is_given_up_while_it_is_polled_is_dropped_behind_that() {
        let (home, env) = home();
        let place = Arc::new(Mutex::new(None::<Request<u8>>));
        let (in_poll, alive) = (Arc::clone(&place), Arc::new(()));
        let is_alive = Arc::downgrade(&alive);
        let future = poll_fn(move |_| {
            drop(in_poll.lock().take());
            assert_eq!(Arc::strong_count(&alive), 1);
            Poll::Pending
        });
        let request = Request::new(&env, Box::pin(future), None);
        request.inner.move_here();
        *place.lock() = Some(request);
        run(&home);
        assert!(is_alive.upgrade().is_none());
        assert_eq!(tasks(&home), 0);
    }

    /// What must go on does so without its caller, whether a task polls it already, and says how it ended.
    #[test]
    fn what_goes_on_is_heard_by_somebody() {
        static HEARD: AtomicUsize = AtomicUsize::new(0);
        let hear: fn(u8) = |outcome| {
            HEARD.fetch_add(outcome.into(), Relaxed);
        };
        for (detached, landed_before) in [(false, false), (true, false), (true, true)] {
            HEARD.store(0, Relaxed);
            let (home, env) = home();
            let (request, complete, _) = request(&env, Some(hear));
            if detached {
                request.inner.move_here();
                run(&home);
            }
            if landed_before {
                complete.send(7).unwrap();
                run(&home);
                drop(request);
            } else {
                drop(request);
                run(&home);
                complete.send(7).unwrap();
                run(&home);
            }
            assert_eq!((HEARD.load(Relaxed), tasks(&home)), (7, 0));
        }
    }

    /// A task that dies with its runtime leaves the future to the caller, or drops it (request-1).
    #[test]
    fn the_caller_goes_on_when_the_runtime_of_the_task_is_gone() {
        for begun in [false, true] {
            let (home, env) = home();
            let (mut request, complete, _) = request(&env, None);
            if begun {
                request.inner.move_here();
                run(&home);
                assert!((&mut request).now_or_never().is_none());
                drop(home);
            } else {
                drop(home);
                request.inner.move_here();
            }
            assert!((&mut request).now_or_never().is_none());
            complete.send(7).unwrap();
            assert_eq!(request.now_or_never(), Some(7));
        }
        let (home, env) = home();
        let (left, _land, alive) = request(&env, Some(|_| unreachable!("it did not complete")));
        drop(left);
        assert!(alive.upgrade().is_some());
        drop(home);
        assert!(alive.upgrade().is_none());
    }
}
