//! The surroundings that a backend gets from the core: clock and timers, tasks, random
//! bits, time bounds and the drift margin.
//!
//! Nothing else in the workspace reads a clock, spawns a task or draws a random number, so a
//! simulation replays from its seed. Every task spawned here is awaited by `shutdown`, the
//! timer apart.
//!
//! # Invariants
//! - **env-1** Timers and requests belong to the runtime in which the manager was opened, wherever they
//!   are polled: the end of a caller's runtime ends nothing that others wait for.
//! - **env-2** A panic in a store's code is the result of one request, not the end of the task that polls it.
//! - **env-3** A caller that waits for an answer or a timer of that runtime, wherever it is polled, gets an error
//!   when the runtime ends.
//!
//! Checked by `tests/local`, and the tests below.

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::runtime::{EnterGuard, Handle};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::backend::panic::Panicked;
use crate::backend::timer::{Place, Timer};
use crate::clock::timing::Timing;
use crate::clock::{BootClock, Clock, Deadline, Moment};
use crate::words::error::{Effect, Error, ErrorKind, Result};
use crate::words::owner::OwnerId;

/// A source of random bits.
pub trait Entropy: fmt::Debug + Send + Sync + 'static {
    /// Fills `bytes`; the real source is cryptographically strong.
    fn fill(&self, bytes: &mut [u8]);
}

/// The operating system's random bits, drawn in blocks: one system call serves sixteen owner ids.
///
/// A block belongs to one environment. Like the manager around it, it must not be used on both
/// sides of a `fork`.
#[derive(Debug)]
pub struct OsEntropy {
    block: Mutex<Block>,
}

struct Block {
    bytes: [u8; 256],
    used: usize,
}

impl OsEntropy {
    /// A source that has drawn nothing yet.
    pub const fn new() -> Self {
        Self { block: Mutex::new(Block { bytes: [0; 256], used: 256 }) }
    }
}

impl Default for OsEntropy {
    fn default() -> Self {
        Self::new()
    }
}

impl Entropy for OsEntropy {
    /// # Panics
    ///
    /// When the system has no random source: without one, ownership means nothing.
    fn fill(&self, bytes: &mut [u8]) {
        let mut block = self.block.lock();
        for part in bytes.chunks_mut(256) {
            if block.used + part.len() > block.bytes.len() {
                getrandom::fill(&mut block.bytes).expect("the operating system provides random bits");
                block.used = 0;
            }
            let from = block.used;
            let taken = &mut block.bytes[from..from + part.len()];
            part.copy_from_slice(taken);
            taken.fill(0);
            block.used += part.len();
        }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// The surroundings of a manager and its backend; cheap to clone.
#[derive(Clone, Debug)]
pub struct Env {
    shared: Arc<Shared>,
}

#[derive(Clone, Debug)]
struct Shared {
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    timing: Timing,
    runtime: Handle,
    timer: Arc<Timer>,
    tasks: TaskTracker,
    adds_token_base: bool,
}

impl Env {
    /// An environment on the current runtime with the real clock and the system's random bits.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Misuse`] outside a tokio runtime, or in one without timers.
    ///
    /// # Panics
    ///
    /// In a runtime without timers, if the program is built with `panic = "abort"`: tokio offers no other way to ask.
    pub fn new(timing: Timing) -> Result<Self> {
        let runtime = Handle::try_current().map_err(|source| {
            Error::not_applied(ErrorKind::Misuse, "cannot open a lock manager outside a tokio runtime")
                .with_source(source)
        })?;
        if !has_timers() {
            return Err(Error::not_applied(
                ErrorKind::Misuse,
                "cannot renew leases in a tokio runtime without timers: build it with `enable_time` or \
                 `enable_all`",
            ));
        }
        let clock = Arc::new(BootClock::new());
        let timer = Timer::start(&runtime, Arc::<BootClock>::clone(&clock), longest_sleep(&timing));
        Ok(Self {
            shared: Arc::new(Shared {
                clock,
                entropy: Arc::new(OsEntropy::new()),
                timing,
                runtime,
                timer,
                tasks: TaskTracker::new(),
                adds_token_base: true,
            }),
        })
    }

    /// The same environment with another clock.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        self.changed(|shared| {
            shared.timer = Timer::start(&shared.runtime, Arc::clone(&clock), longest_sleep(&shared.timing));
            shared.clock = clock;
        })
    }

    /// The same environment with another source of random bits.
    #[must_use]
    pub fn with_entropy(self, entropy: Arc<dyn Entropy>) -> Self {
        self.changed(|shared| shared.entropy = entropy)
    }

    /// Returns the environment for a session of a move. Its counters are the store's own numbers, as the move adds
    /// the token base itself. The namespace's record admits it, and it does not count in
    /// [`TokenBase::sessions`](super::TokenBase::sessions). Waiting for the tasks of this environment includes the
    /// new one's.
    #[must_use]
    pub fn without_token_base(self) -> Self {
        let tasks = self.shared.tasks.clone();
        self.changed(|shared| (shared.tasks, shared.adds_token_base) = (tasks, false))
    }

    /// Whether a session adds the namespace's `token_base` to the store's own numbers.
    pub fn adds_token_base(&self) -> bool {
        self.shared.adds_token_base
    }

    /// The time that lease decisions read.
    pub fn now(&self) -> Moment {
        self.shared.clock.now()
    }

    /// The wall clock, for labels only.
    pub fn wall_time(&self) -> SystemTime {
        self.shared.clock.wall_time()
    }

    /// The clock itself.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.clock
    }

    /// Ends at `at` or later; never, once the manager's runtime is gone.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the timer.
    pub fn sleep_until(&self, at: Moment) -> impl Future<Output = ()> + Send + Unpin + 'static {
        let (timer, mut place) = (Arc::clone(&self.shared.timer), Place::new(&self.shared.timer, at));
        poll_fn(move |cx| if timer.is_gone() { Poll::Pending } else { place.poll(cx) })
    }

    /// Ends after `span` or later; as [`sleep_until`](Self::sleep_until).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the timer.
    pub fn sleep(&self, span: Duration) -> impl Future<Output = ()> + Send + Unpin + 'static {
        self.sleep_until(self.now() + span)
    }

    /// The output of `future`, unless `span` or the manager's runtime ends before that.
    ///
    /// # Cancel safety
    ///
    /// That of `future`.
    pub async fn within<T: Send>(&self, span: Duration, future: impl Future<Output = T> + Send) -> Option<T> {
        let mut future = pin!(future);
        self.until(Some(span), || self.is_gone(), |cx| future.as_mut().poll(cx)).await
    }

    /// The result of `poll`, unless `span` ends before that, or `is_over`, which is checked when all waiters are called.
    pub(crate) async fn until<T: Send>(
        &self,
        span: Option<Duration>,
        is_over: impl Fn() -> bool + Send,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T> + Send,
    ) -> Option<T> {
        let mut place = None;
        poll_fn(move |cx| {
            if let Poll::Ready(done) = poll(cx) {
                return Poll::Ready(Some(done));
            }
            // Not before: what is done at once waits for nothing.
            let place = place.get_or_insert_with(|| {
                Place::new(&self.shared.timer, span.map_or(Moment::LAST, |span| self.now() + span))
            });
            // timer-2
            let is_late = place.poll(cx).is_ready();
            if is_late || is_over() { Poll::Ready(None) } else { Poll::Pending }
        })
        .await
    }

    /// Has all that wait check whether that is over.
    pub(crate) fn call_all(&self) {
        self.shared.timer.call_all();
    }

    /// Runs `request`, for [`Timing::op_timeout`] at most.
    ///
    /// # Errors
    ///
    /// The request's own; [`ErrorKind::Unavailable`] with an unknown effect after the bound;
    /// [`ErrorKind::Protocol`] with an unknown effect if it panicked; [`ErrorKind::Closed`] once the
    /// manager's runtime is gone.
    ///
    /// # Cancel safety
    ///
    /// That of `request`.
    pub async fn bounded<T: Send>(&self, request: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let (mut request, bound) = (pin!(request), self.timing().op_timeout);
        let answer = self.until(Some(bound), || self.is_gone(), |cx| self.poll_answer(request.as_mut(), cx));
        answer.await.unwrap_or_else(|| Err(self.unanswered()))
    }

    /// The error of a request that was not answered within [`Timing::op_timeout`], or before the end of the runtime.
    pub(crate) fn unanswered(&self) -> Error {
        if self.is_gone() {
            return Self::gone_error();
        }
        let message = format!("the store did not answer within {:?}", self.timing().op_timeout);
        Error::new(ErrorKind::Unavailable, Effect::Unknown, message)
    }

    /// Polls `request` within the manager's runtime; a panic is an answer (env-1, env-2).
    pub(crate) fn poll_answer<T>(
        &self,
        request: Pin<&mut (impl Future<Output = Result<T>> + ?Sized)>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<T>> {
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let _entered = self.entered();
            request.poll(cx)
        }));
        polled.unwrap_or_else(|panic| Poll::Ready(Err(Panicked::new(&*panic).into_error())))
    }

    /// Ends when the manager's runtime does.
    pub(crate) async fn gone(&self) {
        self.until(None, || self.is_gone(), |_| Poll::<()>::Pending).await;
    }

    /// Whether the manager's runtime has ended.
    pub(crate) fn is_gone(&self) -> bool {
        self.shared.timer.is_gone()
    }

    /// The answer to a request for which [`gone`](Self::gone) came first.
    pub(crate) fn gone_error() -> Error {
        Error::new(ErrorKind::Closed, Effect::Unknown, "the tokio runtime of the lock manager has ended")
    }

    /// Runs `task` in the background, owned by the manager; dropped at once if the runtime of
    /// `connect` is gone.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.shared.tasks.spawn_on(task, &self.shared.runtime);
    }

    /// Polls `task` to its end. [`drained`](Self::drained) does not wait for it.
    pub(crate) fn drive(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.shared.runtime.spawn(task);
    }

    /// Counts as a task until it is dropped, wherever it is polled.
    pub(crate) fn as_task(&self) -> TaskTrackerToken {
        self.shared.tasks.token()
    }

    /// Polls `task` once in place, within the runtime if there is one, and goes on in the background
    /// if that was not enough.
    pub(crate) fn run_in_place(&self, mut task: BoxFuture<'static, ()>) {
        let entered = self.entered();
        // Whatever budget the dropping task has used up.
        let polled =
            pin!(tokio::task::unconstrained(task.as_mut())).poll(&mut Context::from_waker(Waker::noop()));
        drop(entered);
        if polled.is_pending() {
            self.spawn(task);
        }
    }

    /// A fresh owner id.
    pub fn owner_id(&self) -> OwnerId {
        let mut bits = [0; 16];
        self.shared.entropy.fill(&mut bits);
        OwnerId::from_random(bits)
    }

    /// Fills `bytes` with random bits.
    pub fn random(&self, bytes: &mut [u8]) {
        self.shared.entropy.fill(bytes);
    }

    /// Between half of `pause` and all of it, so that many do not come back at once.
    pub fn jittered(&self, pause: Duration) -> Duration {
        let mut byte = [0];
        self.random(&mut byte);
        pause / 2 + pause / 2 * u32::from(byte[0]) / 255
    }

    /// The manager's times.
    pub fn timing(&self) -> &Timing {
        &self.shared.timing
    }

    /// The deadline of a lease for which the store granted `ttl` to a request sent at `sent_at`.
    pub fn deadline(&self, sent_at: Moment, ttl: Duration) -> Deadline {
        Deadline::of_lease(sent_at, ttl, self.timing().margin(ttl))
    }

    /// The same environment with tasks of its own: a backend's drivers end only when it is closed,
    /// the core's tasks before that.
    pub(crate) fn sibling(&self) -> Self {
        self.clone().changed(|_| {})
    }

    /// Waits until every task is done, for `bound` at most; whether they are.
    pub(crate) async fn drained(&self, bound: Duration) -> bool {
        self.shared.tasks.close();
        self.within(bound, self.shared.tasks.wait()).await.is_some()
    }

    /// Enters the manager's runtime, unless the thread is in it, or is at its very end and has destroyed what that takes.
    fn entered(&self) -> Option<EnterGuard<'_>> {
        let runtime = &self.shared.runtime;
        let enters = match Handle::try_current() {
            Ok(current) => current.id() != runtime.id(),
            Err(error) => !error.is_thread_local_destroyed(),
        };
        enters.then(|| runtime.enter())
    }

    fn changed(self, change: impl FnOnce(&mut Shared)) -> Self {
        let mut shared = Shared { tasks: TaskTracker::new(), ..Shared::clone(&self.shared) };
        change(&mut shared);
        Self { shared: Arc::new(shared) }
    }
}

/// A timer of the runtime that was set before a suspend fires late by the length of that. So little is no danger to the lease of
/// the shortest ttl, of three requests' bounds.
fn longest_sleep(timing: &Timing) -> Duration {
    timing.op_timeout / 2
}

/// Whether the current runtime has timers.
///
/// A runtime without them prints the panic of `sleep`, and with `panic = "abort"` ends the process by it. tokio 1.54 has no
/// other way to ask: its `Handle` reads the time driver only in `Handle::time`, which panics, and to wake it; `timeout`,
/// `interval` and `Sleep` go through that, and `RuntimeMetrics`, `Debug` of the handle and the clock show nothing of it.
fn has_timers() -> bool {
    catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    /// A clock whose runtime ends between two looks at it.
    #[derive(Debug)]
    struct Ending;

    impl Clock for Ending {
        fn now(&self) -> Moment {
            Moment::from_nanos(0)
        }

        fn wall_time(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH
        }

        fn sleep_until(&self, _at: Moment) -> BoxFuture<'static, ()> {
            Box::pin(poll_fn(|_| panic!("a timer of a runtime that is being shut down")))
        }
    }

    /// A timer of the runtime that panics, as it ends, is the end of the runtime for all that wait (env-3).
    #[tokio::test]
    async fn timer_that_panics_is_the_end_of_the_runtime() {
        let env = Env::new(Timing::for_ttl(Timing::DEFAULT_TTL)).unwrap().with_clock(Arc::new(Ending));
        let mut timer = env.sleep(Duration::from_secs(1));
        assert!((&mut timer).now_or_never().is_none());
        env.gone().await;
        assert!((&mut timer).now_or_never().is_none());
    }

    /// The sign of the runtime's end does not outlive the environment, of which there may be many.
    #[tokio::test]
    async fn nothing_of_an_environment_stays_behind() {
        let tasks = || Handle::current().metrics().num_alive_tasks();
        let before = tasks();
        let env = Env::new(Timing::for_ttl(Timing::DEFAULT_TTL)).unwrap();
        let sibling = env.sibling();
        drop(env);
        tokio::task::yield_now().await;
        assert!(sibling.gone().now_or_never().is_none(), "a sibling lives");
        drop(sibling);
        while tasks() > before {
            tokio::task::yield_now().await;
        }
    }

    /// The tasks of a session of a move are waited for with those of its opener; those of a sibling are not.
    #[tokio::test]
    async fn tasks_of_who_moves_are_waited_for() {
        let env = Env::new(Timing::for_ttl(Timing::DEFAULT_TTL)).unwrap();
        env.sibling().spawn(std::future::pending());
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        env.clone().without_token_base().spawn(async move { drop(ended.await) });
        let mut drained = std::pin::pin!(env.drained(Duration::from_secs(10)));
        assert!((&mut drained).now_or_never().is_none());
        drop(end);
        assert!(drained.await);
    }

    /// A step that is done in time has its output; a step that never is done is abandoned.
    #[tokio::test]
    async fn slow_step_is_abandoned() {
        let env = Env::new(Timing::for_ttl(Timing::DEFAULT_TTL)).unwrap();
        assert_eq!(env.within(Duration::ZERO, async { 7 }).await, Some(7));
        assert_eq!(env.within(Duration::from_millis(1), std::future::pending::<u8>()).await, None);
    }

    /// No bit is given out twice, across block borders and for long requests.
    #[test]
    fn random_bits_are_fresh() {
        let source = OsEntropy::new();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..40 {
            let mut id = [0; 16];
            source.fill(&mut id);
            assert!(seen.insert(id));
        }
        let mut long = [0; 1_000];
        source.fill(&mut long);
        assert!(long.chunks_exact(16).all(|id| seen.insert(id.try_into().unwrap())));
    }
}
