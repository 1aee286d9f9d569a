//! Locks that several hold: who is let in too early or too late, and who ends with whom.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use leasehold_core::backend::{AcquireRequest, Attempt, Grant, Lease, LeaseId, LeaseScope, Renewal, Revoke};
use leasehold_core::clock::Deadline;
use leasehold_core::{LockName, Mode, Result};
use parking_lot::Mutex;

use super::{store, table};
use crate::layer::{Below, Layer};

table! {
    readers_pass_writers, g7::a_reader_does_not_pass_a_waiting_writer, store(Readers::new(Entrance::PastWriters)),
        "readers pass waiting writers: a stream of readers blocks writers without end; Redisson#5379";
    admits_one_reader_per_release, g7::one_release_admits_whoever_fits, store(Readers::new(Entrance::OneByOne)),
        "readers behind a writer hold one at a time; Redisson#1542";
    younger_writers_block_readers, g7::a_writer_does_not_pass_readers, store(Readers::new(Entrance::BehindYounger)),
        "a reader waits for a later writer that waits for the reader; kazoo#649";
    own_capacity_only, g1::the_smallest_capacity_counts, store(OwnCapacity::default()),
        "each client uses its own capacity, whatever the others use; madelson/DistributedLock#78";
    one_expiry_for_all_readers, g4::renewing_a_share_keeps_no_other, store(Shares::new(Tie::OneExpiry)),
        "the lock ends with the shortest lease of its readers; Redisson#2144";
    renews_everybodys_share, g4::renewing_a_share_keeps_no_other, store(Shares::new(Tie::OneRenewal)),
        "a live reader renews the share of a dead one, so writers wait without end; Redisson#7098";
    releasing_a_share_releases_all, g4::releasing_a_share_leaves_the_others, store(Shares::new(Tie::OneRelease)),
        "the first reader that releases ends the hold of all; Redisson#891";
    release_adds_permits, g4::releasing_a_share_leaves_the_others, store(Shares::new(Tie::AnyRelease)),
        "a repeated release ends the hold of another client; Redisson#5066";
    expired_weight_stays, g6::a_dead_permit_gives_its_weight_back, store(Shares::new(Tie::NoExpiry)),
        "the permits of a dead process are never returned; Redisson#2045";
    leaving_writer_wakes_nobody, g7::a_leaving_writer_lets_readers_in, store(LeavesLate),
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
    OneExpiry,
    OneRenewal,
    OneRelease,
    AnyRelease,
    NoExpiry,
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
        let (there, name, lease) = (below.clone(), grant.name.clone(), grant.lease);
        match self.tie {
            Tie::OneExpiry => below.env.spawn(async move {
                there.env.sleep(lease.ttl).await;
                // Too late for the one, too early for the others.
                let _ = there.backend.revoke(&name, Revoke::Force).await;
            }),
            Tie::NoExpiry => below.env.spawn(async move {
                while matches!(there.backend.renew(&[lease.id]).await.first(), Some(Renewal::Until(_))) {
                    there.env.sleep(lease.ttl / 3).await;
                }
            }),
            Tie::OneRenewal | Tie::OneRelease | Tie::AnyRelease => {}
        }
        grant
    }

    async fn renew(&self, below: &Below, leases: &[LeaseId]) -> Vec<Renewal> {
        if self.tie == Tie::OneRenewal {
            let all: Vec<_> = self.granted.lock().iter().cloned().collect();
            for (there, lease) in all {
                there.backend.renew(&[lease]).await;
            }
        }
        below.backend.renew(leases).await
    }

    async fn release(&self, below: &Below, grant: &Grant) -> Result<()> {
        let released = below.backend.release(grant).await;
        match self.tie {
            Tie::OneRelease => drop(below.backend.revoke(&grant.name, Revoke::Force).await?),
            Tie::AnyRelease if released.is_err() => {
                drop(below.backend.revoke(&grant.name, Revoke::Force).await?);
                return Ok(());
            }
            Tie::OneExpiry | Tie::OneRenewal | Tie::AnyRelease | Tie::NoExpiry => {}
        }
        released
    }
}

/// A wait that is given up ends much later.
#[derive(Debug)]
struct LeavesLate;

#[async_trait]
impl Layer for LeavesLate {
    async fn acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Grant> {
        let (mut reply, answer) = tokio::sync::oneshot::channel();
        let (there, request) = (below.clone(), request.clone());
        below.env.spawn(async move {
            let mut acquiring = there.backend.acquire(&request);
            tokio::select! {
                biased;
                granted = &mut acquiring => drop(reply.send(granted)),
                () = reply.closed() => {
                    there.env.sleep(request.ttl * 9 / 10).await;
                    drop(acquiring);
                }
            }
        });
        answer.await.unwrap_or_else(|_| Err(leasehold_core::Error::lost(leasehold_core::LostReason::Gone)))
    }
}
