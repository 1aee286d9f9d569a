//! The words in which trials are written: one test in a runtime of its own, and what is waited for.
//!
//! Nothing here is timed by a bound: it ends a test that would hang. A test waits for the thing itself
//! ([`within`], [`eventually`]); only what must *not* happen is given time ([`pass`]).

use std::fmt::Display;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use libtest_mimic::Trial;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

/// Longer than any one thing takes that a test waits for, on a machine that is busy.
pub const BOUND: Duration = Duration::from_secs(60);

/// One test, in a runtime of its own; servers that it starts end with the thread it runs on.
pub fn trial<F: Future<Output = ()>>(
    name: impl Into<String>,
    test: impl FnOnce() -> F + Send + 'static,
) -> Trial {
    trial_within(3 * BOUND, name, test)
}

/// A trial that may take longer than others.
pub fn trial_within<F: Future<Output = ()>>(
    bound: Duration,
    name: impl Into<String>,
    test: impl FnOnce() -> F + Send + 'static,
) -> Trial {
    Trial::test(name, move || {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build()?;
        runtime.block_on(async { within(bound, "the test", test()).await });
        runtime.shutdown_timeout(LEFT_OVER);
        Ok(())
    })
}

/// How long what a test leaves running on threads of its own is waited for.
const LEFT_OVER: Duration = Duration::from_secs(1);

/// The trials of a file, each called `file::name`: a function, or `name = ` what is called.
///
/// ```ignore
/// testbed::trials![
/// a_reset_costs_nobody_their_place,
/// a_cut_of_both_ends_the_hold_first = || cut_holder(&Direction::BOTH),
/// ];
/// ```
#[macro_export]
macro_rules! trials {
    ($($(#[$cfg:meta])* $name:ident $(= $test:expr)?),+ $(,)?) => {
        pub(crate) fn trials() -> Vec<libtest_mimic::Trial> {
            Vec::from([$($(#[$cfg])* $crate::trials!(@one $name $(= $test)?)),+])
        }
    };
    (@one $name:ident) => {
        $crate::trials!(@one $name = $name)
    };
    (@one $name:ident = $test:expr) => {
        $crate::trial($crate::name_in(module_path!(), stringify!($name)), $test)
    };
}

/// What a trial of a module is called.
#[doc(hidden)]
pub fn name_in(module: &str, name: &str) -> String {
    let file = module.rsplit("::").next().unwrap_or(module);
    format!("{file}::{name}")
}

/// What `work` comes to, within `bound`.
#[track_caller]
pub fn within<T>(
    bound: Duration,
    what: impl Display,
    work: impl Future<Output = T>,
) -> impl Future<Output = T> {
    let at = Location::caller();
    async move {
        match timeout(bound, work).await {
            Ok(done) => done,
            Err(_elapsed) => panic!("{what}: not within {bound:?} ({at})"),
        }
    }
}

/// Waits until `holds` says yes, for what can only be looked at; [`BOUND`] at most.
#[track_caller]
pub fn eventually(what: impl Display, holds: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    within(BOUND, what, until(holds))
}

/// Waits until `holds` says yes, however long that takes.
pub async fn until(mut holds: impl AsyncFnMut() -> bool) {
    while !holds().await {
        sleep(BETWEEN_TWO_LOOKS).await;
    }
}

const BETWEEN_TWO_LOOKS: Duration = Duration::from_millis(5);

/// Lets time pass in which something must *not* happen, or a lease ends.
pub async fn pass(time: Duration) {
    sleep(time).await;
}

/// Something that goes on beside the test; it ends with this.
#[derive(Debug)]
#[must_use = "what goes on beside the test ends with this"]
pub struct Beside<T> {
    tasks: JoinSet<T>,
    task: AbortHandle,
}

impl<T: Send + 'static> Beside<T> {
    /// Starts it.
    pub fn start(work: impl Future<Output = T> + Send + 'static) -> Self {
        let mut tasks = JoinSet::new();
        let task = tasks.spawn(work);
        Self { tasks, task }
    }

    /// Whether it has come to its end.
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// What it comes to, within [`BOUND`].
    ///
    /// # Cancel safety
    ///
    /// Cancelled, it is stopped.
    #[track_caller]
    pub fn end(self, what: impl Display) -> impl Future<Output = T> {
        self.end_within(BOUND, what)
    }

    /// What it comes to, within `bound`.
    #[track_caller]
    pub fn end_within(self, bound: Duration, what: impl Display) -> impl Future<Output = T> {
        within(bound, what, self)
    }
}

impl<T: 'static> Future for Beside<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let ended = ready!(self.tasks.poll_join_next(cx)).expect("it was not asked for before");
        Poll::Ready(ended.unwrap_or_else(|error| panic!("{error}")))
    }
}
