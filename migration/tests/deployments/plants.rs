//! What must be found: rules of a move that are broken on purpose.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_conformance::layer::{Below, Layer, Wrap, per_session};
use leasehold_core::backend::ledger::{Entry, Ledger, Member, Written};
use leasehold_core::backend::stage::Side;
use leasehold_core::backend::{Lease, LockBackend, StoreConfig};
use leasehold_core::clock::Deadline;
use leasehold_core::{Env, OwnerId, Result};

/// A rule that somebody breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plant {
    /// Some processes open a store whatever its record says.
    IgnoresPhases,
    /// Nobody sees the end of its entries in the lists of members, so holds go on without them.
    UnboundHolds,
    /// Entries acknowledge whatever was read, at once.
    AcknowledgesEarly,
}

impl Plant {
    /// What lies between everybody and the store of `side`.
    pub(crate) fn wrap(self, side: Side) -> Option<Wrap> {
        let bends = match self {
            Self::IgnoresPhases => return None,
            Self::UnboundHolds => Bend::Endless,
            Self::AcknowledgesEarly => Bend::Early(side),
        };
        Some(per_session(move || Arc::new(Bent { bends, read: Arc::default() })))
    }
}

#[derive(Clone, Copy, Debug)]
enum Bend {
    Endless,
    Early(Side),
}

#[derive(Debug)]
struct Bent {
    bends: Bend,
    /// The newest version that was read.
    read: Arc<AtomicU64>,
}

impl Layer for Bent {
    fn ledger(&self, below: &Below) -> Option<Arc<dyn Ledger>> {
        let (bends, read) = (self.bends, Arc::clone(&self.read));
        Some(Arc::new(BentLedger { bends, read, below: below.backend.ledger()? }))
    }
}

#[derive(Debug)]
struct BentLedger {
    bends: Bend,
    read: Arc<AtomicU64>,
    below: Arc<dyn Ledger>,
}

#[async_trait]
impl Ledger for BentLedger {
    async fn read(&self) -> Result<Option<Entry>> {
        let record = self.below.read().await?;
        if let Some(record) = &record {
            self.read.fetch_max(record.version, Ordering::Relaxed);
        }
        Ok(record)
    }

    async fn write(&self, expected: Option<u64>, value: &[u8]) -> Result<Written> {
        self.below.write(expected, value).await
    }

    async fn sign(&self, member: OwnerId, value: &[u8]) -> Result<Lease> {
        match self.bends {
            Bend::Early(side) => {
                let mut entry: serde_json::Value = serde_json::from_slice(value).expect("entries are JSON");
                let read = self.read.load(Ordering::Relaxed);
                entry["acknowledges"][side.word()] = read.into();
                self.below.sign(member, entry.to_string().as_bytes()).await
            }
            Bend::Endless => {
                let mut lease = self.below.sign(member, value).await?;
                lease.deadline = Deadline::Never;
                Ok(lease)
            }
        }
    }

    async fn unsign(&self, member: OwnerId) -> Result<()> {
        self.below.unsign(member).await
    }

    async fn members(&self) -> Result<Vec<Member>> {
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
