//! rslock: Redlock on one server or several. Waits by trying again after a random pause.

use std::time::Duration;

use contender_protocol::{Failure, Implementation, Session};
use rslock::{LockGuard, LockManager};

pub struct Rslock {
    urls: Vec<String>,
}

impl Rslock {
    pub fn new(urls: Vec<String>) -> Self {
        Self { urls }
    }
}

impl Implementation for Rslock {
    type Session = Manager;

    fn version(&self) -> String {
        "0.10.0".to_owned()
    }

    async fn open(&self, ttl: Duration) -> Result<Manager, Failure> {
        Ok(Manager { locks: LockManager::new(self.urls.clone()), ttl })
    }
}

pub struct Manager {
    locks: LockManager,
    ttl: Duration,
}

impl Session for Manager {
    type Lock = String;
    type Held = LockGuard;

    async fn lock(&self, name: &str) -> Result<String, Failure> {
        Ok(name.to_owned())
    }

    async fn acquire(&self, name: &String) -> Result<LockGuard, Failure> {
        Ok(self.locks.acquire(name.as_str(), self.ttl).await?)
    }

    fn token(_held: &LockGuard) -> Option<u64> {
        None
    }

    async fn release(&self, held: LockGuard) -> Result<(), Failure> {
        held.release().await;
        Ok(())
    }
}
