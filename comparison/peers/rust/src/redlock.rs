//! rslock: Redlock on one server or several. Waits by trying again after a random pause.

use std::time::Duration;

use contender_protocol::{Failure, Session};
use rslock::{LockError, LockGuard, LockManager};

pub struct Manager {
    locks: LockManager,
    ttl: Duration,
}

impl Session for Manager {
    type Lock = String;
    type Held = LockGuard;

    const VERSION: &'static str = "0.10.0";

    async fn open(urls: &[String], ttl: Duration) -> Result<Self, Failure> {
        Ok(Self { locks: LockManager::new(urls.to_vec()), ttl })
    }

    async fn lock(&self, name: &str) -> Result<String, Failure> {
        Ok(name.to_owned())
    }

    async fn acquire(&self, name: &String) -> Result<LockGuard, Failure> {
        Ok(self.locks.acquire(name.as_str(), self.ttl).await?)
    }

    async fn try_acquire(&self, name: &String) -> Result<Option<LockGuard>, Failure> {
        let mut once = self.locks.clone();
        once.set_retry(1, Duration::ZERO);
        match once.lock(name.as_str(), self.ttl).await {
            Ok(lock) => Ok(Some(LockGuard { lock })),
            Err(LockError::Unavailable) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn extend(&self, held: &mut LockGuard) -> Result<(), Failure> {
        held.lock = self.locks.extend(&held.lock, self.ttl).await?;
        Ok(())
    }

    /// It does not say whether the lock was still its own.
    async fn release(&self, held: LockGuard) -> Result<(), Failure> {
        held.release().await;
        Ok(())
    }
}
