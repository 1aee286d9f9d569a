//! What a trial has: a server of its own, one of us and one of them on it.

use std::time::Duration;

use leasehold::Timing;
use leasehold::backend::Env;
use leasehold::migrate::{Admin, Migration};
use libtest_mimic::Trial;
use testbed::redis::{Reply, Server, Settings};
use testbed::{BOUND, Scratch, eventually, trial_within};

use crate::contender::Contender;
use crate::library::Library;

/// The name of every lock here.
pub(crate) const NAME: &str = "invoice:42";

/// A lease whose end is waited for, and that a busy machine renews in time.
pub(crate) const SHORT: Duration = Duration::from_secs(4);

/// A lease that nothing here waits for, and of which a third is longer than any pause between two looks.
pub(crate) const LONG: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) library: &'static Library,
    pub(crate) ttl: Duration,
    pub(crate) server: Server,
    pub(crate) scratch: Scratch,
}

/// A trial with one of us and one of them.
pub(crate) fn trial<F: Future<Output = ()>>(
    library: &'static Library,
    name: &str,
    ttl: Duration,
    test: impl FnOnce(Setup, [Contender; 2]) -> F + Send + 'static,
) -> Trial {
    trial_within(5 * BOUND, format!("{}::{name}", library.name), move || async move {
        let setup = Setup::start(library, ttl).await;
        // Ours are slower to start than to wait for.
        let Some(theirs) = setup.theirs().await else { return };
        let ours = setup.ours().await;
        test(setup, [ours, theirs]).await;
    })
}

impl Setup {
    pub(crate) async fn start(library: &'static Library, ttl: Duration) -> Self {
        let server = Settings::new().start().await.unwrap_or_else(|error| panic!("{error}"));
        let scratch = Scratch::new("foreign").unwrap();
        Self { library, ttl, server, scratch }
    }

    /// Another one of them.
    pub(crate) async fn theirs(&self) -> Option<Contender> {
        Contender::theirs(self.library, &self.server.url(), self.ttl, &self.scratch).await
    }

    /// Another one of us.
    pub(crate) async fn ours(&self) -> Contender {
        Contender::ours(&self.url(), self.ttl, &self.scratch).await
    }

    /// Where ours lock as they do.
    pub(crate) fn url(&self) -> String {
        format!("{}?format={}", self.server.url(), self.library.format)
    }

    /// The administrator of a move from the one URL to the other.
    pub(crate) async fn admin(&self, old: &str, new: &str) -> Admin {
        let registry = leasehold::registry();
        let migration = Migration::new(registry.store(old).unwrap(), registry.store(new).unwrap());
        let mut timing = Timing::for_ttl(self.ttl);
        timing.connect_timeout = BOUND;
        migration.admin(Env::new(timing).unwrap()).await.unwrap()
    }

    pub(crate) async fn command(&self, words: &[&str]) -> Reply {
        self.server.command(words).await.unwrap()
    }

    /// Where the lock lies.
    pub(crate) fn key(&self) -> String {
        [self.library.prefix, NAME].concat()
    }

    /// How long the lease of the lock lasts.
    pub(crate) async fn lease(&self) -> Duration {
        let left = self.command(&["PTTL", &self.key()]).await.integer().unwrap();
        Duration::from_millis(u64::try_from(left).expect("it ends by itself"))
    }

    /// The lock, byte by byte.
    pub(crate) async fn dump(&self) -> Reply {
        self.command(&["DUMP", &self.key()]).await
    }

    /// The keys that are there, in order.
    pub(crate) async fn keys(&self) -> Vec<String> {
        let keys = self.command(&["KEYS", "*"]).await.elements();
        let mut keys: Vec<_> = keys.iter().filter_map(Reply::text).collect();
        keys.sort();
        keys
    }

    /// Of everything that was written for the lock our counter is left, which ends by itself.
    pub(crate) async fn is_clean(&self) {
        let counter = format!("leasehold:{{{NAME}}}:n");
        // Redisson removes what it noted about a release when it has received that. The element that wakes a waiter of
        // python-redis-lock expires.
        eventually("only the counter is left", async || self.keys().await.iter().all(|key| *key == counter))
            .await;
    }
}
