//! A store that is not there when a service starts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::backend::{AcquireRequest, Env, Grant, LockBackend, StoreConfig};
use leasehold::clock::TokioClock;
use leasehold::memory::MemoryConfig;
use leasehold::{Effect, Error, ErrorKind, LockManager, Registry, Result};
use leasehold_conformance::layer::{Below, Layer, shared};

/// A store that is opened at the attempt after `refusals`; from the attempt `silent` on it says nothing.
#[derive(Clone, Debug)]
struct Late {
    refusals: u32,
    kind: ErrorKind,
    silent: u32,
    attempts: Arc<AtomicU32>,
}

impl Late {
    fn new(refusals: u32, kind: ErrorKind) -> Self {
        Self { refusals, kind, silent: u32::MAX, attempts: Arc::default() }
    }

    async fn open_within(&self, wait: Duration) -> Result<LockManager> {
        let builder = LockManager::builder(self.clone()).clock(Arc::new(TokioClock::new()));
        builder.connect_wait(wait).build().await
    }

    fn attempts(&self) -> u32 {
        self.attempts.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl StoreConfig for Late {
    fn min_ttl(&self) -> Duration {
        MemoryConfig::private().min_ttl()
    }

    fn server(&self) -> Option<String> {
        Some("h1:1,h2:2".to_owned())
    }

    async fn open(&self, env: Env) -> Result<Arc<dyn LockBackend>> {
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
        if attempt >= self.silent {
            std::future::pending::<()>().await;
        }
        if attempt < self.refusals {
            return Err(Error::new(self.kind.clone(), Effect::Unknown, "not there"));
        }
        MemoryConfig::private().open(env).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_comes_up_late_is_waited_for() {
    let store = Late::new(10, ErrorKind::Unavailable);
    let locks = store.open_within(Duration::from_secs(30)).await.unwrap();
    assert_eq!(store.attempts(), 11);
    locks.shutdown().await.unwrap();
    let gone = Late::new(u32::MAX, ErrorKind::Unavailable);
    let error = gone.open_within(Duration::from_secs(30)).await.unwrap_err();
    assert_eq!((error.kind(), error.to_string().contains("not there")), (&ErrorKind::Unavailable, true));
    assert!((30..=70).contains(&gone.attempts()), "{} attempts in half a minute", gone.attempts());
}

/// No lock is requested while a store is opened, so nothing can have been carried out; and the error says
/// where the store is, and how it failed last.
#[tokio::test(start_paused = true)]
async fn failure_while_opening_is_not_applied() {
    let refused = |silent, wait| async move {
        let store = Late { silent, ..Late::new(u32::MAX, ErrorKind::Unavailable) };
        let error = store.open_within(Duration::from_millis(wait)).await.unwrap_err();
        assert_eq!(error.effect(), Effect::NotApplied);
        error.to_string()
    };
    assert_eq!(refused(u32::MAX, 0).await, "not there (server: h1:1,h2:2)");
    assert_eq!(refused(0, 0).await, "timed out while opening the store after 5s (server: h1:1,h2:2)");
    // A last attempt that is cut short has nothing to tell.
    assert_eq!(refused(1, 1_000).await, "not there (server: h1:1,h2:2)");
}

#[tokio::test(start_paused = true)]
async fn other_refusals_are_final() {
    let absent = Late::new(1, ErrorKind::Unavailable);
    absent.open_within(Duration::ZERO).await.unwrap_err();
    let denied = Late::new(1, ErrorKind::Denied);
    denied.open_within(Duration::from_secs(30)).await.unwrap_err();
    assert_eq!((absent.attempts(), denied.attempts()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn the_url_says_how_long() {
    let store = Late::new(1, ErrorKind::Unavailable);
    let mut registry = Registry::new();
    let late = store.clone();
    registry.register("late", move |_url| Ok(Box::new(late.clone())));
    let locks = registry.configure("late://?connect_wait=5").unwrap().clock(Arc::new(TokioClock::new()));
    locks.build().await.unwrap().shutdown().await.unwrap();
    assert_eq!(store.attempts(), 2);
}

/// A candidate goes on when the store was away, and is elected when it is back.
#[tokio::test(start_paused = true)]
async fn candidate_stands_again_when_the_store_was_away() {
    let away = Arc::new(Away::default());
    let builder = LockManager::builder(shared(Arc::<Away>::clone(&away))(Box::new(MemoryConfig::private())));
    let locks = builder.clock(Arc::new(TokioClock::new())).build().await.unwrap();
    assert_eq!(locks.lead("leader").unwrap().run(async |_| "done").await.unwrap(), Some("done"));
    assert_eq!(away.0.load(Ordering::Relaxed), 4);
}

/// The first three requests do not reach it.
#[derive(Debug, Default)]
struct Away(AtomicU32);

#[async_trait]
impl Layer for Away {
    async fn acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Grant> {
        match self.0.fetch_add(1, Ordering::Relaxed) {
            0..3 => Err(Error::not_applied(ErrorKind::Unavailable, "not there")),
            _ => below.backend.acquire(request).await,
        }
    }
}
