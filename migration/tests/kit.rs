//! The whole conformance kit on a move between two stores in memory, in each of its phases, in virtual time.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_conformance::{Pace, Subject, Suite};
use leasehold_core::backend::stage::Phase;
use leasehold_core::backend::{LockBackend, StoreConfig};
use leasehold_core::clock::TokioClock;
use leasehold_core::memory::{MemoryConfig, MemoryStore};
use leasehold_core::{Env, Result};
use leasehold_migration::{Migration, Steps};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

fn main() -> ExitCode {
    let subject =
        |phase| Box::new(InPhase { phase, name: format!("moving-in-{phase}"), moves: Mutex::default() });
    Phase::ALL.into_iter().fold(Suite::new(), |suite, phase| suite.store(subject(phase))).run()
}

/// A move that stands still in one phase; two stores for each namespace.
#[derive(Debug)]
struct InPhase {
    phase: Phase,
    name: String,
    moves: Mutex<HashMap<String, Standing>>,
}

impl Subject for InPhase {
    fn name(&self) -> &str {
        &self.name
    }

    fn pace(&self) -> Pace {
        Pace::Virtual
    }

    fn config(&self, namespace: &str) -> Box<dyn StoreConfig> {
        let store = || MemoryConfig::on(MemoryStore::with_clock(Arc::new(TokioClock::new())));
        let standing = || Standing { phase: self.phase, old: store(), new: store(), stands: Arc::default() };
        Box::new(self.moves.lock().entry(namespace.to_owned()).or_insert_with(standing).clone())
    }
}

/// A move that is brought to its phase by whoever opens it first.
#[derive(Clone, Debug)]
struct Standing {
    phase: Phase,
    old: MemoryConfig,
    new: MemoryConfig,
    stands: Arc<OnceCell<()>>,
}

#[async_trait]
impl StoreConfig for Standing {
    fn min_ttl(&self) -> Duration {
        self.old.min_ttl()
    }

    async fn open(&self, env: Env) -> Result<Arc<dyn LockBackend>> {
        let migration = Migration::new(self.old.clone(), self.new.clone());
        self.stands.get_or_try_init(|| stand(&migration, self.phase, &env)).await?;
        migration.open(env).await
    }
}

/// Brings a move that has not begun to a phase.
async fn stand(migration: &Migration, phase: Phase, env: &Env) -> Result<()> {
    // Whoever opens it first begins it.
    let first = migration.open(env.clone()).await?;
    let admin = migration.admin(env.clone()).await?;
    let steps = Steps::default().to(phase).wait(env.timing().ttl).quiet_for(Duration::ZERO);
    admin.advance(&steps, &mut |_| {}).await?;
    admin.close().await?;
    first.close().await
}
