//! Our own library, used as its README says.

use std::time::Duration;

use contender_protocol::{Failure, Implementation, Session};
use leasehold::{Lock, LockGuard, LockManager};

pub(super) struct Ours {
    url: String,
}

impl Ours {
    pub(super) fn new(url: &str) -> Self {
        Self { url: url.to_owned() }
    }
}

impl Implementation for Ours {
    type Session = Manager;

    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }

    async fn open(&self, ttl: Duration) -> Result<Manager, Failure> {
        let separator = if self.url.contains('?') { '&' } else { '?' };
        let url = format!("{}{separator}ttl={}ms", self.url, ttl.as_millis());
        Ok(Manager(leasehold::connect(&url).await?))
    }
}

/// A session is a manager.
pub(super) struct Manager(LockManager);

impl Session for Manager {
    type Lock = Lock;
    type Held = LockGuard;

    async fn lock(&self, name: &str) -> Result<Lock, Failure> {
        Ok(self.0.lock(name)?)
    }

    async fn acquire(&self, lock: &Lock) -> Result<LockGuard, Failure> {
        Ok(lock.acquire().await?)
    }

    fn token(held: &LockGuard) -> Option<u64> {
        Some(held.token().get())
    }

    async fn release(&self, held: LockGuard) -> Result<(), Failure> {
        Ok(held.release().await?)
    }
}
