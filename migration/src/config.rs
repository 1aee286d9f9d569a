//! Which two stores.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::ledger::MoveLedger;
use leasehold_core::backend::stage::Side;
use leasehold_core::backend::{LockBackend, StoreConfig};
use leasehold_core::{Env, Error, ErrorKind, Result};

use crate::backend::Moving;
use crate::protocol::Pair;
use crate::protocol::member::cut;
use crate::session::Session;

/// Two stores, between which the locks of a namespace are moved while they are in use. The stores keep the phase of the move,
/// and a process follows it while it runs.
#[derive(Clone, Debug)]
pub struct Migration {
    pub(crate) stores: Pair<Arc<dyn StoreConfig>>,
    poll: Duration,
}

impl Migration {
    /// How often a process reads the phase of the move.
    pub const DEFAULT_POLL: Duration = Duration::from_secs(1);

    /// From `old` to `new`.
    pub fn new(old: impl StoreConfig, new: impl StoreConfig) -> Self {
        Self { stores: Pair { old: Arc::new(old), new: Arc::new(new) }, poll: Self::DEFAULT_POLL }
    }

    /// How often a process reads the phase of the move, at most; default 1 s.
    #[must_use]
    pub fn poll(self, every: Duration) -> Self {
        Self { poll: every, ..self }
    }
}

/// The names of the two namespaces, for records and reports.
pub(crate) fn names<'a>(config: impl Fn(Side) -> &'a dyn StoreConfig) -> Pair<String> {
    Pair::each(|side| {
        let name = config(side).namespace();
        cut(&name.unwrap_or_else(|| format!("the {} store", side.word())), 512)
    })
}

/// Another id of a move.
pub(crate) fn draw_id(env: &Env) -> u64 {
    let mut bits = [0; 8];
    env.random(&mut bits);
    u64::from_be_bytes(bits)
}

/// An open session with one of the two stores.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    pub(crate) backend: Arc<dyn LockBackend>,
    pub(crate) ledger: Arc<dyn MoveLedger>,
}

impl Open {
    pub(crate) async fn of(config: &dyn StoreConfig, env: Env) -> Result<Self> {
        let backend = config.open(env).await?;
        let ledger = backend.ledger().ok_or_else(|| {
            let message = "cannot move the locks of this store: it keeps no move record";
            Error::not_applied(ErrorKind::Unsupported, message)
        })?;
        Ok(Self { backend, ledger })
    }
}

#[async_trait]
impl StoreConfig for Migration {
    fn min_ttl(&self) -> Duration {
        self.stores.old.min_ttl().max(self.stores.new.min_ttl())
    }

    fn server(&self) -> Option<String> {
        match (self.stores.old.server(), self.stores.new.server()) {
            (Some(old), Some(new)) => Some(format!("{old} -> {new}")),
            (old, new) => old.or(new),
        }
    }

    async fn open(&self, env: Env) -> Result<Arc<dyn LockBackend>> {
        let session = Session::open_both(&self.stores, self.poll, env).await?;
        Ok(Arc::new(Moving::new(session)))
    }
}
