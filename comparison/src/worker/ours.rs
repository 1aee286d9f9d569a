//! Our own library, used as its README says: a session is a manager.

use std::time::Duration;

use contender_protocol::{Failure, Mode, Session};
use leasehold::{Lock, LockGuard, LockManager};

pub(super) struct Ours(LockManager);

impl Session for Ours {
    type Lock = Lock;
    type Held = LockGuard;

    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    async fn open(urls: &[String], ttl: Duration) -> Result<Self, Failure> {
        let url = urls.first().ok_or_else(|| Failure::new("no store is named"))?;
        let separator = if url.contains('?') { '&' } else { '?' };
        Ok(Self(leasehold::connect(&format!("{url}{separator}ttl={}ms", ttl.as_millis())).await?))
    }

    async fn lock(&self, name: &str) -> Result<Lock, Failure> {
        Ok(self.0.lock(name)?)
    }

    async fn lock_as(&self, name: &str, mode: Mode) -> Result<Lock, Failure> {
        let lock = self.0.lock(name)?;
        Ok(match mode {
            Mode::EXCLUSIVE => lock,
            Mode::SHARED => lock.shared(),
            Mode { weight, capacity } => lock.permits(weight, capacity),
        })
    }

    async fn acquire(&self, lock: &Lock) -> Result<LockGuard, Failure> {
        Ok(lock.acquire().await?)
    }

    async fn try_acquire(&self, lock: &Lock) -> Result<Option<LockGuard>, Failure> {
        Ok(lock.try_acquire().await?)
    }

    fn token(held: &LockGuard) -> Option<u64> {
        Some(held.token().get())
    }

    async fn release(&self, held: LockGuard) -> Result<(), Failure> {
        Ok(held.release().await?)
    }
}
