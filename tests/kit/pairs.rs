//! The conformance kit on a move between two servers that stands still in one phase.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::Result;
use leasehold::backend::stage::Phase;
use leasehold::backend::{Env, LockBackend, StoreConfig};
use leasehold::migrate::{Migration, Steps};
use leasehold_conformance::{Pace, Subject};
use tokio::sync::OnceCell;

use crate::server::Served;

/// Every pair, in the phases in which both stores have a say.
pub(crate) fn subjects() -> Vec<Box<dyn Subject>> {
    let redis = Arc::from(Served::start(crate::redis::own));
    let etcd = Arc::from(Served::start(crate::etcd));
    let postgres = Arc::from(Served::start(crate::postgres));
    let zk = Arc::from(Served::start(crate::zk));
    let pairs: [(_, &Arc<dyn Subject>, _); 6] = [
        ("redis-etcd", &redis, &etcd),
        ("redis-zookeeper", &redis, &zk),
        ("etcd-redis", &etcd, &redis),
        ("redis-postgres", &redis, &postgres),
        ("postgres-etcd", &postgres, &etcd),
        ("redis-prefix", &redis, &redis),
    ];
    let mut subjects: Vec<Box<dyn Subject>> = Vec::new();
    for (name, old, new) in pairs {
        for phase in [Phase::Both, Phase::Drain] {
            let (name, stores) = (format!("{name}-in-{phase}"), [old, new].map(Arc::clone));
            subjects.push(Box::new(InPhase { stores, phase, name, moves: Mutex::default() }));
        }
    }
    subjects
}

#[derive(Debug)]
struct InPhase {
    stores: [Arc<dyn Subject>; 2],
    phase: Phase,
    name: String,
    moves: Mutex<HashMap<String, Standing>>,
}

impl Subject for InPhase {
    fn name(&self) -> &str {
        &self.name
    }

    fn pace(&self) -> Pace {
        let [old, new] = &self.stores;
        Pace::Real { ttl: old.pace().ttl().max(new.pace().ttl()) }
    }

    fn config(&self, namespace: &str) -> Box<dyn StoreConfig> {
        let standing = || {
            let config = |at: usize, end| self.stores[at].config(&format!("{namespace}-{}-{end}", self.name));
            let migration = Migration::new(config(0, "old"), config(1, "new"));
            Standing { phase: self.phase, migration, stands: Arc::default() }
        };
        let mut moves = self.moves.lock().expect("no test panics here");
        Box::new(moves.entry(namespace.to_owned()).or_insert_with(standing).clone())
    }

    fn expiry_granularity(&self) -> Duration {
        let [old, new] = &self.stores;
        old.expiry_granularity().max(new.expiry_granularity())
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
