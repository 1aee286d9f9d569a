//! distributed-lock (Redis). Its `acquire` does not wait, so whoever wants to wait tries again; the
//! pause of 10 ms in between is ours.
//!
//! Its defaults are for a ttl of 30 s: it wants 27 s of it to be left, and renews every 10 s. Here these are
//! the same parts of whatever the ttl is.

use std::time::Duration;

use contender_protocol::{Failure, Session};
use distributed_lock_core::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_redis::RedisLockProvider;

pub struct Provider(RedisLockProvider);

type Lock = <RedisLockProvider as LockProvider>::Lock;

impl Session for Provider {
    type Lock = Lock;
    type Held = <Lock as DistributedLock>::Handle;

    const VERSION: &'static str = "0.2.0";

    async fn open(urls: &[String], ttl: Duration) -> Result<Self, Failure> {
        let provider = RedisLockProvider::builder().urls(urls).expiry(ttl);
        let provider = provider.min_validity(ttl * 9 / 10).extension_cadence(ttl / 3);
        Ok(Self(provider.build().await?))
    }

    async fn lock(&self, name: &str) -> Result<Lock, Failure> {
        Ok(self.0.create_lock(name))
    }

    async fn acquire(&self, lock: &Lock) -> Result<Self::Held, Failure> {
        loop {
            if let Some(held) = lock.try_acquire().await? {
                return Ok(held);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn release(&self, held: Self::Held) -> Result<(), Failure> {
        Ok(held.release().await?)
    }
}

const PAUSE: Duration = Duration::from_millis(10);
