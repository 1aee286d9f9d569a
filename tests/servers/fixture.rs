//! A namespace on a server of some store, and processes that contend there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::{LockGuard, LockManager, connect};
use libtest_mimic::Trial;
use testbed::{BOUND, Beside, Proxy, Server, eventually, pass};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

use crate::store::Store;

/// The name of every lock here.
pub(crate) const NAME: &str = "invoice/42";

/// A lease during which nothing happens by itself: a third of it is longer than anything here takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A lease of which a third is longer than any scenario, for those who count the requests of many.
pub(crate) const VERY_LONG: Duration = Duration::from_secs(1_800);

/// Enough for everything that takes no lease's end, and long before one of [`LONG`] ends or is renewed.
pub(crate) const EARLY: Duration = Duration::from_secs(15);

/// The server that the scenarios share which do not break it themselves.
pub(crate) struct Shared<S> {
    /// Its one worker starts the server, which ends with it.
    runtime: Runtime,
    server: OnceCell<S>,
    scenes: AtomicUsize,
}

impl<S: Server> Shared<S> {
    pub(crate) fn new() -> Arc<Self> {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        Arc::new(Self { runtime, server: OnceCell::new(), scenes: AtomicUsize::new(0) })
    }

    /// A scenario on this store.
    pub(crate) fn trial<F: Future<Output = ()> + 'static>(
        self: &Arc<Self>,
        name: &str,
        test: fn(Scene<S>) -> F,
    ) -> Trial {
        let number = self.scenes.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::clone(self);
        testbed::trial(format!("{}::{name}", S::NAME), move || {
            test(Scene { shared, namespace: format!("scene{number}") })
        })
    }
}

/// A namespace that nobody else has.
pub(crate) struct Scene<S> {
    shared: Arc<Shared<S>>,
    namespace: String,
}

impl<S: Server> Scene<S> {
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(crate) async fn server(&self) -> &S {
        let start = || async { self.shared.runtime.spawn(S::start()).await.unwrap().unwrap() };
        self.shared.server.get_or_init(start).await
    }

    /// A way to that server which can be broken.
    pub(crate) async fn proxy(&self) -> Proxy {
        self.server().await.proxy().unwrap()
    }

    /// A process that nothing lies between it and that server.
    pub(crate) async fn direct(&self, ttl: Duration) -> LockManager {
        self.on(self.server().await, ttl).await
    }

    pub(crate) async fn behind(&self, proxy: &Proxy, ttl: Duration) -> LockManager {
        self.open(proxy.addr(), ttl).await
    }

    pub(crate) async fn on(&self, server: &S, ttl: Duration) -> LockManager {
        self.open(server.addr(), ttl).await
    }

    async fn open(&self, addr: std::net::SocketAddr, ttl: Duration) -> LockManager {
        connect(&S::url(addr, &self.namespace, &options(ttl))).await.unwrap()
    }
}

/// The longest bounds there are, as the machine may be busy: of connecting, and of requests.
pub(crate) fn options(ttl: Duration) -> String {
    let (ttl, third) = (ttl.as_millis(), ttl.as_millis() / 3);
    format!("ttl={ttl}ms&op_timeout={third}ms&connect_timeout={}s", BOUND.as_secs())
}

/// A lease that is to be kept, also by a machine that stands still for a while.
pub(crate) fn steady<S: Server>() -> Duration {
    3 * S::TTL
}

/// Waits until the lease that it has now would be over: it is still held.
pub(crate) async fn outlives_its_lease(guard: &LockGuard) {
    pass(guard.remaining()).await;
    guard.ensure_held().unwrap();
}

pub(crate) async fn hold(locks: &LockManager) -> LockGuard {
    locks.lock(NAME).unwrap().wait(BOUND).acquire().await.unwrap()
}

/// Has taken and released the lock, and once more: from here on that is one request each.
pub(crate) async fn warm(locks: LockManager) -> LockManager {
    for _ in 0..2 {
        hold(&locks).await.release().await.unwrap();
    }
    locks
}

/// Waits for the lock in a task.
pub(crate) fn hold_aside(locks: &LockManager) -> Beside<LockGuard> {
    let lock = locks.lock(NAME).unwrap();
    Beside::start(async move { lock.acquire().await.unwrap() })
}

/// The same; it has its entry in the queue, with `ahead` others before it.
pub(crate) async fn queued(locks: &LockManager, ahead: usize, observer: &LockManager) -> Beside<LockGuard> {
    let waiting = hold_aside(locks);
    eventually("the contender is in the queue", async || {
        observer.inspect(NAME).await.is_ok_and(|state| state.contenders > ahead)
    })
    .await;
    // Answered on the way that the acquisition uses, after it: so that knows, too.
    locks.inspect(NAME).await.unwrap();
    waiting
}

/// Waits until nobody asks a server of the trial's own anything any more; what it was asked until then.
pub(crate) async fn quiet<S: Store>(server: &S) -> u64 {
    let mut last = u64::MAX;
    eventually("nobody asks any more", async || {
        let before = std::mem::replace(&mut last, server.requests().await);
        // Also who looks around after a while has done so.
        pass(S::TTL / 5).await;
        before == last
    })
    .await;
    last
}

pub(crate) async fn is_left_alone(locks: &LockManager) -> bool {
    locks.list("").await.is_ok_and(|locks| locks.is_empty())
}
