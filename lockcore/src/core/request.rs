//! One request in flight: polled by its caller, until another one waits for it, then by a task.
//!
//! Polled in place it costs no task and no hop, and it stops with a caller that is not polled. No other module knows which of
//! the two polls it.
//!
//! # Invariants
//! - **request-1** One polls it at a time: its caller, or its task. A task that dies with its runtime leaves
//!   it to the caller.
//! - **request-2** A request that is cancelled is dropped at once, or, if its task is polling it at that instant, by
//!   the task.
//! - **request-3** With the mutex locked no future is polled, and nothing that belongs to others is dropped:
//!   no future, no output, no waker.
//!
//! Checked by the tests below and `tests/local`.

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use crate::backend::env::Env;
use crate::backend::panic::waking;

/// The caller's end of it. Dropped, it cancels the request, or lets it continue if it needs no caller.
#[must_use = "futures do nothing unless polled"]
pub(crate) struct Request<T: Send + 'static> {
    inner: Arc<Inner<T>>,
}

/// A request, for the waiters behind it.
pub(crate) trait Handle: Send + Sync {
    /// From here on a task polls it.
    fn move_to_task(self: Arc<Self>);
}

struct Inner<T> {
    env: Env,
    /// Gets the output when the caller has left. Without it the request is cancelled then.
    unheard: Option<fn(T)>,
    progress: Mutex<Progress<T>>,
}

struct Progress<T> {
    state: State<T>,
    polled_by: Poller,
    caller_left: bool,
    /// The caller has just polled it, to be woken as `caller`: it need not poll it again before that.
    was_polled: bool,
    caller: Option<Waker>,
    task: Option<Waker>,
}

enum State<T> {
    Idle(BoxFuture<'static, T>),
    Polling,
    /// Boxed, as it is rare: most callers poll it to its end.
    Ready(Box<T>),
    /// The output was taken, or the request was cancelled.
    Gone,
}

/// The task or the caller that polls it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Poller {
    Caller,
    Task,
}

impl<T: Send + 'static> Request<T> {
    /// A request that its caller has polled with the waker `polled_with`, if it has.
    pub(crate) fn new(
        env: &Env,
        future: BoxFuture<'static, T>,
        unheard: Option<fn(T)>,
        polled_with: Option<Waker>,
    ) -> Self {
        let progress = Progress {
            state: State::Idle(future),
            polled_by: Poller::Caller,
            caller_left: false,
            was_polled: polled_with.is_some(),
            caller: polled_with,
            task: None,
        };
        Self { inner: Arc::new(Inner { env: env.clone(), unheard, progress: Mutex::new(progress) }) }
    }

    pub(crate) fn handle(&self) -> Arc<dyn Handle> {
        Arc::<Inner<T>>::clone(&self.inner)
    }
}

impl<T: Send + 'static> Future for Request<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let inner = &self.inner;
        let mut future = match inner.take(Poller::Caller, cx.waker()) {
            State::Idle(future) => future,
            State::Ready(output) => return Poll::Ready(*output),
            State::Polling => return Poll::Pending,
            State::Gone => unreachable!("polled after it was ready, or after it has panicked"),
        };
        let polled = future.as_mut().poll(cx);
        let mut progress = inner.progress.lock();
        if polled.is_ready() {
            progress.state = State::Gone;
            return polled;
        }
        progress.state = State::Idle(future);
        let polled_by = progress.polled_by;
        drop(progress);
        if polled_by == Poller::Task {
            inner.spawn();
        }
        Poll::Pending
    }
}

impl<T: Send + 'static> Drop for Request<T> {
    fn drop(&mut self) {
        let inner = &self.inner;
        let mut progress = inner.progress.lock();
        progress.caller_left = true;
        match (mem::replace(&mut progress.state, State::Gone), inner.unheard) {
            (State::Idle(future), Some(_)) => {
                progress.state = State::Idle(future);
                drop(progress);
                Arc::clone(inner).move_to_task();
            }
            (State::Polling, Some(_)) => progress.state = State::Polling,
            (State::Ready(output), Some(unheard)) => {
                drop(progress);
                unheard(*output);
            }
            (cancelled, _) => {
                let task = progress.task.take();
                drop(progress);
                drop(cancelled);
                // It ends, as there is nothing left to poll.
                if let Some(task) = task {
                    task.wake();
                }
            }
        }
    }
}

impl<T: Send + 'static> Handle for Inner<T> {
    fn move_to_task(self: Arc<Self>) {
        let mut progress = self.progress.lock();
        let spawns = match progress.state {
            State::Idle(_) => mem::replace(&mut progress.polled_by, Poller::Task) == Poller::Caller,
            // The poller is the task, or will start it.
            State::Polling => {
                progress.polled_by = Poller::Task;
                false
            }
            State::Ready(_) | State::Gone => false,
        };
        drop(progress);
        if spawns {
            self.spawn();
        }
    }
}

impl<T: Send + 'static> Inner<T> {
    fn spawn(self: &Arc<Self>) {
        self.env.spawn(Task { inner: Arc::clone(self) });
    }

    /// The next action of `by`: poll the future, or have the output. `waker` is woken at every change.
    fn take(&self, by: Poller, waker: &Waker) -> State<T> {
        let waker = waker.clone();
        let mut progress = self.progress.lock();
        let (is_its_turn, was_polled) = (progress.polled_by == by, mem::take(&mut progress.was_polled));
        let place = if by == Poller::Task { &mut progress.task } else { &mut progress.caller };
        let is_called = was_polled && place.as_ref().is_some_and(|caller| caller.will_wake(&waker));
        let previous = place.replace(waker);
        let (state, taken) = match (mem::replace(&mut progress.state, State::Gone), by) {
            (State::Idle(future), _) if is_its_turn && !is_called => (State::Polling, State::Idle(future)),
            (State::Ready(output), Poller::Caller) => (State::Gone, State::Ready(output)),
            (State::Gone, _) => (State::Gone, State::Gone),
            (others, _) => (others, State::Polling),
        };
        progress.state = state;
        drop(progress);
        drop(previous);
        taken
    }

    /// The task has the output.
    fn complete(&self, output: T) {
        let mut progress = self.progress.lock();
        if progress.caller_left {
            progress.state = State::Gone;
            drop(progress);
            if let Some(unheard) = self.unheard {
                unheard(output);
            }
            return;
        }
        progress.state = State::Ready(Box::new(output));
        let caller = progress.caller.take();
        drop(progress);
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
        let State::Idle(mut future) = self.inner.take(Poller::Task, cx.waker()) else {
            return Poll::Ready(());
        };
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            drop(future);
            self.inner.complete(output);
            return Poll::Ready(());
        }
        let mut progress = self.inner.progress.lock();
        if matches!(progress.state, State::Gone) {
            // Cancelled while it was polled.
            drop(progress);
            drop(future);
            return Poll::Ready(());
        }
        progress.state = State::Idle(future);
        Poll::Pending
    }
}

impl<T: Send + 'static> Drop for Task<T> {
    /// Done, or dropped by a runtime that ends.
    fn drop(&mut self) {
        let mut progress = self.inner.progress.lock();
        progress.polled_by = Poller::Caller;
        let own = progress.task.take();
        let (state, cancelled, caller) = match mem::replace(&mut progress.state, State::Gone) {
            State::Idle(future) if progress.caller_left => (State::Gone, Some(future), None),
            State::Idle(future) => (State::Idle(future), None, progress.caller.take()),
            // It has panicked.
            State::Polling => (State::Gone, None, progress.caller.take()),
            others => (others, None, None),
        };
        progress.state = state;
        drop(progress);
        drop((own, cancelled));
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
    use futures_util::task::noop_waker;
    use std::future::poll_fn;
    use std::sync::Weak;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::task::Wake;
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
        (Request::new(env, Box::pin(future), unheard, None), complete, is_alive)
    }

    struct Bell;

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {}
    }

    /// The tasks of requests: every environment has one of its own (env-3).
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
    fn request_is_a_task_once_another_waits() {
        let (home, env) = home();
        let (mut request, complete, _) = request(&env, None);
        assert!((&mut request).now_or_never().is_none());
        assert_eq!(tasks(&home), 0);
        for _ in 0..3 {
            request.handle().move_to_task();
        }
        assert!((&mut request).now_or_never().is_none());
        run(&home);
        assert_eq!(tasks(&home), 1);
        complete.send(7).unwrap();
        run(&home);
        assert_eq!((tasks(&home), request.now_or_never()), (0, Some(7)));
    }

    /// A caller that has just polled the future is called by the same waker, so it does not poll it twice. Another waker does.
    #[test]
    fn future_is_not_polled_twice_with_one_waker() {
        let (_home, env) = home();
        let bell = Waker::from(Arc::new(Bell));
        for (polled_with, expected) in [(noop_waker(), 0), (bell, 1)] {
            let polls = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&polls);
            let future = poll_fn(move |_| {
                counted.fetch_add(1, Relaxed);
                Poll::<u8>::Pending
            });
            let mut request = Request::new(&env, Box::pin(future), None, Some(polled_with));
            assert!((&mut request).now_or_never().is_none());
            assert_eq!(polls.load(Relaxed), expected);
            assert!((&mut request).now_or_never().is_none());
            assert_eq!(polls.load(Relaxed), expected + 1);
        }
    }

    /// The caller is woken when the task has completed it.
    #[test]
    fn a_task_wakes_the_caller() {
        let (home, env) = home();
        let (request, complete, _) = request(&env, None);
        request.handle().move_to_task();
        let ready = home.block_on(async {
            let mut caller = JoinSet::from_iter([request]);
            tokio::task::yield_now().await;
            complete.send(7).unwrap();
            caller.join_next().await.unwrap().unwrap()
        });
        assert_eq!(ready, 7);
    }

    /// Another caller begins to wait while the first is polling it: the first starts the task.
    #[test]
    fn it_is_detached_while_it_is_polled() {
        let (home, env) = home();
        let begun = Arc::new(Mutex::new(None::<Arc<Inner<u8>>>));
        let in_poll = Arc::clone(&begun);
        let future = poll_fn(move |_| {
            if let Some(inner) = in_poll.lock().take() {
                inner.move_to_task();
            }
            Poll::<u8>::Pending
        });
        let mut request = Request::new(&env, Box::pin(future), None, None);
        *begun.lock() = Some(Arc::clone(&request.inner));
        assert!((&mut request).now_or_never().is_none());
        assert_eq!(tasks(&home), 1);
        drop(request);
        run(&home);
        assert_eq!(tasks(&home), 0);
    }

    /// A cancelled request is dropped at once, and its task ends (request-2).
    #[test]
    fn cancelled_request_is_dropped_at_once() {
        for detached in [false, true] {
            let (home, env) = home();
            let (mut request, _land, alive) = request(&env, None);
            assert!((&mut request).now_or_never().is_none());
            if detached {
                request.handle().move_to_task();
                run(&home);
            }
            drop(request);
            assert!(alive.upgrade().is_none());
            run(&home);
            assert_eq!(tasks(&home), 0);
        }
    }

    /// A request that is cancelled while its task polls it is dropped by the task, after the poll (request-2).
    #[test]
    fn request_cancelled_in_a_poll_is_dropped_after_it() {
        let (home, env) = home();
        let place = Arc::new(Mutex::new(None::<Request<u8>>));
        let (in_poll, alive) = (Arc::clone(&place), Arc::new(()));
        let is_alive = Arc::downgrade(&alive);
        let future = poll_fn(move |_| {
            drop(in_poll.lock().take());
            assert_eq!(Arc::strong_count(&alive), 1);
            Poll::Pending
        });
        let request = Request::new(&env, Box::pin(future), None, None);
        request.handle().move_to_task();
        *place.lock() = Some(request);
        run(&home);
        assert!(is_alive.upgrade().is_none());
        assert_eq!(tasks(&home), 0);
    }

    /// A request that must continue does so without its caller, polled by a task or not, and its output is handled.
    #[test]
    fn output_without_a_caller_is_heard() {
        static HEARD: AtomicUsize = AtomicUsize::new(0);
        let hear: fn(u8) = |outcome| {
            HEARD.fetch_add(outcome.into(), Relaxed);
        };
        for (detached, landed_before) in [(false, false), (true, false), (true, true)] {
            HEARD.store(0, Relaxed);
            let (home, env) = home();
            let (request, complete, _) = request(&env, Some(hear));
            if detached {
                request.handle().move_to_task();
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
                request.handle().move_to_task();
                run(&home);
                assert!((&mut request).now_or_never().is_none());
                drop(home);
            } else {
                drop(home);
                request.handle().move_to_task();
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
