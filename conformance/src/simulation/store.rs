//! A store in memory, the ways to it, and what a visitor sees of it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::ledger::Participant;
use leasehold_core::backend::stage::Stage;
use leasehold_core::backend::{LockBackend, StoreConfig};
use leasehold_core::clock::TokioClock;
use leasehold_core::memory::{MemoryConfig, MemoryStore};
use leasehold_core::{Env, LockName, Result, Timing};
use parking_lot::Mutex;

use super::process::SeededEntropy;
use crate::dice::Dice;
use crate::history::Journal;
use crate::host::HostClock;
use crate::network::Network;

/// One of the stores.
#[derive(Debug)]
pub struct Store {
    memory: MemoryConfig,
    timing: Timing,
    truth: TokioClock,
    /// Where what happens in it is written down.
    pub(super) journal: Journal,
    /// No process reaches it.
    pub(super) is_down: bool,
}

/// What a visitor sees of a store.
#[derive(Debug)]
#[non_exhaustive]
pub struct Sight {
    /// The stage of its record, if it has one.
    pub stage: Option<Stage>,
    /// The entries of its ledger.
    pub members: Vec<Participant>,
    /// How many sessions it has besides.
    pub sessions: usize,
    /// The locks that it knows.
    pub names: Vec<LockName>,
}

impl Store {
    pub(super) fn new(journal: Journal, timing: &Timing, truth: TokioClock) -> Self {
        let memory = MemoryConfig::on(MemoryStore::with_clock(Arc::new(truth)));
        Self { memory, timing: timing.clone(), truth, journal, is_down: false }
    }

    /// The store itself.
    pub fn memory(&self) -> &MemoryStore {
        self.memory.store()
    }

    pub(super) fn kept_in(&self, sessions: &Sessions) -> Box<dyn StoreConfig> {
        Box::new(Kept { memory: self.memory.clone(), sessions: sessions.clone() })
    }

    /// A session beside all networks, which its user closes.
    ///
    /// # Panics
    ///
    /// Outside of a runtime.
    pub async fn visit(&self) -> Arc<dyn LockBackend> {
        let env = Env::new(self.timing.clone()).expect("inside the runtime");
        let env = env.with_clock(Arc::new(self.truth)).without_token_base();
        let env = env.with_entropy(Arc::new(SeededEntropy::new(Dice::new(0))));
        self.memory.open(env).await.expect("the store in memory opens")
    }

    /// What is in it.
    ///
    /// # Panics
    ///
    /// Outside of a runtime, and if its record is none.
    pub async fn look(&self) -> Sight {
        let session = self.visit().await;
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
}

/// How one process, or an administrator, comes to the stores.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) networks: Vec<Network>,
    pub(super) clock: HostClock,
    pub(super) sessions: Sessions,
}

/// The sessions of one process. A dead one's end when its leases would: the store in memory does not know that it
/// is dead.
#[derive(Clone, Debug, Default)]
pub(super) struct Sessions(Arc<Mutex<Vec<Arc<dyn LockBackend>>>>);

impl Sessions {
    pub(super) async fn end(&self) {
        let sessions = std::mem::take(&mut *self.0.lock());
        for session in sessions {
            session.close().await.expect("the store in memory closes");
        }
    }
}

/// The store that remembers the sessions that it opened.
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
