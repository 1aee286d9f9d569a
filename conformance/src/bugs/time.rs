//! Leases that are trusted too long, kept too long, or ended without a word.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use leasehold_core::backend::{AcquireRequest, Attempt, Grant, LeaseId, Renewal, StoreEvent};
use leasehold_core::clock::{Clock, Deadline, Moment};
use leasehold_core::{LockName, LostReason, OwnerId, Result};
use parking_lot::Mutex;

use super::{Mutation, driver, each_session, store, table};
use crate::host::HostClock;
use crate::layer::{Below, Layer};

table! {
    deadline_from_receipt, g2::deadline_counts_from_sending, driver(Trust::FromReceipt),
        "a grant is trusted for a ttl from its arrival";
    renewal_from_receipt, g2::deadline_counts_from_sending, driver(Trust::RenewalFromReceipt),
        "a renewal is trusted for a ttl from its reply; the etcd Go client's deadline loop";
    no_margin, g2::a_slow_clock_is_told_before_another_holds, driver(Trust::WithoutMargin),
        "all clocks are assumed to run at the same speed";
    renewal_always_succeeds, g4::renewing_an_expired_lease_is_refused, driver(Trust::Always),
        "a keep-alive succeeds although the entry was removed; etcd#14758, Redisson#5698";
    renewal_revives, g4::renewing_a_released_lock_does_not_revive_it, each_session(Reviving::default),
        "the watchdog outlives the release and sets the entry anew; Redisson#2714, #4368";
    bound_is_forgotten, g2::a_bounded_hold_ends_in_time, Mutation::Bound(|lock, _span| lock),
        "a hold is renewed beyond its `max_hold`";
    renews_by_itself, g6::a_dead_holder_frees_the_lock, each_session(Undying::default),
        "a timer of the store's client renews the lock of a dead user; Redisson#1966, #7272";
    loss_is_not_told, g4::revoke_ends_the_hold, store(Events::HidesLoss),
        "a revoked holder is never notified; Redisson#3712";
    grace_is_ignored, g4::a_grace_lets_the_holder_finish, store(Events::CutsGrace),
        "a holder loses the lock at once instead of after the grace period";
    grace_is_endless, g4::a_grace_ends_the_hold, store(Events::Endless),
        "a holder keeps the lock after the grace period";
    revoking_one_loses_all, g10::revoking_one_name_leaves_others_held, each_session(AllOrNothing::default),
        "the revocation of one name ends the whole session";
    clock_stops_in_suspend, g2::a_suspended_host_knows_at_once, Mutation::Clock(|host| Arc::new(AwakeClock(host))),
        "std's Instant and tokio's timers stop while the host is suspended; rust#87906, tokio#3185";
}

/// How long answers are trusted.
#[derive(Debug)]
enum Trust {
    FromReceipt,
    RenewalFromReceipt,
    WithoutMargin,
    Always,
}

fn without_margin(below: &Below, deadline: Deadline) -> Deadline {
    let timing = below.env.timing();
    match deadline {
        Deadline::At(at) => Deadline::At(at + timing.margin(timing.ttl)),
        Deadline::Never => Deadline::Never,
    }
}

#[async_trait]
impl Layer for Trust {
    fn granted(&self, below: &Below, mut grant: Grant) -> Grant {
        let lease = &mut grant.lease;
        lease.deadline = match self {
            Self::FromReceipt => below.env.deadline(below.env.now(), lease.ttl),
            Self::WithoutMargin => without_margin(below, lease.deadline),
            Self::RenewalFromReceipt | Self::Always => lease.deadline,
        };
        grant
    }

    async fn renew(&self, below: &Below, leases: &[LeaseId]) -> Vec<Renewal> {
        // One that always succeeds needs no request.
        let answers = match self {
            Self::Always => leases.iter().map(|_| Renewal::Until(Deadline::Never)).collect(),
            _ => below.backend.renew(leases).await,
        };
        let fresh = below.env.deadline(below.env.now(), below.env.timing().ttl);
        let trusted = |answer| match (self, answer) {
            (Self::Always | Self::RenewalFromReceipt, Renewal::Until(_)) => Renewal::Until(fresh),
            (Self::WithoutMargin, Renewal::Until(deadline)) => {
                Renewal::Until(without_margin(below, deadline))
            }
            (_, answer) => answer,
        };
        answers.into_iter().map(trusted).collect()
    }
}

/// Renewals that create.
#[derive(Debug, Default)]
struct Reviving {
    released: Mutex<HashMap<LeaseId, (LockName, OwnerId)>>,
}

#[async_trait]
impl Layer for Reviving {
    async fn renew(&self, below: &Below, leases: &[LeaseId]) -> Vec<Renewal> {
        let mut answers = below.backend.renew(leases).await;
        for (lease, answer) in leases.iter().zip(&mut answers) {
            let revived = self.released.lock().remove(lease);
            if let Some((name, owner)) = revived {
                let request = AcquireRequest::new(name, owner, below.env.timing().ttl);
                if let Ok(Attempt::Granted(grant)) = below.backend.try_acquire(&request).await {
                    *answer = Renewal::Until(grant.lease.deadline);
                }
            }
        }
        answers
    }

    async fn release(&self, below: &Below, grant: &Grant) -> Result<()> {
        self.released.lock().insert(grant.lease.id, (grant.name.clone(), grant.owner));
        below.backend.release(grant).await
    }
}

/// Grants that renew themselves until they are released.
#[derive(Debug, Default)]
pub(super) struct Undying {
    kept: Arc<Mutex<Vec<LeaseId>>>,
}

#[async_trait]
impl Layer for Undying {
    fn granted(&self, below: &Below, grant: Grant) -> Grant {
        self.kept.lock().push(grant.lease.id);
        let (kept, below, lease) = (Arc::clone(&self.kept), below.clone(), grant.lease);
        below.env.clone().spawn(async move {
            while kept.lock().contains(&lease.id) {
                below.env.sleep(lease.ttl / 3).await;
                below.backend.renew(&[lease.id]).await;
            }
        });
        grant
    }

    async fn release(&self, below: &Below, grant: &Grant) -> Result<()> {
        self.kept.lock().retain(|lease| *lease != grant.lease.id);
        below.backend.release(grant).await
    }
}

/// What the events of a session report.
#[derive(Debug)]
pub(super) enum Events {
    HidesLoss,
    HidesLeases,
    CutsGrace,
    Endless,
}

impl Layer for Events {
    fn events(&self, below: &Below) -> BoxStream<'static, StoreEvent> {
        let told = match self {
            Self::HidesLoss => |event: &StoreEvent| {
                use StoreEvent::{GrantLost, LeaseLost, RevocationRequested};
                !matches!(event, GrantLost { .. } | RevocationRequested { .. } | LeaseLost { .. })
            },
            Self::HidesLeases => |event: &StoreEvent| !matches!(event, StoreEvent::LeaseOpened(_)),
            Self::CutsGrace | Self::Endless => |_: &StoreEvent| true,
        };
        let graced = match self {
            Self::CutsGrace => |_: Duration| Duration::ZERO,
            Self::Endless => |within: Duration| within * 100,
            Self::HidesLoss | Self::HidesLeases => |within: Duration| within,
        };
        let changed = move |mut event| {
            if let StoreEvent::RevocationRequested { within, .. } = &mut event {
                *within = graced(*within);
            }
            event
        };
        below.backend.events().filter(move |event| std::future::ready(told(event))).map(changed).boxed()
    }
}

/// One loss is every loss.
#[derive(Debug, Default)]
struct AllOrNothing {
    granted: Arc<Mutex<Vec<LeaseId>>>,
}

impl Layer for AllOrNothing {
    fn granted(&self, _below: &Below, grant: Grant) -> Grant {
        self.granted.lock().push(grant.lease.id);
        grant
    }

    fn events(&self, below: &Below) -> BoxStream<'static, StoreEvent> {
        let granted = Arc::clone(&self.granted);
        let spread = move |event| {
            let reason = match event {
                StoreEvent::GrantLost { reason, .. } => reason,
                StoreEvent::RevocationRequested { within, .. } if within.is_zero() => LostReason::Revoked,
                event => return stream::iter(vec![event]),
            };
            let lost = granted.lock().clone();
            let lost = lost.into_iter().map(|lease| StoreEvent::LeaseLost { lease, reason });
            stream::iter(lost.collect::<Vec<_>>())
        };
        below.backend.events().flat_map(spread).boxed()
    }
}

/// Time awake.
#[derive(Debug)]
struct AwakeClock(HostClock);

impl Clock for AwakeClock {
    fn now(&self) -> Moment {
        self.0.now().saturating_sub(self.0.asleep())
    }

    fn sleep_until(&self, at: Moment) -> BoxFuture<'static, ()> {
        self.0.sleep_until(at + self.0.asleep())
    }

    fn wall_time(&self) -> SystemTime {
        self.0.wall_time()
    }
}
