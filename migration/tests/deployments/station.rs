//! One of the two stores, and the ways to it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_conformance::history::Journal;
use leasehold_conformance::layer::Wrap;
use leasehold_conformance::simulation::SeededEntropy;
use leasehold_conformance::{Dice, Network, entry_rule, store_log};
use leasehold_core::backend::ledger::Member;
use leasehold_core::backend::stage::{Side, Stage};
use leasehold_core::backend::{LockBackend, StoreConfig};
use leasehold_core::clock::TokioClock;
use leasehold_core::memory::{MemoryConfig, MemoryStore};
use leasehold_core::{Env, LockName, Result, Timing};
use parking_lot::Mutex;

/// A store in memory, with a journal of what happens in it.
pub(crate) struct Station {
    pub(crate) side: Side,
    memory: MemoryConfig,
    pub(crate) journal: Journal,
    timing: Timing,
    /// Whether nobody reaches it.
    pub(crate) is_down: bool,
    /// What is wrong between it and everybody.
    planted: Option<Wrap>,
}

/// How one process comes to it.
pub(crate) struct Way {
    pub(crate) config: Box<dyn StoreConfig>,
    pub(crate) network: Network,
    pub(crate) sessions: Sessions,
}

/// What an onlooker sees of it.
#[derive(Debug)]
pub(crate) struct Sight {
    pub(crate) stage: Option<Stage>,
    pub(crate) members: Vec<Member>,
    /// Sessions of others.
    pub(crate) sessions: usize,
    pub(crate) names: Vec<LockName>,
}

impl Station {
    pub(crate) fn new(side: Side, timing: &Timing, planted: Option<Wrap>) -> Self {
        let clock = TokioClock::new();
        let memory = MemoryConfig::on(MemoryStore::with_clock(Arc::new(clock)));
        let (journal, timing) = (Journal::new(Arc::new(clock)), timing.clone());
        Self { side, memory, journal, timing, is_down: false, planted }
    }

    /// A way for `label`, whose network is as broken as the store is.
    pub(crate) fn way(&self, label: &str) -> Way {
        let (network, sessions) = (Network::new(Duration::ZERO), Sessions::default());
        if self.is_down {
            network.cut();
        }
        let kept = Kept { memory: self.memory.clone(), sessions: sessions.clone() };
        let mut config = store_log(self.journal.actor(label))(Box::new(kept));
        config = network.wrap()(config);
        if let Some(planted) = &self.planted {
            config = planted(config);
        }
        config = entry_rule(self.journal.actor(label))(config);
        Way { config, network, sessions }
    }

    /// What somebody who comes for a moment sees.
    pub(crate) async fn look(&self) -> Sight {
        let env = Env::new(self.timing.clone()).expect("inside the runtime");
        let env = env.with_clock(Arc::new(TokioClock::new())).without_token_base();
        let env = env.with_entropy(Arc::new(SeededEntropy::new(Dice::new(0))));
        let session = self.memory.open(env).await.expect("the store in memory opens");
        let ledger = session.ledger().expect("it has a ledger");
        let record = ledger.read().await.expect("it answers");
        let stage = record.map(|record| Stage::of_record(&record.value).expect("it is a record").0);
        let members = ledger.members().await.expect("it answers");
        let sessions = session.token_base().await.expect("it answers").sessions.expect("it counts");
        let names = session.list("").await.expect("it answers").into_iter().map(|state| state.name);
        let sight = Sight { stage, members, sessions, names: names.collect() };
        session.close().await.expect("it closes");
        sight
    }

    /// Whether nobody has anything there.
    pub(crate) fn is_empty(&self) -> bool {
        self.memory.store().is_empty()
    }
}

/// The sessions of one process. A dead one's end when its leases would: the store in memory does not know that it
/// is dead.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sessions(Arc<Mutex<Vec<Arc<dyn LockBackend>>>>);

impl Sessions {
    pub(crate) async fn end(&self) {
        let sessions = std::mem::take(&mut *self.0.lock());
        for session in sessions {
            session.close().await.expect("the store in memory closes");
        }
    }
}

/// The way that remembers the sessions that it opened.
#[derive(Debug)]
struct Kept {
    memory: MemoryConfig,
    sessions: Sessions,
}

#[async_trait]
impl StoreConfig for Kept {
    fn min_ttl(&self) -> Duration {
        self.memory.min_ttl()
    }

    async fn open(&self, env: Env) -> Result<Arc<dyn LockBackend>> {
        let session = self.memory.open(env).await?;
        self.sessions.0.lock().push(Arc::clone(&session));
        Ok(session)
    }
}
