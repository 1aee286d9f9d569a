//! Bugs that the simulation must find, or its silence means nothing.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockcore::backend::{AcquireRequest, Attempt, Grant, LeaseId, LockBackend, Renewal, StoreConfig};
use lockcore::clock::Deadline;
use lockcore::memory::MemoryStore;
use lockcore::{Effect, Env, Error, ErrorKind, Result};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::dice::Dice;
use crate::invariants::Property;
use crate::layer::{Below, Layer, over};

/// A bug of a store or its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Planted {
    /// A release ends whatever hold there is.
    ReleaseWithoutOwnerCheck,
    /// The counter begins anew every now and then.
    RestartingCounter,
    /// Deadlines count from when the answer came.
    DeadlineFromReceipt,
    /// Deadlines leave no room for clocks that drift.
    NoMargin,
    /// Now and then the lock is granted although it is held.
    GrantsThoughHeld,
    /// An acquisition that was dropped goes on.
    KeepsAbandoned,
    /// Requests overtake each other on their way into the queue.
    JumpsTheQueue,
    /// A renewal says yes without asking.
    RenewsNothing,
}

impl Planted {
    /// Every bug.
    pub const ALL: [Self; 8] = [
        Self::ReleaseWithoutOwnerCheck,
        Self::RestartingCounter,
        Self::DeadlineFromReceipt,
        Self::NoMargin,
        Self::GrantsThoughHeld,
        Self::KeepsAbandoned,
        Self::JumpsTheQueue,
        Self::RenewsNothing,
    ];

    /// What it must be found by; any of them.
    pub const fn shows_as(self) -> &'static [Property] {
        match self {
            Self::ReleaseWithoutOwnerCheck => &[Property::Ownership],
            Self::RestartingCounter => &[Property::Tokens],
            Self::DeadlineFromReceipt | Self::NoMargin | Self::GrantsThoughHeld | Self::RenewsNothing => {
                &[Property::Overlap, Property::Notice]
            }
            Self::KeepsAbandoned => &[Property::Litter, Property::HandOver],
            Self::JumpsTheQueue => &[Property::Order],
        }
    }

    /// Whether it sits in the driver, which sees the network, and not in the store.
    const fn is_of_the_driver(self) -> bool {
        matches!(self, Self::DeadlineFromReceipt | Self::RenewsNothing)
    }
}

/// A store with a bug, or without.
#[derive(Debug)]
pub(super) struct PlantedConfig {
    inner: Box<dyn StoreConfig>,
    bug: Planted,
    store: MemoryStore,
    dice: Mutex<Dice>,
}

impl PlantedConfig {
    /// The bug, if it is one of the store.
    pub(super) fn at_store(
        inner: Box<dyn StoreConfig>,
        bug: Option<Planted>,
        store: MemoryStore,
        dice: Dice,
    ) -> Box<dyn StoreConfig> {
        Self::plant(inner, bug.filter(|bug| !bug.is_of_the_driver()), store, dice)
    }

    /// The bug, if it is one of the driver.
    pub(super) fn at_core(
        inner: Box<dyn StoreConfig>,
        bug: Option<Planted>,
        store: MemoryStore,
        dice: Dice,
    ) -> Box<dyn StoreConfig> {
        Self::plant(inner, bug.filter(|bug| bug.is_of_the_driver()), store, dice)
    }

    fn plant(
        inner: Box<dyn StoreConfig>,
        bug: Option<Planted>,
        store: MemoryStore,
        dice: Dice,
    ) -> Box<dyn StoreConfig> {
        match bug {
            Some(bug) => Box::new(Self { inner, bug, store, dice: Mutex::new(dice) }),
            None => inner,
        }
    }
}

#[async_trait]
impl StoreConfig for PlantedConfig {
    fn min_ttl(&self) -> Duration {
        self.inner.min_ttl()
    }

    fn server(&self) -> Option<String> {
        self.inner.server()
    }

    async fn open(&self, env: Env) -> Result<Arc<dyn LockBackend>> {
        let backend = self.inner.open(env.clone()).await?;
        let dice = Mutex::new(self.dice.lock().fork());
        let buggy = Buggy { env: env.clone(), bug: self.bug, store: self.store.clone(), dice };
        Ok(over(Arc::new(buggy), Below { backend, env }))
    }
}

struct Buggy {
    env: Env,
    bug: Planted,
    store: MemoryStore,
    dice: Mutex<Dice>,
}

impl Buggy {
    /// What goes wrong before the store is asked.
    async fn before_acquiring(&self, request: &AcquireRequest) {
        if self.bug == Planted::GrantsThoughHeld && self.dice.lock().chance(100) {
            self.store.evict(&request.name, &**self.env.clock(), false);
        }
        if self.bug == Planted::JumpsTheQueue {
            let delay = self.dice.lock().span(self.env.timing().op_timeout / 4);
            self.env.sleep(delay).await;
        }
    }

    fn mangled(&self, mut grant: Grant) -> Grant {
        match self.bug {
            Planted::RestartingCounter => grant.counter = 1 + grant.counter % 50,
            Planted::DeadlineFromReceipt => {
                grant.lease.deadline = self.env.deadline(self.env.now(), grant.lease.ttl);
            }
            _ => {}
        }
        grant
    }
}

#[async_trait]
impl Layer for Buggy {
    async fn try_acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Attempt> {
        self.before_acquiring(request).await;
        Ok(match below.backend.try_acquire(request).await? {
            Attempt::Granted(grant) => Attempt::Granted(self.mangled(grant)),
            held @ Attempt::Held { .. } => held,
        })
    }

    async fn acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Grant> {
        self.before_acquiring(request).await;
        if self.bug != Planted::KeepsAbandoned {
            return below.backend.acquire(request).await.map(|grant| self.mangled(grant));
        }
        let (reply, answer) = oneshot::channel();
        let (inner, request) = (Arc::clone(&below.backend), request.clone());
        self.env.spawn(async move {
            let granted = inner.acquire(&request).await;
            // The bug: nobody may be left who takes it.
            let _ = reply.send(granted);
        });
        answer.await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Unavailable, Effect::Unknown, "the runtime is gone"))
        })
    }

    async fn renew(&self, below: &Below, leases: &[LeaseId]) -> Vec<Renewal> {
        let answers = below.backend.renew(leases).await;
        let now = self.env.now();
        let ttl = self.env.timing().ttl;
        match self.bug {
            Planted::DeadlineFromReceipt => answers
                .into_iter()
                .map(|answer| match answer {
                    Renewal::Until(Deadline::At(_)) => Renewal::Until(self.env.deadline(now, ttl)),
                    other => other,
                })
                .collect(),
            Planted::RenewsNothing => {
                leases.iter().map(|_| Renewal::Until(self.env.deadline(now, ttl))).collect()
            }
            _ => answers,
        }
    }

    async fn release(&self, below: &Below, grant: &Grant) -> Result<()> {
        let released = below.backend.release(grant).await;
        if self.bug == Planted::ReleaseWithoutOwnerCheck && released.is_err() {
            self.store.evict(&grant.name, &**self.env.clock(), false);
            return Ok(());
        }
        released
    }
}

impl fmt::Debug for Buggy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buggy").field("bug", &self.bug).finish_non_exhaustive()
    }
}
