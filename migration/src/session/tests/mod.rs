//! A move between two stores in memory, in virtual time.

mod kit;
mod late;
mod left;
mod moves;

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use leasehold_conformance::layer::{Below, For, Layer, shared};
use leasehold_core::backend::ledger::Written;
use leasehold_core::backend::stage::{Phase, Side};
use leasehold_core::backend::{AcquireRequest, Attempt, Holder, LockState, StoreConfig, StoreEvent};
use leasehold_core::clock::TokioClock;
use leasehold_core::memory::{MemoryConfig, MemoryStore};
use leasehold_core::{Env, LockName, Result, Timing};

use crate::config::names;
use crate::protocol::Pair;
use crate::protocol::record::{MoveRecord, Stand};
use crate::protocol::tokens::{WIDTH, Window};

thread_local! {
    /// Of all that one test begins, so that it is as late for everybody.
    static CLOCK: Arc<TokioClock> = Arc::new(TokioClock::new());
}

fn clock() -> Arc<TokioClock> {
    CLOCK.with(Arc::clone)
}

fn env() -> Env {
    Env::new(Timing::for_ttl(Timing::DEFAULT_TTL)).unwrap().with_clock(clock())
}

fn store() -> MemoryConfig {
    MemoryConfig::on(MemoryStore::with_clock(Arc::new(TokioClock::new())))
}

/// What the two records say in each phase of a move that was never rolled back.
fn stands(phase: Phase) -> (Stand, Stand) {
    let first = Window { offset: 0, low: 0, high: WIDTH };
    let second = Window { offset: WIDTH, low: WIDTH, high: 2 * WIDTH };
    let old = Stand { phase: Phase::Old, epoch: 0, window: first };
    let shadow = old.with(Phase::Shadow);
    let both = Stand { phase: Phase::Both, epoch: 1, window: second };
    match phase {
        Phase::Old => (old, old),
        Phase::Shadow => (shadow, shadow),
        Phase::Both => (both, both),
        Phase::Drain => (both.with(Phase::Drain), both.with(Phase::Drain)),
        Phase::New => (both.with(Phase::Drain), both.with(Phase::New)),
    }
}

/// A holder with the label `cron` is a foreign client, as stores report them.
#[derive(Debug)]
struct Cron;

impl Cron {
    fn below(store: &MemoryConfig) -> Box<dyn StoreConfig> {
        shared(Arc::new(Self))(Box::new(store.clone()))
    }

    fn seen(holder: Holder) -> Holder {
        if holder.label == "cron" { holder.of_foreign_client() } else { holder }
    }

    fn state(state: LockState) -> LockState {
        LockState::new(state.name, state.holders.into_iter().map(Self::seen), state.contenders)
    }
}

#[async_trait]
impl Layer for Cron {
    async fn try_acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Attempt> {
        Ok(match below.backend.try_acquire(request).await? {
            Attempt::Held { holder } => Attempt::Held { holder: holder.map(Self::seen) },
            granted @ Attempt::Granted(_) => granted,
        })
    }

    fn events(&self, below: &Below) -> BoxStream<'static, StoreEvent> {
        let seen = |event| match event {
            StoreEvent::Queued { name, holder } => StoreEvent::Queued { name, holder: Self::seen(holder) },
            other => other,
        };
        below.backend.events().map(seen).boxed()
    }

    async fn inspect(&self, below: &Below, name: &LockName, whom: For) -> Result<LockState> {
        whom.inspect(&*below.backend, name).await.map(Self::state)
    }

    async fn list(&self, below: &Below, prefix: &str) -> Result<Vec<LockState>> {
        Ok(below.backend.list(prefix).await?.into_iter().map(Self::state).collect())
    }
}

/// Writes a record as it stands.
fn write(stores: &Pair<MemoryConfig>, side: Side, stand: Stand) {
    write_counted(stores, side, stand, 1);
}

/// The same, written again so often.
fn write_counted(stores: &Pair<MemoryConfig>, side: Side, stand: Stand, restored: u64) {
    write_as(7, stores, side, stand, restored);
}

/// The same, of the move with that id.
fn write_as(id: u64, stores: &Pair<MemoryConfig>, side: Side, stand: Stand, restored: u64) {
    let written = async {
        let session = stores[side].open(env().without_token_base()).await.unwrap();
        let ledger = session.ledger().unwrap();
        let version = ledger.read().await.unwrap().map(|entry| entry.version);
        let between = names(|side| &stores[side]);
        let record = MoveRecord { id, side, stand, between, since: 0, restored, end: None, met: None };
        let written = ledger.write(version, &record.encode()).await.unwrap();
        session.close().await.unwrap();
        written
    };
    assert!(matches!(written.now_or_never(), Some(Written::Done(_))));
}
