//! Managers of today.

use std::process::ExitCode;
use std::time::Duration;

use leasehold::{LockGuard, LockManager, Revocation, Revoke, connect};
use testbed::{BOUND, Beside, Launch, Process, Scratch, eventually, within};

use crate::played::{NAME, Store};

/// A lease during which nothing is renewed by itself: a third of it is longer than what happens in it.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A grace that nothing here waits for.
pub(crate) const GRACE: Revoke = Revoke::Ask { grace: BOUND.saturating_mul(4) };

pub(crate) async fn open(url: &str) -> LockManager {
    connect(url).await.unwrap()
}

/// A manager with [`LONG`] leases.
pub(crate) async fn manager<S: Store>(store: &S) -> LockManager {
    open(&store.url(&options(LONG))).await
}

/// With all the time there is for requests and for connecting, as the machine may be busy.
pub(crate) fn options(ttl: Duration) -> String {
    let (ttl, third) = (ttl.as_millis(), ttl.as_millis() / 3);
    format!("ttl={ttl}ms&op_timeout={third}ms&connect_timeout={}s", BOUND.as_secs())
}

pub(crate) async fn take(locks: &LockManager) -> LockGuard {
    locks.lock(NAME).unwrap().wait(BOUND).acquire().await.unwrap()
}

pub(crate) async fn is_busy(locks: &LockManager) -> bool {
    locks.lock(NAME).unwrap().try_acquire().await.unwrap().is_none()
}

/// Waits for the lock in a task; it is in the queue, with `ahead` others before it.
pub(crate) async fn queued(locks: &LockManager, ahead: usize, observer: &LockManager) -> Beside<LockGuard> {
    let lock = locks.lock(NAME).unwrap();
    let waiting = Beside::start(async move { lock.acquire().await.unwrap() });
    let contenders = async || observer.inspect(NAME).await.unwrap().contenders;
    eventually("it is in the queue", async || contenders().await > ahead).await;
    // Answered on the way that the acquisition uses, after it: so that knows, too.
    locks.inspect(NAME).await.unwrap();
    waiting
}

/// Asks in a task.
pub(crate) fn revoke(admin: &LockManager, how: Revoke) -> Beside<Revocation> {
    let admin = admin.clone();
    Beside::start(async move { admin.revoke(NAME, how).await.unwrap() })
}

/// A process that holds until it is killed.
pub(crate) struct Holder {
    pub(crate) process: Process,
    _scratch: Scratch,
}

impl Holder {
    /// The counter of its token, too.
    pub(crate) async fn start<S: Store>(store: &S) -> (Self, u64) {
        let (program, scratch) = (std::env::current_exe().unwrap(), Scratch::new("earlier").unwrap());
        let url = store.url(&options(S::TTL));
        let mut launch = Launch::new(&program, scratch.path()).args(["hold", &url]).piped_lines();
        let mut process = launch.spawn().unwrap();
        let counter = process.next_line(BOUND).await.unwrap().parse().unwrap();
        (Self { process, _scratch: scratch }, counter)
    }
}

/// What such a process does.
pub(crate) fn hold(url: &str) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let locks = open(url).await;
        let guard = take(&locks).await;
        println!("{}", guard.token().counter());
        let lost = within(3 * BOUND, "it is killed", guard.lost()).await;
        println!("{lost}");
    });
    ExitCode::FAILURE
}
