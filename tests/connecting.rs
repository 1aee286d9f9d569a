//! A store that is not there when a service starts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::backend::{LockBackend, StoreConfig};
use leasehold::clock::TokioClock;
use leasehold::memory::MemoryConfig;
use leasehold::{Effect, Env, Error, ErrorKind, LockManager, Registry, Result};

/// A store that is opened at the attempt after `refusals`.
#[derive(Clone, Debug)]
struct Late {
    refusals: u32,
    kind: ErrorKind,
    attempts: Arc<AtomicU32>,
}

impl Late {
    fn new(refusals: u32, kind: ErrorKind) -> Self {
        Self { refusals, kind, attempts: Arc::default() }
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

    async fn open(&self, env: Env) -> Result<Arc<dyn LockBackend>> {
        if self.attempts.fetch_add(1, Ordering::Relaxed) < self.refusals {
            return Err(Error::new(self.kind.clone(), Effect::NotApplied, "not there"));
        }
        MemoryConfig::private().open(env).await
    }
}

/// It is asked again, with pauses that grow, until it is there.
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

/// Without a wait, and for whatever is not about the store's absence, one attempt is all.
#[tokio::test(start_paused = true)]
async fn other_refusals_are_final() {
    let absent = Late::new(1, ErrorKind::Unavailable);
    absent.open_within(Duration::ZERO).await.unwrap_err();
    let denied = Late::new(1, ErrorKind::Denied);
    denied.open_within(Duration::from_secs(30)).await.unwrap_err();
    assert_eq!((absent.attempts(), denied.attempts()), (1, 1));
}

/// The URL says it like the builder.
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
