//! What is under test: a store, and the kind of time in which to test it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Timing;
use leasehold_core::backend::StoreConfig;
use leasehold_core::clock::{BootClock, Clock, TokioClock};
use leasehold_core::memory::{MemoryConfig, MemoryStore};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};

use crate::failure::{Failure, Outcome};

/// A store as the kit sees it; implemented by the author of the store.
pub trait Subject: fmt::Debug + Send + Sync + 'static {
    /// What its trials are called: `<name>::<guarantee>::<property>`.
    fn name(&self) -> &str;

    /// How time passes for it.
    fn pace(&self) -> Pace;

    /// A way to the store that keeps `namespace`.
    ///
    /// Every configuration of one namespace opens sessions of one and the same store; names of
    /// different namespaces never meet. A namespace has lower-case letters, digits and `-`, and is
    /// used by one case only.
    fn config(&self, namespace: &str) -> Box<dyn StoreConfig>;

    /// How much later than promised the store ends a lease (G6: etcd 0.5 s, ZooKeeper one tick).
    fn expiry_granularity(&self) -> Duration {
        Duration::ZERO
    }

    /// How many jobs run at the same time in real time, and for how many periods of some seconds.
    fn periods(&self) -> (u32, u32) {
        (1, 2)
    }
}

/// How time passes in the cases of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "time is virtual or it is not")]
pub enum Pace {
    /// tokio's paused clock, for stores that read the time from [`Env`](leasehold_core::Env) alone. Cases
    /// take no time and are deterministic. Leases have the default ttl.
    Virtual,
    /// The host's clock, with leases of `ttl`.
    Real {
        /// Of a second or more; the cases take a few of these each.
        ttl: Duration,
    },
}

impl Pace {
    /// The ttl of the cases' leases.
    pub const fn ttl(self) -> Duration {
        match self {
            Self::Virtual => Timing::DEFAULT_TTL,
            Self::Real { ttl } => ttl,
        }
    }

    pub(crate) fn runtime(self) -> Outcome<Runtime> {
        let runtime = match self {
            Self::Virtual => Builder::new_current_thread().enable_all().start_paused(true).build(),
            Self::Real { .. } => Builder::new_multi_thread().worker_threads(2).enable_all().build(),
        };
        runtime.map_err(|error| Failure::new(format!("no runtime for a case: {error}")))
    }

    /// The clock; to be asked inside the runtime of the case.
    pub(crate) fn clock(self) -> Arc<dyn Clock> {
        match self {
            Self::Virtual => Arc::new(TokioClock::new()),
            Self::Real { .. } => Arc::new(BootClock::new()),
        }
    }
}

/// The in-memory store, with a clock of its own so that hosts may drift or sleep.
#[derive(Debug)]
pub struct MemorySubject {
    name: &'static str,
    pace: Pace,
    stores: Mutex<HashMap<String, MemoryStore>>,
}

impl MemorySubject {
    /// In virtual time.
    pub fn new() -> Self {
        Self { name: "memory", pace: Pace::Virtual, stores: Mutex::default() }
    }

    /// In real time, which tries the kit's own bounds.
    pub fn in_real_time(ttl: Duration) -> Self {
        Self { name: "memory-in-real-time", pace: Pace::Real { ttl }, stores: Mutex::default() }
    }
}

impl Default for MemorySubject {
    fn default() -> Self {
        Self::new()
    }
}

impl Subject for MemorySubject {
    fn name(&self) -> &str {
        self.name
    }

    fn pace(&self) -> Pace {
        self.pace
    }

    fn config(&self, namespace: &str) -> Box<dyn StoreConfig> {
        let mut stores = self.stores.lock();
        let store =
            stores.entry(namespace.to_owned()).or_insert_with(|| MemoryStore::with_clock(self.pace.clock()));
        Box::new(MemoryConfig::on(store.clone()))
    }
}
