//! rslock: Redlock on one server or several. Waits by trying again after a random pause.

use std::time::Duration;

use contender_protocol::{Failure, Session};
use rslock::{LockGuard, LockManager};

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

    async fn release(&self, held: LockGuard) -> Result<(), Failure> {
        held.release().await;
        Ok(())
    }
}
