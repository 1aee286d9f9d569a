//! A move between two stores in memory, in virtual time.

mod kit;
mod late;
mod left;
mod moves;

use std::sync::Arc;

use futures_util::FutureExt;
use leasehold_core::backend::StoreConfig;
use leasehold_core::backend::ledger::Written;
use leasehold_core::backend::stage::{Phase, Side};
use leasehold_core::clock::TokioClock;
use leasehold_core::memory::{MemoryConfig, MemoryStore};
use leasehold_core::{Env, Timing};

use crate::config::names;
use crate::protocol::Pair;
use crate::protocol::record::{Record, Stand};
use crate::protocol::tokens::{WIDTH, Window};

fn env() -> Env {
    Env::new(Timing::for_ttl(Timing::DEFAULT_TTL)).unwrap().with_clock(Arc::new(TokioClock::new()))
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

/// Writes a record as it stands.
fn write(stores: &Pair<MemoryConfig>, side: Side, stand: Stand) {
    let written = async {
        let session = stores[side].open(env().without_token_base()).await.unwrap();
        let ledger = session.ledger().unwrap();
        let version = ledger.read().await.unwrap().map(|entry| entry.version);
        let record = Record {
            id: 7,
            side,
            stand,
            between: names(|side| &stores[side]),
            since: 0,
            restored: 0,
            end: None,
        };
        let written = ledger.write(version, &record.encode()).await.unwrap();
        session.close().await.unwrap();
        written
    };
    assert!(matches!(written.now_or_never(), Some(Written::Done(_))));
}
