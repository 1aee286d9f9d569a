//! Locks that several hold: admitted too early or too late, or ended together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use leasehold_core::backend::{AcquireRequest, Attempt, Grant, Lease, LeaseId, LeaseScope, Renewal, Revoke};
use leasehold_core::clock::Deadline;
use leasehold_core::{LockName, Mode, Result};
use parking_lot::Mutex;

use super::releasing::Release;
use super::time::Undying;
use super::waiting::Abandoned;
use super::{each_session, store, table};
use crate::layer::{Below, Layer};

table! {
    readers_pass_writers, g7::a_reader_does_not_pass_a_waiting_writer, store(Readers::new(Entrance::PastWriters)),
        "readers pass waiting writers: a stream of readers blocks writers without end; Redisson#5379";
    admits_one_reader_per_release, g7::one_release_admits_whoever_fits, store(Readers::new(Entrance::OneByOne)),
        "readers behind a writer hold one at a time; Redisson#1542";
    younger_writers_block_readers, g7::one_release_admits_whoever_fits, store(Readers::new(Entrance::BehindYounger)),
        "a reader waits for a later writer that waits for the reader; kazoo#649";
    own_capacity_only, g1::the_smallest_capacity_counts, store(OwnCapacity::default()),
        "each client uses its own capacity, whatever the others use; madelson/DistributedLock#78";
    one_expiry_for_all_readers, g4::renewing_a_share_keeps_no_other, store(Shares::new(Tie::Expiry)),
        "the lock ends with the shortest lease of its readers; Redisson#2144";
    renews_everybodys_share, g4::renewing_a_share_keeps_no_other, store(Shares::new(Tie::Renewal)),
        "a live reader renews the share of a dead one, so writers wait without end; Redisson#7098";
    releasing_a_share_releases_all, g4::releasing_a_share_leaves_the_others, store(Shares::new(Tie::Release)),
        "the first reader that releases ends the hold of all; Redisson#891";
    release_adds_permits, g4::releasing_a_share_leaves_the_others, store(Release::ByName),
        "a repeated release ends the hold of another client; Redisson#5066";
    expired_weight_stays, g6::a_dead_permit_gives_its_weight_back, each_session(Undying::default),
        "the permits of a dead process are never returned; Redisson#2045";
    leaving_writer_wakes_nobody, g7::a_leaving_writer_lets_readers_in, store(Abandoned::LeavesLate),
        "a cancelled waiter leaves the queue, but the next one is not granted";
}

/// How readers get in.
#[derive(Debug)]
struct Readers {
    entrance: Entrance,
    made_up: AtomicU64,
    /// Writers that wait, by name.
    writers: Arc<Mutex<BTreeMap<LockName, usize>>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Entrance {
    PastWriters,
    OneByOne,
    BehindYounger,
}

/// A writer that waits; gone when dropped.
struct Writer {
    writers: Arc<Mutex<BTreeMap<LockName, usize>>>,
    name: LockName,
}

impl Readers {
    fn new(entrance: Entrance) -> Self {
        Self { entrance, made_up: AtomicU64::new(0), writers: Arc::default() }
    }

    fn writer(&self, name: &LockName) -> Writer {
        *self.writers.lock().entry(name.clone()).or_default() += 1;
        Writer { writers: Arc::clone(&self.writers), name: name.clone() }
    }

    /// A share that the store does not know of.
    fn make_up(&self, request: &AcquireRequest) -> Grant {
        let number = self.made_up.fetch_add(1, Ordering::Relaxed);
        let lease =
            Lease::new(LeaseId::new(u64::MAX - number), LeaseScope::Entry, request.ttl, Deadline::Never);
        Grant::new(request.name.clone(), request.owner, lease, (1 << 40) + number)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(waiting) = self.writers.lock().get_mut(&self.name) {
            *waiting -= 1;
        }
    }
}

#[async_trait]
impl Layer for Readers {
    async fn acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Grant> {
        if request.mode != Mode::SHARED {
            let _waits = self.writer(&request.name);
            return below.backend.acquire(request).await;
        }
        match self.entrance {
            Entrance::PastWriters => {
                let holders = below.backend.inspect(&request.name).await?.holders;
                let is_read = holders.first().is_some_and(|holder| holder.mode == Mode::SHARED);
                if is_read { Ok(self.make_up(request)) } else { below.backend.acquire(request).await }
            }
            Entrance::OneByOne => {
                let mut request = request.clone();
                request.mode = Mode::EXCLUSIVE;
                below.backend.acquire(&request).await
            }
            Entrance::BehindYounger => {
                let granted = below.backend.acquire(request).await?;
                while self.writers.lock().get(&request.name).is_some_and(|waiting| *waiting > 0) {
                    below.env.sleep(request.ttl / 100).await;
                }
                Ok(granted)
            }
        }
    }
}

/// Asks the store without a limit, and counts by itself.
#[derive(Debug, Default)]
struct OwnCapacity {
    held: Mutex<BTreeMap<LockName, BTreeMap<u64, u32>>>,
}

#[async_trait]
impl Layer for OwnCapacity {
    async fn try_acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Attempt> {
        let taken: u32 = self.held.lock().get(&request.name).map_or(0, |held| held.values().sum());
        if request.mode.capacity() < taken + request.mode.weight() {
            return Ok(Attempt::Held { holder: None });
        }
        let mut endless = request.clone();
        endless.mode = Mode::permits(request.mode.weight(), u32::MAX - 1)?;
        let attempt = below.backend.try_acquire(&endless).await?;
        if let Attempt::Granted(grant) = &attempt {
            let mut held = self.held.lock();
            held.entry(grant.name.clone()).or_default().insert(grant.counter, request.mode.weight());
        }
        Ok(attempt)
    }

    async fn release(&self, below: &Below, grant: &Grant) -> Result<()> {
        if let Some(held) = self.held.lock().get_mut(&grant.name) {
            held.remove(&grant.counter);
        }
        below.backend.release(grant).await
    }
}

/// What ties the shares of a lock together.
#[derive(Debug)]
struct Shares {
    tie: Tie,
    granted: Mutex<Vec<(Below, LeaseId)>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Tie {
    Expiry,
    Renewal,
    Release,
}

impl Shares {
    fn new(tie: Tie) -> Self {
        Self { tie, granted: Mutex::default() }
    }
}

#[async_trait]
impl Layer for Shares {
    fn granted(&self, below: &Below, grant: Grant) -> Grant {
        self.granted.lock().push((below.clone(), grant.lease.id));
        if self.tie == Tie::Expiry {
            let (there, name, ttl) = (below.clone(), grant.name.clone(), grant.lease.ttl);
            below.env.spawn(async move {
                there.env.sleep(ttl).await;
                // Too late for the one, too early for the others.
                let _ = there.backend.revoke(&name, Revoke::Force).await;
            });
        }
        grant
    }

    async fn renew(&self, below: &Below, leases: &[LeaseId]) -> Vec<Renewal> {
        if self.tie == Tie::Renewal {
            let all: Vec<_> = self.granted.lock().iter().cloned().collect();
            for (there, lease) in all {
                there.backend.renew(&[lease]).await;
            }
        }
        below.backend.renew(leases).await
    }

    async fn release(&self, below: &Below, grant: &Grant) -> Result<()> {
        let released = below.backend.release(grant).await;
        if self.tie == Tie::Release {
            below.backend.revoke(&grant.name, Revoke::Force).await?;
        }
        released
    }
}
