//! The words in which the trials are written: servers, managers and waiters.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, Stream, StreamExt};
use leasehold_core::backend::{LockBackend, StoreConfig, StoreEvent};
use leasehold_core::clock::{BootClock, Clock, Moment};
use leasehold_core::{Env, ErrorKind, LockGuard, LockManager, Result, Timing};
use leasehold_redis::RedisConfig;
use libtest_mimic::Trial;
use testbed::Proxy;
use testbed::redis::{Reply, Server, Settings};
pub(crate) use testbed::{BOUND, Beside, eventually, pass, trial, trial_within, trials, within};

/// The lease of most trials: short, as they wait for its end, and long enough for a busy machine.
pub(crate) const TTL: Duration = Duration::from_secs(2);

/// A lease during which nothing is renewed or refreshed by itself: a third of it is longer than
/// [`BOUND`].
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// The name of the lock of a trial that needs one.
pub(crate) const NAME: &str = "invoice/42";

/// The key of that lock.
pub(crate) const KEY: &str = "leasehold:{invoice/42}";

pub(crate) async fn server() -> Server {
    start(Settings::new()).await
}

pub(crate) async fn start(settings: Settings) -> Server {
    let settings = match PROGRAM.try_with(Clone::clone) {
        Ok(program) => settings.program(program),
        Err(_) => settings,
    };
    settings.start().await.unwrap_or_else(|error| panic!("{error}"))
}

/// A way to the server that nothing disturbs.
pub(crate) fn direct(server: &Server) -> RedisConfig {
    RedisConfig::new("127.0.0.1", server.addr().port())
}

/// A way to the server through a proxy.
pub(crate) fn via(proxy: &Proxy) -> RedisConfig {
    RedisConfig::new("127.0.0.1", proxy.addr().port())
}

/// A proxy whose frames are messages of the protocol.
pub(crate) fn proxy(server: &Server) -> Proxy {
    Proxy::start_framed(server.addr(), testbed::redis::frame).unwrap()
}

pub(crate) async fn open(config: RedisConfig) -> LockManager {
    open_for(config, TTL).await
}

pub(crate) async fn open_for(config: impl StoreConfig, ttl: Duration) -> LockManager {
    // A long bound for connecting, as the machine may be busy; those of requests follow the ttl.
    LockManager::builder(config).ttl(ttl).connect_timeout(BOUND).build().await.unwrap()
}

/// The store itself, without a manager: nothing is renewed or retried.
pub(crate) async fn store(config: impl StoreConfig) -> Arc<dyn LockBackend> {
    let mut timing = Timing::for_ttl(TTL);
    timing.connect_timeout = BOUND;
    config.open(Env::new(timing).unwrap()).await.unwrap()
}

/// Has taken and released a lock: from here on the server keeps the scripts for that.
pub(crate) async fn warm(locks: LockManager) -> LockManager {
    locks.lock("warm").unwrap().acquire().await.unwrap().release().await.unwrap();
    locks
}

pub(crate) async fn hold(locks: &LockManager) -> LockGuard {
    locks.lock(NAME).unwrap().wait(BOUND).acquire().await.unwrap()
}

/// The same while servers change, so that the store may be unavailable at first.
pub(crate) async fn hold_at_last(locks: &LockManager) -> LockGuard {
    let granted = async {
        loop {
            match locks.lock(NAME).unwrap().wait(BOUND).acquire().await {
                Ok(guard) => return guard,
                Err(error) => assert_eq!(*error.kind(), ErrorKind::Unavailable, "{error}"),
            }
        }
    };
    within(BOUND, "the lock is granted", granted).await
}

/// An acquisition that goes on by itself, until dropped.
pub(crate) struct Waiter(Beside<Result<LockGuard>>);

impl Waiter {
    pub(crate) fn start(locks: &LockManager) -> Self {
        let lock = locks.lock(NAME).unwrap();
        Self(Beside::start(async move { lock.acquire().await }))
    }

    /// One that has its entry in the queue, with `ahead` others before it.
    pub(crate) async fn queued(locks: &LockManager, ahead: usize, observer: &LockManager) -> Self {
        let waiter = Self::start(locks);
        eventually("the contender is in the queue", async || {
            observer.inspect(NAME).await.is_ok_and(|state| state.contenders > ahead)
        })
        .await;
        // Answered on the connection that the acquisition uses, after it: so that knows, too.
        locks.inspect(NAME).await.unwrap();
        waiter
    }

    #[track_caller]
    pub(crate) fn held(self) -> impl Future<Output = LockGuard> {
        let outcome = self.outcome();
        async { outcome.await.unwrap() }
    }

    #[track_caller]
    pub(crate) fn outcome(self) -> impl Future<Output = Result<LockGuard>> {
        self.0.end("the acquisition ends")
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.0.is_finished()
    }
}

/// The warnings of a store that were not read yet.
pub(crate) fn warnings(events: &mut (impl Stream<Item = StoreEvent> + Unpin)) -> Vec<String> {
    let mut warnings = Vec::new();
    while let Some(Some(event)) = events.next().now_or_never() {
        if let StoreEvent::Warning(warning) = event {
            warnings.push(warning.to_string());
        }
    }
    warnings
}

pub(crate) fn now() -> Moment {
    BootClock::new().now()
}

tokio::task_local! {
    /// What a trial starts in the place of Redis.
    static PROGRAM: PathBuf;
}

/// Trials that are about what the server does: on Redis, and the same on Valkey.
macro_rules! trials_on_both {
    ($($name:ident $(= $test:expr)?),+ $(,)?) => {
        testbed::trials![$($name $(= $test)?),+];

        pub(crate) fn on_valkey() -> Vec<libtest_mimic::Trial> {
            vec![$($crate::fixture::trials_on_both!(@one $name $(= $test)?)),+]
        }
    };
    (@one $name:ident) => {
        $crate::fixture::trials_on_both!(@one $name = $name)
    };
    (@one $name:ident = $test:expr) => {
        $crate::fixture::on_valkey(&testbed::name_in(module_path!(), stringify!($name)), $test)
    };
}
pub(crate) use trials_on_both;

/// A trial on Valkey, where there is one.
pub(crate) fn on_valkey<F: Future<Output = ()>>(
    name: &str,
    test: impl FnOnce() -> F + Send + 'static,
) -> Trial {
    trial(format!("valkey::{name}"), async || match testbed::redis::valkey() {
        Some(program) => PROGRAM.scope(program, test()).await,
        None => testbed::peers::skip("Valkey", "there is none in target/tools; run: make tools"),
    })
}

pub(crate) async fn command(server: &Server, words: &[&str]) -> Reply {
    server.command(words).await.unwrap()
}

pub(crate) async fn ok(server: &Server, words: &[&str]) {
    let reply = command(server, words).await;
    assert_eq!(reply, Reply::Simple("OK".to_owned()), "{words:?}");
}

pub(crate) async fn exists(server: &Server, key: &str) -> bool {
    command(server, &["EXISTS", key]).await == Reply::Integer(1)
}

/// Fails unless the guard is lost, and says when it was not.
pub(crate) fn assert_lost(guard: &LockGuard, when: impl fmt::Display) {
    assert!(guard.ensure_held().is_err(), "still held {when}: {guard:?}");
}
