//! Told before it is gone: a guard is not held any more before the store grants anyone else.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use futures_util::future::join;
use futures_util::{FutureExt, StreamExt};
use leasehold_core::backend::{LeaseId, Renewal, Revoke};
use leasehold_core::clock::{Deadline, Moment};
use leasehold_core::{Change, GuardState, LockGuard, LostReason, Mode};
use tokio::sync::mpsc;

use crate::cases::exclusion::holds_only_after;
use crate::layer::{Below, Layer, shared};
use crate::network::Network;
use crate::session::dead_holder_in;
use crate::{Failure, Outcome, Task, World, case, ensure};

case::table! { "g2":
    deadline_counts_from_sending [LEASED]: "the travel time of a grant, or of a renewal's reply, does not \
         extend the deadline",
    deadline_survives_the_core [LEASED]: "a guard trusts its lease no longer than the grant says",
    a_silent_store_loses_the_guard_in_time [LEASED]: "with the network cut, the guard is lost before its lease ends",
    a_slow_clock_is_told_before_another_holds [LEASED]: "a clock that runs one percent slow is within the margin",
    a_suspended_host_knows_at_once [LEASED]: "after a suspend the first check returns lost, before any \
         timer fires",
    a_lost_guard_stays_lost [LEASED]: "a loss is final whatever the store reports later",
    at_risk_comes_before_loss [LEASED]: "a guard is held, at risk and lost in this order, with time \
         to act; then its changes end",
    renewals_are_answered_in_order [LEASED]: "a renewal has one result per lease, and an unknown lease is \
         gone",
    events_are_told_once: "a second event stream of a session ends at once",
    a_bounded_hold_ends_in_time: "a holder is notified at the end of its `max_hold`, and the next client \
         holds",
    a_lock_outlasts_its_work: "work that is in the middle of a poll at a shutdown, a `max_hold` or a revocation ends before \
         the next client holds, unless the lease ends first; the work that never ends delays it for a ttl",
    with_stops_the_work_on_loss [LEASED]: "work under a lost lock is dropped and returns an error",
    a_share_is_lost_before_a_writer_holds [SHARED|LEASED]: "no writer holds before the last deadline of a \
         dead reader",
    guards_that_joined_are_lost_together [SHARED]: "all tasks that share one hold are notified of its end",
}

async fn deadline_counts_from_sending(world: World) -> Outcome {
    let delay = world.moment();
    let session = world.behind(Network::new(delay).wrap()).session().await?;
    for waiting in [false, true] {
        let sent_at = world.now();
        let grant = if waiting { session.acquire("a").await? } else { session.take("a").await? };
        let (ttl, granted) = (grant.lease.ttl, grant.lease.deadline);
        let latest = |sent_at: Moment| Deadline::of_lease(sent_at + delay / 2, ttl, world.margin_of(ttl));
        ensure!(granted <= latest(sent_at), "sent at {sent_at:?} and trusted until {granted:?}");
        let sent_at = world.now();
        let Renewal::Until(renewed) = session.renew(grant.lease.id).await? else {
            return Err(Failure::new("a living lease was not renewed"));
        };
        ensure!(renewed <= latest(sent_at), "renewed at {sent_at:?} and trusted until {renewed:?}");
        if let (Deadline::At(renewed), Deadline::At(granted)) = (renewed, granted) {
            // The ways there may have taken different times.
            ensure!(renewed + delay >= granted, "a renewal moved the deadline back");
        }
        session.backend.release(&grant).await?;
    }
    Ok(())
}

async fn deadline_survives_the_core(world: World) -> Outcome {
    let delay = world.moment();
    let manager = world.behind(Network::new(delay).wrap()).manager().await?;
    let guard = manager.lock("a")?.acquire().await?;
    let most = world.ttl() - world.margin_of(world.ttl()) - delay;
    ensure!(guard.remaining() <= most, "{:?} remain after two ways of {delay:?}", guard.remaining());
    guard.renew().await?;
    ensure!(guard.remaining() <= most, "{:?} remain after a renewal", guard.remaining());
    Ok(())
}

async fn a_bounded_hold_ends_in_time(world: World) -> Outcome {
    let (here, there) = (world.manager().await?, world.manager().await?);
    let span = world.soon();
    let began = world.now();
    let guard = world.bounded(here.lock("a")?, span).acquire().await?;
    ensure!(guard.remaining() <= span, "it is promised for {:?}", guard.remaining());
    let next = there.lock("a")?;
    let (reason, next) = join(
        world.within(span + world.soon(), "the holder is notified", guard.lost()),
        world.within(span + world.soon(), "the next client holds", next.acquire()),
    )
    .await;
    ensure!(reason? == LostReason::MaxHold, "the reason of the loss is another");
    let (next, held) = (next??, world.now());
    ensure!(began + span <= held, "the next one held {:?} before that", (began + span).since(held));
    ensure!(guard.ensure_held().is_err(), "it is still held");
    ensure!(guard.release().await.is_err(), "it is released a second time");
    Ok(next.release().await?)
}

async fn a_silent_store_loses_the_guard_in_time(world: World) -> Outcome {
    let (network, manager) = world.far().await?;
    let guard = manager.lock("a")?.acquire().await?;
    let leased_at = world.now();
    network.cut();
    ensure!(guard.ensure_held().is_ok(), "lost at the first silence");
    let reason = world.within(world.ttl(), "the guard is notified", guard.lost()).await?;
    ensure!(reason == LostReason::Expired, "told {reason:?}");
    let after = world.now().since(leased_at);
    ensure!(after <= world.ttl(), "notified {after:?} after the lease began");
    ensure!(guard.ensure_held().is_err(), "held after the notification");
    Ok(())
}

/// Waits for the lock behind `guard`, and checks `guard` at the instant of the grant.
async fn lost_when_another_holds(world: &World, guard: &LockGuard) -> Outcome {
    let lost = guard.lost();
    let next = world.manager().await?.lock(guard.name())?;
    let held = world.within(world.takeover(), "the next holder", next.acquire()).await??;
    ensure!(guard.ensure_held().is_err(), "two hold: {guard:?} and {held:?}");
    ensure!(lost.now_or_never().is_some(), "another client holds, and `lost` has not ended");
    Ok(())
}

async fn a_slow_clock_is_told_before_another_holds(world: World) -> Outcome {
    let network = Network::new(world.crossing());
    let (_, clock) = world.host(-10_000);
    let manager = world.behind(network.wrap()).manager_with(|builder| builder.clock(clock)).await?;
    let guard = manager.lock("a")?.acquire().await?;
    network.cut();
    lost_when_another_holds(&world, &guard).await
}

async fn a_suspended_host_knows_at_once(world: World) -> Outcome {
    let (host, clock) = world.host(0);
    let manager = world.manager_with(|builder| builder.clock(clock)).await?;
    let next = world.manager().await?.lock("a")?;
    let guard = manager.lock("a")?.acquire().await?;
    host.suspend();
    let held = world.within(world.takeover(), "the next holder", next.acquire()).await??;
    host.resume();
    // Nothing of the host runs between here and there.
    ensure!(guard.ensure_held().is_err(), "a host that slept past its lease still holds");
    held.ensure_held()?;
    Ok(())
}

/// A store that says gone once, and takes it back.
#[derive(Debug, Default)]
struct Relapse {
    said: AtomicBool,
}

#[async_trait]
impl Layer for Relapse {
    async fn renew(&self, below: &Below, leases: &[LeaseId]) -> Vec<Renewal> {
        let first = !self.said.swap(true, Ordering::Relaxed);
        let far = Deadline::At(below.env.now() + 10 * below.env.timing().ttl);
        let answer = |_: &_| if first { Renewal::Gone(LostReason::Gone) } else { Renewal::Until(far) };
        leases.iter().map(answer).collect()
    }
}

async fn a_lost_guard_stays_lost(world: World) -> Outcome {
    let manager = world.behind(shared(Arc::new(Relapse::default()))).manager().await?;
    let guard = manager.lock("a")?.acquire().await?;
    let answer = guard.renew().await;
    ensure!(answer.is_err(), "the store reports gone, and the renewal returned {answer:?}");
    for _ in 0..6 {
        ensure!(guard.ensure_held().is_err(), "held again after a loss");
        ensure!(guard.renew().await.is_err(), "renewed after a loss");
        world.pass(world.ttl() / 4).await;
    }
    ensure!(guard.state() == GuardState::Lost(LostReason::Gone), "the loss became {:?}", guard.state());
    ensure!(guard.release().await.is_err(), "released after a loss");
    Ok(())
}

async fn at_risk_comes_before_loss(world: World) -> Outcome {
    let (network, manager) = world.far().await?;
    let guard = manager.lock("a")?.acquire().await?;
    let (mut changes, watch) = (guard.changes(), world.clone());
    let seen = Task::start(async move {
        let mut seen = Vec::new();
        while let Some(state) = changes.next().await {
            seen.push((state, watch.now()));
        }
        seen
    });
    world.settle().await;
    network.cut();
    let seen = world.within(world.takeover(), "the end of the changes", seen).await??;
    let states: Vec<_> = seen.iter().map(|(state, _)| *state).collect();
    let expected =
        [GuardState::Held, GuardState::AtRisk, GuardState::Lost(LostReason::Expired)].map(Change::State);
    ensure!(states == expected, "the guard went through {states:?}");
    let warned = seen[2].1.since(seen[1].1);
    ensure!(warned >= world.moment(), "only {warned:?} from at risk to lost");
    Ok(())
}

async fn renewals_are_answered_in_order(world: World) -> Outcome {
    let session = world.session().await?;
    let (a, b) = (session.take("a").await?, session.take("b").await?);
    let nobodys = LeaseId::new(u64::MAX);
    let answers = session.backend.renew(&[a.lease.id, nobodys, b.lease.id]).await;
    let in_order =
        matches!(answers[..], [Renewal::Until(_), Renewal::Gone(_) | Renewal::Unknown(_), Renewal::Until(_)]);
    ensure!(in_order, "a held lease, nobody's and a held one were answered {answers:?}");
    ensure!(session.backend.renew(&[]).await.is_empty(), "no question was answered");
    Ok(())
}

async fn events_are_told_once(world: World) -> Outcome {
    let session = world.session().await?;
    let _first = session.backend.events();
    let mut second = session.backend.events();
    let told = world.within(world.soon(), "the end of the second stream", second.next()).await?;
    ensure!(told.is_none(), "the second stream tells {told:?}");
    Ok(())
}

async fn with_stops_the_work_on_loss(world: World) -> Outcome {
    let (network, manager) = world.far().await?;
    let done = AtomicBool::new(false);
    let worked = manager
        .lock("a")?
        .with(async |_held| {
            network.cut();
            world.pass(3 * world.ttl()).await;
            done.store(true, Ordering::Relaxed);
        })
        .await;
    let reason = worked.as_ref().err().and_then(leasehold_core::Error::lost_reason);
    ensure!(reason == Some(LostReason::Expired), "work without its lock returned {worked:?}");
    ensure!(!done.load(Ordering::Relaxed), "the work went on without its lock");
    Ok(())
}

async fn a_lock_outlasts_its_work(world: World) -> Outcome {
    let ends = [LostReason::Shutdown, LostReason::Revoked, LostReason::MaxHold];
    for (how, is_dropped) in ends.map(|how| (how, true)).into_iter().chain([(LostReason::MaxHold, false)]) {
        let (here, there) = (world.manager().await?, world.manager().await?);
        let (lock, next, began) = (here.lock("a")?, there.lock("a")?, world.now());
        let lock = if how == LostReason::MaxHold { lock.max_hold(world.soon()) } else { lock };
        let (works, mut at_work) = mpsc::unbounded_channel();
        let work = world.with(&lock, async |held: &LockGuard| {
            works.send(held.lost()).map_err(|_| Failure::new("the case has ended"))?;
            pending::<Outcome>().await
        });
        let mut work = Box::pin(work);
        let lost = tokio::select! {
            biased;
            ended = &mut work => return Err(Failure::new(format!("the work ended with {ended:?}"))),
            lost = at_work.recv() => lost.ok_or_else(|| Failure::new("the work did not begin"))?,
        };
        // From here on it is not polled, as if it blocked in its last poll.
        let clock = world.clone();
        let next = Task::start(async move { Ok((next.acquire().await?, clock.now())) });
        world.queued("a", 1).await?;
        let ended = match how {
            LostReason::Shutdown => Task::start(async move { Ok(here.shutdown().await?) }),
            LostReason::Revoked => {
                let ask = Revoke::Ask { grace: world.moment() };
                Task::start(async move { Ok(there.revoke("a", ask).await.map(drop)?) })
            }
            _ => Task::start(async { Ok(()) }),
        };
        let reason = world.within(2 * world.soon(), "the end of the hold", lost).await?;
        ensure!(reason == how, "it was lost by {reason:?}, and not by {how:?}");
        world.settle().await;
        let dropped_at = world.now();
        let mut work = Some(work);
        work.take_if(|_| is_dropped);
        let (next, held_at) = world.joined(2 * world.takeover(), "the next holder", next).await?;
        let leased_until = began + (world.ttl() - world.margin_of(world.ttl()));
        let earliest = if is_dropped { dropped_at.min(leased_until) } else { leased_until };
        ensure!(earliest <= held_at, "after {how:?} another held {:?} too early", earliest.since(held_at));
        next.release().await?;
        world.joined(world.takeover(), "the end of the request", ended).await?;
    }
    Ok(())
}

async fn a_share_is_lost_before_a_writer_holds(world: World) -> Outcome {
    let next = world.manager().await?.lock("a")?;
    let grant = dead_holder_in(&world, "a", Mode::SHARED).await?;
    holds_only_after(&world, &grant, &next).await
}

async fn guards_that_joined_are_lost_together(world: World) -> Outcome {
    let (manager, admin) = (world.manager().await?, world.manager().await?);
    let lock = manager.lock("a")?.shared();
    let guards = [lock.acquire().await?, lock.acquire().await?, lock.acquire().await?];
    let [first, others @ ..] = guards;
    let released = first.lost();
    first.release().await?;
    let reason = world.within(world.soon(), "the released reader is notified", released).await?;
    ensure!(reason == LostReason::Released, "the released reader got the reason {reason:?}");
    world.within(world.soon(), "the revocation", admin.revoke("a", Revoke::AT_ONCE)).await??;
    for guard in others {
        let reason = world.within(world.soon(), "a reader is notified", guard.lost()).await?;
        ensure!(reason == LostReason::Revoked, "a reader got the reason {reason:?}");
        ensure!(guard.ensure_held().is_err(), "held after it was revoked");
    }
    world.empty(world.soon(), "all were revoked").await
}
