//! What must be found: rules of a move that are broken on purpose.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_conformance::layer::{Below, Layer, Wrap, per_session};
use leasehold_core::backend::ledger::{Entry, MoveLedger, Participant, Written};
use leasehold_core::backend::stage::{Side, Stage};
use leasehold_core::backend::{Lease, LockBackend, StoreConfig};
use leasehold_core::{Env, OwnerId, Result};

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plant {
    /// Some processes open a store whatever its record says.
    IgnoresPhases,
    /// Entries acknowledge whatever was read, at once.
    AcknowledgesEarly,
}

impl Plant {
    /// What lies between everybody and the store of `side`.
    pub(crate) fn wrap(self, side: Side) -> Option<Wrap> {
        match self {
            Self::IgnoresPhases => None,
            Self::AcknowledgesEarly => {
                Some(per_session(move || Arc::new(Early { side, read: Arc::default() })))
            }
        }
    }
}

#[derive(Debug)]
struct Early {
    side: Side,
    /// The newest version that was read.
    read: Arc<AtomicU64>,
}

impl Layer for Early {
    fn ledger(&self, below: &Below) -> Option<Arc<dyn MoveLedger>> {
        let (side, read) = (self.side, Arc::clone(&self.read));
        Some(Arc::new(EarlyLedger { side, read, below: below.backend.ledger()? }))
    }
}

#[derive(Debug)]
struct EarlyLedger {
    side: Side,
    read: Arc<AtomicU64>,
    below: Arc<dyn MoveLedger>,
}

#[async_trait]
impl MoveLedger for EarlyLedger {
    async fn read(&self) -> Result<Option<Entry>> {
        let record = self.below.read().await?;
        if let Some(record) = &record {
            let (_, json) = Stage::of_record(&record.value)?;
            let json: serde_json::Value = serde_json::from_slice(json).expect("records are JSON");
            // A record that was written again has a larger version.
            let restored = json["restored"].as_u64().unwrap_or_default();
            self.read.fetch_max((restored << 53) | record.version, Ordering::Relaxed);
        }
        Ok(record)
    }

    async fn write(&self, expected: Option<u64>, value: &[u8]) -> Result<Written> {
        self.below.write(expected, value).await
    }

    async fn sign(&self, member: OwnerId, value: &[u8]) -> Result<Lease> {
        let mut entry: serde_json::Value = serde_json::from_slice(value).expect("entries are JSON");
        let read = self.read.load(Ordering::Relaxed);
        entry["acknowledges"][self.side.word()] = read.to_string().into();
        self.below.sign(member, entry.to_string().as_bytes()).await
    }

    async fn unsign(&self, member: OwnerId) -> Result<()> {
        self.below.unsign(member).await
    }

    async fn members(&self) -> Result<Vec<Participant>> {
        self.below.members().await
    }
}

/// A plain session that opens whatever the record says.
#[derive(Debug)]
pub(crate) struct Blind(pub(crate) Box<dyn StoreConfig>);

#[async_trait]
impl StoreConfig for Blind {
    fn min_ttl(&self) -> Duration {
        self.0.min_ttl()
    }

    async fn open(&self, env: Env) -> Result<Arc<dyn LockBackend>> {
        self.0.open(env.without_token_base()).await
    }
}
