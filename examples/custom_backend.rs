//! A store of your own, proven by the kit: another store, with a record of every grant and release.
//!
//! It shows the whole contract, method by method. A store from scratch fills the same methods in; the
//! in-memory store (`lockcore/src/memory`) is the one to read for that.
//! `cargo run --example custom_backend`

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use leasehold::backend::ledger::MoveLedger;
use leasehold::backend::{
    AcquireRequest, Attempt, Env, Finding, Grant, Holder, LeaseId, LockBackend, LockState, Renewal, Revoke,
    StoreConfig, StoreEvent, TokenBase,
};
use leasehold::memory::MemoryConfig;
use leasehold::{Guarantees, LockManager, LockName, Result};
use leasehold_conformance::{MemorySubject, Pace, Subject};

/// What was granted and released, in order.
#[derive(Clone, Debug, Default)]
struct Record(Arc<Mutex<Vec<String>>>);

impl Record {
    fn note(&self, what: &str, grant: &Grant) {
        // The owner id is a capability and stays out; the counter is no secret.
        let line = format!("{what} {} as grant {}", grant.name, grant.counter);
        self.0.lock().expect("nothing panics while it is written").push(line);
    }
}

/// How the store is opened; what a URL of yours would be read into.
#[derive(Debug)]
struct RecordedConfig {
    inner: Box<dyn StoreConfig>,
    record: Record,
}

#[async_trait]
impl StoreConfig for RecordedConfig {
    fn min_ttl(&self) -> Duration {
        self.inner.min_ttl()
    }

    fn server(&self) -> Option<String> {
        self.inner.server()
    }

    async fn open(&self, env: Env) -> Result<Arc<dyn LockBackend>> {
        let (inner, record) = (self.inner.open(env).await?, self.record.clone());
        Ok(Arc::new(Recorded { inner, record }))
    }
}

/// One session.
#[derive(Debug)]
struct Recorded {
    inner: Arc<dyn LockBackend>,
    record: Record,
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl LockBackend for Recorded {
    /// Every flag is a promise that the kit checks; what is left out is skipped there by name.
    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees()
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let attempt = self.inner.try_acquire(request).await?;
        if let Attempt::Granted(grant) = &attempt {
            self.record.note("granted", grant);
        }
        Ok(attempt)
    }

    /// Dropped while it waits, it drops the inner future, which abandons: nothing of ours is left.
    async fn acquire(&self, request: &AcquireRequest) -> Result<Grant> {
        let grant = self.inner.acquire(request).await?;
        self.record.note("granted", &grant);
        Ok(grant)
    }

    async fn renew(&self, leases: &[LeaseId]) -> Vec<Renewal> {
        self.inner.renew(leases).await
    }

    /// What is recorded is what the store confirmed.
    async fn release(&self, grant: &Grant) -> Result<()> {
        self.inner.release(grant).await?;
        self.record.note("released", grant);
        Ok(())
    }

    /// Left out it would do nothing, and a store with sessions would grant on in one that is over.
    fn end_session(&self, lease: LeaseId) {
        self.inner.end_session(lease);
    }

    fn events(&self) -> BoxStream<'static, StoreEvent> {
        self.inner.events()
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState> {
        self.inner.inspect(name).await
    }

    async fn inspect_for_watch(&self, name: &LockName, is_new: bool) -> Result<LockState> {
        self.inner.inspect_for_watch(name, is_new).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        self.inner.list(prefix).await
    }

    async fn revoke(&self, name: &LockName, how: Revoke) -> Result<Vec<Holder>> {
        self.inner.revoke(name, how).await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        self.inner.diagnose().await
    }

    async fn diagnose_lock(&self, name: &LockName) -> Result<Vec<Finding>> {
        self.inner.diagnose_lock(name).await
    }

    async fn token_base(&self) -> Result<TokenBase> {
        self.inner.token_base().await
    }

    async fn raise_token_base(&self, at_least: u64) -> Result<()> {
        self.inner.raise_token_base(at_least).await
    }

    fn ledger(&self) -> Option<Arc<dyn MoveLedger>> {
        self.inner.ledger()
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}

/// What the kit needs to know of a store: its name, how time passes for it, how to open it.
#[derive(Debug, Default)]
struct RecordedSubject(MemorySubject);

impl Subject for RecordedSubject {
    fn name(&self) -> &str {
        "recorded"
    }

    fn pace(&self) -> Pace {
        self.0.pace()
    }

    fn config(&self, namespace: &str) -> Box<dyn StoreConfig> {
        Box::new(RecordedConfig { inner: self.0.config(namespace), record: Record::default() })
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let record = Record::default();
    let inner = Box::new(MemoryConfig::private());
    let locks = LockManager::builder(RecordedConfig { inner, record: record.clone() }).build().await?;
    locks.lock("invoice/42")?.acquire().await?.release().await?;
    locks.shutdown().await?;
    println!("{:#?}", record.0.lock().expect("nothing panics while it is written"));

    let kit = std::thread::spawn(|| leasehold_conformance::check(RecordedSubject::default()));
    match kit.join().expect("the kit runs") {
        Ok(report) => print!("{report}"),
        Err(report) => panic!("{report}"),
    }
    Ok(())
}
