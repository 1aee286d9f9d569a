//! The conformance kit on a move between two servers that stands still in one phase.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::backend::stage::Phase;
use leasehold::backend::{LockBackend, StoreConfig};
use leasehold::migrate::{Migration, Steps};
use leasehold::{Env, Result};
use leasehold_conformance::{Pace, Subject};
use tokio::sync::OnceCell;

use super::pair::Pair;

/// The phases in which two stores have a say.
pub(crate) fn subjects(pair: &Pair) -> Vec<Box<dyn Subject>> {
    let subject = |phase| -> Box<dyn Subject> {
        let name = format!("{}-in-{phase}", pair.name);
        Box::new(InPhase { pair: pair.clone(), phase, name, moves: Mutex::default() })
    };
    vec![subject(Phase::Both), subject(Phase::Drain)]
}

#[derive(Debug)]
struct InPhase {
    pair: Pair,
    phase: Phase,
    name: String,
    moves: Mutex<HashMap<String, Standing>>,
}

impl Subject for InPhase {
    fn name(&self) -> &str {
        &self.name
    }

    fn pace(&self) -> Pace {
        Pace::Real { ttl: self.pair.ttl() }
    }

    fn config(&self, namespace: &str) -> Box<dyn StoreConfig> {
        let standing = || {
            let space = self.pair.space(&format!("{namespace}-{}", self.name));
            Standing { phase: self.phase, migration: space.migration(), stands: Arc::default() }
        };
        Box::new(self.moves.lock().unwrap().entry(namespace.to_owned()).or_insert_with(standing).clone())
    }

    fn expiry_granularity(&self) -> Duration {
        self.pair.granularity()
    }
}

/// A move that is brought to its phase by the first session.
#[derive(Clone, Debug)]
struct Standing {
    phase: Phase,
    migration: Migration,
    stands: Arc<OnceCell<()>>,
}

#[async_trait]
impl StoreConfig for Standing {
    fn min_ttl(&self) -> Duration {
        self.migration.min_ttl()
    }

    async fn open(&self, env: Env) -> Result<Arc<dyn LockBackend>> {
        self.stands.get_or_try_init(|| stand(&self.migration, self.phase, &env)).await?;
        self.migration.open(env).await
    }
}

async fn stand(migration: &Migration, phase: Phase, env: &Env) -> Result<()> {
    // The first session begins it.
    let first = migration.open(env.clone()).await?;
    let admin = migration.admin(env.clone()).await?;
    let steps = Steps::default().to(phase).wait(4 * env.timing().ttl).quiet_for(Duration::ZERO);
    admin.advance(&steps, &mut |_| {}).await?;
    admin.close().await?;
    first.close().await
}
