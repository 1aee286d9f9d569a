//! Acquisitions and attempts that grant what is held, or leave something behind.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use lockcore::backend::{AcquireRequest, Attempt, Grant, Lease, LeaseId, LeaseScope};
use lockcore::clock::Deadline;
use lockcore::{OwnerId, Result};
use parking_lot::Mutex;

use super::time::Events;
use super::{Mutant, Mutation};
use crate::layer::{Below, Layer, shared};
use crate::network::{CleanUp, Network};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "grants_what_is_held",
        story: "one acquisition in five is granted whoever holds the lock",
        caught_by: "g1::one_holder_at_a_time",
        make: || Mutation::Store(shared(Arc::new(Generous::default()))),
    },
    Mutant {
        name: "try_waits",
        story: "asking once is waiting",
        caught_by: "g9::try_does_not_wait",
        make: || Mutation::Store(shared(Arc::new(Try::Waits))),
    },
    Mutant {
        name: "try_queues",
        story: "an attempt that was refused stays in the queue; Redisson's fair lock, #5019",
        caught_by: "g9::try_leaves_no_trace",
        make: || Mutation::Store(shared(Arc::new(Try::Queues))),
    },
    Mutant {
        name: "waiting_is_not_announced",
        story: "nobody renews the place of somebody who waits",
        caught_by: "g7::waiting_beyond_the_ttl_keeps_the_place",
        make: || Mutation::Store(shared(Arc::new(Events::HidesLeases))),
    },
    Mutant {
        name: "no_clean_up",
        story: "a cancelled wait stays in the queue; kazoo#732, CURATOR-79, the Go client's Mutex.Lock",
        caught_by: "g8::cancelled_wait_leaves_nothing",
        make: || Mutation::Store(Network::with_clean_up(std::time::Duration::ZERO, CleanUp::Never).wrap()),
    },
    Mutant {
        name: "one_shot_clean_up",
        story: "the clean-up runs before the delayed request it should undo; kazoo#760",
        caught_by: "g8::cancelled_acquire_leaves_nothing",
        make: || {
            let delay = std::time::Duration::from_millis(5);
            Mutation::Store(Network::with_clean_up(delay, CleanUp::Once).wrap())
        },
    },
    Mutant {
        name: "waits_on_without_a_place",
        story: "a waiter whose own lease ended goes on waiting, for ever; etcd#19597",
        caught_by: "g6::a_lost_waiter_queues_again",
        make: || Mutation::Store(shared(Arc::new(LateLease::NeverReturns))),
    },
    Mutant {
        name: "hold_is_born_dead",
        story: "the lock is returned on a lease that ended while waiting; etcd#11456",
        caught_by: "g6::a_lost_waiter_queues_again",
        make: || Mutation::Store(shared(Arc::new(LateLease::ReturnsDead))),
    },
];

/// Counts grants itself, so that those it makes up are not told by their numbers.
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
            let lease = Lease {
                id: LeaseId::new(u64::MAX - asked),
                scope: LeaseScope::Entry,
                ttl: request.ttl,
                deadline: Deadline::Never,
            };
            let counter = self.counter.fetch_add(1, Ordering::Relaxed) + 1;
            return Ok(Grant { name: request.name.clone(), owner: request.owner, lease, counter });
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
                        // Whatever comes of it, nobody wants it any more.
                        let _ = there.backend.acquire(&request).await;
                    });
                }
                Ok(attempt)
            }
        }
    }
}

/// What a wait for longer than a lease comes to.
#[derive(Debug)]
enum LateLease {
    NeverReturns,
    ReturnsDead,
}

#[async_trait]
impl Layer for LateLease {
    async fn acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Grant> {
        let queued_at = below.env.now();
        match self {
            Self::NeverReturns => {
                tokio::select! {
                    biased;
                    granted = below.backend.acquire(request) => return granted,
                    () = below.env.sleep(request.ttl) => {}
                }
                std::future::pending().await
            }
            Self::ReturnsDead => {
                let mut grant = below.backend.acquire(request).await?;
                grant.lease.deadline = below.env.deadline(queued_at, grant.lease.ttl);
                Ok(grant)
            }
        }
    }
}
