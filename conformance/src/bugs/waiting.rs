//! Acquisitions and attempts that grant what is held, or leave something behind.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{AcquireRequest, Attempt, Grant, Lease, LeaseId, LeaseScope};
use leasehold_core::clock::Deadline;
use leasehold_core::{Effect, Error, ErrorKind, OwnerId, Result};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::time::Events;
use super::{store, table};
use crate::layer::{Below, Layer};

table! {
    grants_what_is_held, g1::one_holder_at_a_time, store(Generous::default()),
        "one acquisition in five is granted although the lock is held";
    try_waits, g9::try_does_not_wait, store(Try::Waits),
        "a try waits";
    try_queues, g9::try_does_not_wait, store(Try::Queues),
        "a refused try stays in the queue; Redisson's fair lock, #5019";
    waiting_is_not_announced, g7::waiting_beyond_the_ttl_keeps_the_place, store(Events::HidesLeases),
        "the place of a waiter is not renewed";
    no_clean_up, g8::cancelled_wait_leaves_nothing, store(Abandoned::GoesOn),
        "a cancelled wait stays in the queue; kazoo#732, CURATOR-79, the Go client's Mutex.Lock";
    one_shot_clean_up, g8::cancelled_acquire_leaves_nothing, store(Abandoned::LookedForOnce),
        "the clean-up runs before the delayed request that it should undo; kazoo#760";
    waits_on_without_a_place, g6::a_lost_wait_ends, store(LateLease::NeverReturns),
        "a waiter whose lease ended waits without end; etcd#19597";
    hold_is_born_dead, g6::a_lost_wait_ends, store(LateLease::ReturnsDead),
        "the lock is granted on a lease that ended while waiting; etcd#11456";
    lost_and_still_queued, g6::a_lost_wait_ends, store(LateLease::LeavesAnEntry),
        "a waiter whose place was reported lost still has an entry in the queue";
    a_wait_ends_with_its_place, g6::a_lost_waiter_queues_again, store(LateLease::Refuses),
        "a waiter whose lease ended gets an error instead of a new place";
}

/// Counts grants itself, so that its own grants cannot be recognized by their numbers.
#[derive(Debug, Default)]
struct Generous {
    asked: AtomicU64,
    counter: AtomicU64,
    made_up: Mutex<HashSet<OwnerId>>,
}

#[async_trait]
impl Layer for Generous {
    async fn acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Grant> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        if asked % 5 == 4 {
            self.made_up.lock().insert(request.owner);
            let id = LeaseId::new(u64::MAX - asked);
            let lease = Lease::new(id, LeaseScope::Entry, request.ttl, Deadline::Never);
            let counter = self.counter.fetch_add(1, Ordering::Relaxed) + 1;
            return Ok(Grant::new(request.name.clone(), request.owner, lease, counter));
        }
        let mut grant = below.backend.acquire(request).await?;
        grant.counter = self.counter.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(grant)
    }

    async fn release(&self, below: &Below, grant: &Grant) -> Result<()> {
        if self.made_up.lock().remove(&grant.owner) {
            return Ok(());
        }
        below.backend.release(grant).await
    }
}

#[derive(Debug)]
enum Try {
    Waits,
    Queues,
}

#[async_trait]
impl Layer for Try {
    async fn try_acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Attempt> {
        match self {
            Self::Waits => below.backend.acquire(request).await.map(Attempt::Granted),
            Self::Queues => {
                let attempt = below.backend.try_acquire(request).await?;
                if let Attempt::Held { .. } = attempt {
                    let (there, request) = (below.clone(), request.clone());
                    below.env.spawn(async move {
                        // Its result is not used.
                        let _ = there.backend.acquire(&request).await;
                    });
                }
                Ok(attempt)
            }
        }
    }
}

/// What becomes of an acquisition whose caller has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Abandoned {
    GoesOn,
    LookedForOnce,
    LeavesLate,
}

#[async_trait]
impl Layer for Abandoned {
    async fn acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Grant> {
        let (mut reply, answer) = oneshot::channel();
        let (there, request, manner) = (below.clone(), request.clone(), *self);
        below.env.spawn(async move {
            if manner == Self::LookedForOnce {
                there.env.sleep(Duration::from_millis(5)).await;
            }
            let ends = match manner {
                Self::GoesOn => false,
                Self::LookedForOnce => !reply.is_closed(),
                Self::LeavesLate => true,
            };
            let mut acquiring = there.backend.acquire(&request);
            tokio::select! {
                biased;
                // The bug: the caller may have left, and the grant stays.
                granted = &mut acquiring => drop(reply.send(granted)),
                () = reply.closed(), if ends => {
                    if manner == Self::LeavesLate {
                        there.env.sleep(request.ttl * 9 / 10).await;
                    }
                }
            }
        });
        let gone = || Err(Error::new(ErrorKind::Unavailable, Effect::Unknown, "the runtime is gone"));
        answer.await.unwrap_or_else(|_| gone())
    }
}

/// What a wait for longer than a lease comes to.
#[derive(Debug)]
enum LateLease {
    NeverReturns,
    ReturnsDead,
    LeavesAnEntry,
    Refuses,
}

#[async_trait]
impl Layer for LateLease {
    async fn acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Grant> {
        let queued_at = below.env.now();
        match self {
            Self::NeverReturns => {
                let granted = below.backend.acquire(request).await;
                if granted.as_ref().is_err_and(|error| error.lost_reason().is_some()) {
                    std::future::pending().await
                }
                granted
            }
            Self::LeavesAnEntry => {
                let granted = below.backend.acquire(request).await;
                if granted.is_err() {
                    let (there, mut request) = (below.clone(), request.clone());
                    request.owner = below.env.owner_id();
                    below.env.spawn(async move {
                        // It is not requested.
                        let _ = there.backend.acquire(&request).await;
                    });
                }
                granted
            }
            Self::Refuses => below.backend.acquire(request).await.map_err(|error| {
                let is_lost = error.lost_reason().is_some();
                if is_lost { error.with_kind(ErrorKind::Protocol) } else { error }
            }),
            Self::ReturnsDead => {
                let mut granted = below.backend.acquire(request).await;
                while granted.as_ref().is_err_and(|error| error.lost_reason().is_some()) {
                    granted = below.backend.acquire(request).await;
                }
                granted.map(|mut grant| {
                    grant.lease.deadline = below.env.deadline(queued_at, grant.lease.ttl);
                    grant
                })
            }
        }
    }
}
