//! Ownership: a release or renewal of one hold never affects another.

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{try_join, try_join_all};
use leasehold_core::backend::{Grant, LeaseScope, Renewal, Revocation, Revoke};
use leasehold_core::clock::Moment;
use leasehold_core::{Effect, GuardState, LockGuard, LockManager, LostReason, Mode};

use crate::{Failure, Outcome, Pace, Session, Task, World, case, ensure};

case::table! { "g4":
    release_frees_the_lock: "after a confirmed release the next client gets the lock",
    a_stale_release_changes_nothing [LEASED]: "a release after the end of the lease returns `Lost`, and the \
         new holder stays",
    a_second_release_is_lost: "a repeated release does not end a later grant of the same session",
    renewing_a_released_lock_does_not_revive_it [LEASED]: "a renewal after the release leaves the lock free",
    renewing_an_expired_lease_is_refused [LEASED]: "the renewal of an ended lease returns gone, and the \
         next holder stays",
    releasing_one_name_leaves_others_held: "one session's other holds survive a release",
    revoke_ends_the_hold: "a revoked holder is notified, loses the lock, and its release returns `Lost`",
    a_grace_lets_the_holder_finish: "a holder with a grace period gets the deadline, holds meanwhile, and \
         releases",
    a_grace_ends_the_hold: "a holder that does not release within the grace period loses the lock at its end",
    revoking_a_free_lock_says_so: "the revocation of a free lock reports that it is not held",
    a_deaf_holder_keeps_the_lock_until_forced [LEASED]: "a holder that does not answer is reported, and \
         only force ends its hold",
    hold_at_least_outlasts_the_release: "a job with a `hold_at_least` runs once per period on two hosts whose clocks differ",
    releasing_a_share_leaves_the_others [SHARED]: "who lets go, even twice, ends nobody else's hold",
    renewing_a_share_keeps_no_other [SHARED|LEASED]: "each share lives by its own renewals",
    revoke_asks_every_holder [SHARED]: "all who share a lock are asked, or lose it by force, and the writer behind them holds",
}

async fn release_frees_the_lock(world: World) -> Outcome {
    let (first, second) = (world.session().await?, world.session().await?);
    let grant = first.take("a").await?;
    ensure!(second.try_acquire("a").await?.is_none(), "held twice");
    first.backend.release(&grant).await?;
    let grant = second.try_acquire("a").await?;
    ensure!(grant.is_some(), "released, but not free");
    Ok(())
}

/// Jobs of two hosts that come at the begin of each period, one of them later by `skew`: the times of their runs, and whether the
/// ends of both sessions were confirmed.
async fn periodic(world: World, name: String, periods: u32, skew: Duration) -> Outcome<(Vec<Moment>, bool)> {
    let hosts = [(world.manager().await?, Duration::ZERO), (world.manager().await?, skew)];
    let began = world.now();
    let host = |(manager, skew): (LockManager, Duration)| {
        let (world, name) = (world.clone(), name.clone());
        Task::start(async move {
            let (mut runs, mut in_time) = (Vec::new(), true);
            let job = manager.lock(name)?.hold_at_least(AT_LEAST);
            for period in 0..periods {
                let comes_at = began + PERIOD * period + skew;
                world.pass(comes_at.since(world.now())).await;
                let granted = job.try_acquire().await?;
                in_time &= world.now() < comes_at + LATE;
                if let Some(guard) = granted {
                    runs.push(world.now());
                    world.pass(Duration::from_millis(50)).await;
                    guard.release().await?;
                }
            }
            // Its last hold goes on for as long as it has to. A busy server may not confirm the end of the session in time: its
            // lease ends it then.
            let is_confirmed = match manager.shutdown().await {
                Err(error) if error.effect() == Effect::Unknown => false,
                closed => closed.map(|()| true)?,
            };
            Outcome::Ok((runs, in_time, is_confirmed))
        })
    };
    let [first, second] = hosts.map(host);
    let ((first, first_in_time, first_ended), (second, second_in_time, second_ended)) =
        (first.await??, second.await??);
    let mut runs = [first, second].concat();
    runs.sort();
    // On a machine that is busier than that it may be another number.
    let is_counted = first_in_time && second_in_time;
    ensure!(
        !is_counted || runs.len() == periods as usize,
        "{} runs in {periods} periods, {skew:?} apart",
        runs.len()
    );
    Ok((runs, first_ended && second_ended))
}

async fn hold_at_least_outlasts_the_release(world: World) -> Outcome {
    let (jobs, periods) = if world.pace() == Pace::Virtual { (1, 100) } else { world.periods() };
    let skews = [Duration::from_millis(300), Duration::from_secs(1)];
    let jobs = (0..jobs).flat_map(|job| skews.map(|skew| (format!("job {job} {skew:?}"), skew)));
    let runs = jobs.map(|(name, skew)| periodic(world.clone(), name, periods, skew));
    let mut are_confirmed = true;
    for (runs, is_confirmed) in try_join_all(runs).await? {
        are_confirmed &= is_confirmed;
        let spans: Vec<_> = runs.windows(2).map(|pair| pair[1].since(pair[0])).collect();
        ensure!(spans.iter().all(|span| AT_LEAST <= *span), "held for less than {AT_LEAST:?}: {spans:?}");
    }
    let bound = if are_confirmed { world.soon() } else { world.takeover() };
    world.empty(bound, "the holds have ended").await
}

const PERIOD: Duration = Duration::from_secs(4);
const AT_LEAST: Duration = Duration::from_millis(2_500);
/// So late neither comes after the hold of the other one, nor before the end of the last one.
const LATE: Duration = Duration::from_secs(1);

/// A session whose lease has ended, what it was granted, and the next holder.
async fn overtaken(world: &World) -> Outcome<(Session, Grant, LockGuard)> {
    let (late, next) = (world.session().await?, world.manager().await?.lock("a")?);
    let grant = late.take("a").await?;
    let guard = world.within(world.takeover(), "the next holder", next.acquire()).await??;
    Ok((late, grant, guard))
}

async fn a_stale_release_changes_nothing(world: World) -> Outcome {
    let (late, stale, guard) = overtaken(&world).await?;
    let answer = late.backend.release(&stale).await;
    let third = world.session().await?;
    ensure!(third.try_acquire("a").await?.is_none(), "a stale release took the lock from its holder");
    let reason = answer.as_ref().err().and_then(leasehold_core::Error::lost_reason);
    ensure!(reason.is_some(), "a stale release was answered {answer:?}");
    guard.release().await?;
    Ok(())
}

async fn a_second_release_is_lost(world: World) -> Outcome {
    let (session, rival) = (world.session().await?, world.session().await?);
    let first = session.take("a").await?;
    session.backend.release(&first).await?;
    let second = session.take("a").await?;
    let answer = session.backend.release(&first).await;
    let reason = answer.as_ref().err().and_then(leasehold_core::Error::lost_reason);
    ensure!(reason.is_some(), "the second release of one grant was answered {answer:?}");
    ensure!(rival.try_acquire("a").await?.is_none(), "it ended a later grant of the same process");
    session.backend.release(&second).await?;
    Ok(())
}

async fn renewing_a_released_lock_does_not_revive_it(world: World) -> Outcome {
    let (session, rival) = (world.session().await?, world.session().await?);
    let grant = session.take("a").await?;
    session.backend.release(&grant).await?;
    let answer = session.renew(grant.lease.id).await?;
    if grant.lease.scope == LeaseScope::Entry {
        ensure!(matches!(answer, Renewal::Gone(_)), "the lease of a released entry was answered {answer:?}");
    }
    ensure!(world.inspect("a").await?.holder().is_none(), "a renewal brought a released lock back");
    ensure!(rival.try_acquire("a").await?.is_some(), "a renewal brought a released lock back");
    Ok(())
}

async fn renewing_an_expired_lease_is_refused(world: World) -> Outcome {
    let (late, expired, guard) = overtaken(&world).await?;
    let answer = late.renew(expired.lease.id).await?;
    ensure!(matches!(answer, Renewal::Gone(_)), "a lease that has ended was answered {answer:?}");
    guard.renew().await?;
    let third = world.session().await?;
    ensure!(third.try_acquire("a").await?.is_none(), "renewing an old lease took the lock away");
    Ok(())
}

async fn releasing_one_name_leaves_others_held(world: World) -> Outcome {
    let (session, rival) = (world.session().await?, world.session().await?);
    let (grant, other) = (session.take("a").await?, session.take("b").await?);
    session.backend.release(&grant).await?;
    ensure!(rival.try_acquire("b").await?.is_none(), "the release of one lock ended another");
    if world.guarantees().contains(leasehold_core::Guarantees::LEASED) {
        let answer = session.renew(other.lease.id).await?;
        ensure!(matches!(answer, Renewal::Until(_)), "the other lock's lease was answered {answer:?}");
    }
    session.backend.release(&other).await?;
    Ok(())
}

async fn revoke_ends_the_hold(world: World) -> Outcome {
    let (holder, admin) = (world.manager().await?, world.manager().await?);
    let guard = holder.lock("a")?.acquire().await?;
    let revoked = world.within(world.soon(), "the revocation", admin.revoke("a", Revoke::AT_ONCE)).await??;
    ensure!(revoked == Revocation::Released, "a living holder's answer was {revoked:?}");
    let reason = world.within(world.soon(), "the holder is notified", guard.lost()).await?;
    ensure!(reason == LostReason::Revoked, "the holder got the reason {reason:?}");
    ensure!(guard.ensure_held().is_err(), "held after it was revoked");
    ensure!(admin.lock("a")?.try_acquire().await?.is_some(), "revoked, but not free");
    let answer = guard.release().await;
    let reason = answer.as_ref().err().and_then(leasehold_core::Error::lost_reason);
    ensure!(reason == Some(LostReason::Revoked), "releasing after the loss was answered {answer:?}");
    Ok(())
}

async fn a_grace_lets_the_holder_finish(world: World) -> Outcome {
    let (holder, admin) = (world.manager().await?, world.manager().await?);
    let guard = holder.lock("a")?.acquire().await?;
    let next = holder.lock("a")?;
    let grace = world.ttl() * 2;
    let work = async {
        let until = world.within(world.soon(), "the request arrives", guard.revocation_requested()).await?;
        let Some(until) = until else {
            return Err(Failure::new("the guard ended without a revocation request"));
        };
        let left = until.remaining(world.now());
        ensure!(left <= grace && grace / 2 < left, "{left:?} of a grace of {grace:?} are left");
        ensure!(guard.state() == GuardState::Held, "with a revocation requested it is {:?}", guard.state());
        guard.renew().await?;
        let mut waits = pin!(next.acquire());
        ensure!(waits.as_mut().now_or_never().is_none(), "held twice");
        let counter = guard.token().counter();
        guard.release().await?;
        let next = world.within(world.soon(), "the next of the process asks the store", waits).await??;
        ensure!(counter < next.token().counter(), "handed off locally although a revocation is requested");
        Ok(())
    };
    let asks = async { Ok(admin.revoke("a", Revoke::Ask { grace }).await?) };
    let revoked = try_join(work, asks).await?.1;
    ensure!(revoked == Revocation::Released, "a holder that has finished answered {revoked:?}");
    Ok(())
}

async fn a_grace_ends_the_hold(world: World) -> Outcome {
    let (holder, admin) = (world.manager().await?, world.manager().await?);
    let guard = holder.lock("a")?.acquire().await?;
    // The lease is renewed meanwhile.
    let grace = world.ttl() + world.ttl() / 2;
    let asked_at = world.now();
    let stays = async {
        let reason = world.within(grace + world.soon(), "the holder is notified", guard.lost()).await?;
        let after = world.now().since(asked_at);
        ensure!(reason == LostReason::Revoked, "the holder got the reason {reason:?}");
        ensure!(grace <= after, "lost {after:?} after the request with a grace of {grace:?}");
        Ok(())
    };
    let asks = async { Ok(admin.revoke("a", Revoke::Ask { grace }).await?) };
    let revoked = try_join(stays, asks).await?.1;
    ensure!(revoked == Revocation::Released, "the grace is over, and the answer was {revoked:?}");
    ensure!(admin.lock("a")?.try_acquire().await?.is_some(), "the grace is over, but it is not free");
    Ok(())
}

async fn revoking_a_free_lock_says_so(world: World) -> Outcome {
    let admin = world.manager().await?;
    for how in [Revoke::AT_ONCE, Revoke::Ask { grace: world.ttl() }, Revoke::Force] {
        let revoked = world.within(world.soon(), "the revocation", admin.revoke("a", how)).await??;
        ensure!(revoked == Revocation::NotHeld, "revoking a free lock ({how:?}) returned {revoked:?}");
    }
    world.empty(world.soon(), "nothing was held").await
}

async fn a_deaf_holder_keeps_the_lock_until_forced(world: World) -> Outcome {
    let (deaf, admin) = (world.session().await?, world.session().await?);
    let grant = deaf.take("a").await?;
    let _kept = deaf.keep(&grant);
    let manager = world.manager().await?;
    let asked =
        world.within(world.takeover(), "the revocation", manager.revoke("a", Revoke::AT_ONCE)).await??;
    ensure!(asked == Revocation::Unanswered, "the answer for an unreachable holder was {asked:?}");
    ensure!(admin.try_acquire("a").await?.is_none(), "the revocation without force ended the hold");
    let forced = world.within(world.soon(), "the revocation", manager.revoke("a", Revoke::Force)).await??;
    ensure!(forced == Revocation::Released, "the revocation by force returned {forced:?}");
    ensure!(admin.try_acquire("a").await?.is_some(), "revoked by force, but not free");
    Ok(())
}

async fn releasing_a_share_leaves_the_others(world: World) -> Outcome {
    let [one, other] =
        [world.session().await?.wants(Mode::SHARED), world.session().await?.wants(Mode::SHARED)];
    let rival = world.session().await?;
    let (first, second) = (one.take("a").await?, other.take("a").await?);
    one.backend.release(&first).await?;
    ensure!(one.backend.release(&first).await.is_err(), "a share was released twice");
    ensure!(rival.try_acquire("a").await?.is_none(), "one release ended two shares");
    other.backend.release(&second).await?;
    rival.take("a").await?;
    Ok(())
}

async fn renewing_a_share_keeps_no_other(world: World) -> Outcome {
    let [one, other] =
        [world.session().await?.wants(Mode::SHARED), world.session().await?.wants(Mode::SHARED)];
    let (kept, left) = (one.take("a").await?, other.take("a").await?);
    let _kept = one.keep(&kept);
    world.pass(world.takeover()).await;
    let answer = other.renew(left.lease.id).await?;
    ensure!(matches!(answer, Renewal::Gone(_)), "a share that nobody renewed was answered {answer:?}");
    let answer = one.renew(kept.lease.id).await?;
    ensure!(matches!(answer, Renewal::Until(_)), "a share that was renewed was answered {answer:?}");
    let holders = world.inspect("a").await?.holders;
    ensure!(holders.len() == 1, "one of two shares has ended, and there are {holders:?}");
    Ok(())
}

async fn revoke_asks_every_holder(world: World) -> Outcome {
    let admin = world.manager().await?;
    for how in [Revoke::AT_ONCE, Revoke::Ask { grace: world.moment() }, Revoke::Force] {
        let managers = [world.manager().await?, world.manager().await?, world.manager().await?];
        let mut guards = Vec::new();
        for manager in &managers {
            guards.push(manager.lock("a")?.shared().acquire().await?);
        }
        let waiting = Task::acquire(admin.lock("a")?);
        world.queued("a", 1).await?;
        let revoked = world.within(world.soon(), "the revocation", admin.revoke("a", how)).await??;
        ensure!(revoked == Revocation::Released, "three readers answered {revoked:?}");
        for guard in guards {
            let reason = world.within(world.takeover(), "a reader is notified", guard.lost()).await?;
            let told = [LostReason::Revoked, LostReason::Gone, LostReason::Expired].contains(&reason);
            ensure!(told, "a reader got the reason {reason:?}");
        }
        world.joined(world.soon(), "the writer behind them", waiting).await?.release().await?;
    }
    Ok(())
}
