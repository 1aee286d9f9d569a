//! Ambiguity is survived: a reply that never came neither grants twice nor leaves an entry behind.

use futures_util::future::try_join_all;
use leasehold_core::{Effect, ErrorKind, Guarantees, GuardState, Timing};

use crate::network::{Fault, Operation};
use crate::refusals::{Refusal, Refusals};
use crate::{Outcome, Task, World, case, ensure};

case::table! { "g5":
    a_release_with_a_lost_message_succeeds: "an unconfirmed release is repeated until it arrives, and its late \
         success is no error",
    an_unconfirmed_release_says_so [LEASED]: "without a network a release returns unknown by the deadline, \
         and the lease ends the lock",
    a_refused_release_ends: "whatever the store answers, a release returns in time, the lock becomes free, and \
         the process continues",
    a_release_that_is_not_awaited_goes_on: "dropping the future of a release does not stop the release or \
         its repetition",
    a_try_with_a_lost_reply_leaves_nothing: "a grant that may exist is released, and its effect is unknown",
    a_renewal_with_a_lost_reply_is_repeated [LEASED]: "one lost reply loses no lock",
    an_unreachable_store_is_not_a_busy_lock: "a missing reply is `Unavailable`, never a busy lock",
    a_process_goes_on_after_a_cut [LEASED]: "a lock that was lost in a network cut can be acquired after it",
    a_wait_abandoned_during_a_cut_leaves_nothing [LEASED]: "a clean-up that failed in a network cut is done \
         after it",
    a_refusal_says_that_nothing_was_done: "a closed session refuses every request without effect",
}

async fn a_release_with_a_lost_message_succeeds(world: World) -> Outcome {
    for (name, fault) in [("a", Fault::LoseReply), ("b", Fault::LoseRequest)] {
        let (network, manager) = world.far().await?;
        let guard = manager.lock(name)?.acquire().await?;
        network.next(Operation::Release, fault);
        world.within(world.ttl(), "the release", guard.release()).await??;
        let next = world.manager().await?.lock(name)?.try_acquire().await?;
        ensure!(next.is_some(), "released despite {fault:?}, but not free");
    }
    Ok(())
}

async fn an_unconfirmed_release_says_so(world: World) -> Outcome {
    let (network, manager) = world.far().await?;
    let guard = manager.lock("a")?.acquire().await?;
    network.cut();
    // The last request may begin just before the deadline.
    let bound = guard.remaining() + Timing::for_ttl(world.ttl()).op_timeout + world.moment();
    let answer = world.within(bound, "the release", guard.release()).await?;
    let effect = answer.as_ref().err().map(leasehold_core::Error::effect);
    ensure!(effect == Some(Effect::Unknown), "an unconfirmed release returned {answer:?}");
    let next = world.manager().await?.lock("a")?;
    let next = world.within(world.takeover(), "the next holder", next.acquire()).await??;
    next.release().await?;
    Ok(())
}

async fn a_refused_release_ends(world: World) -> Outcome {
    let refusals = [
        Refusal::Says(ErrorKind::Denied, Effect::NotApplied),
        Refusal::Says(ErrorKind::Denied, Effect::Unknown),
        Refusal::Says(ErrorKind::Unsupported, Effect::NotApplied),
        Refusal::Says(ErrorKind::Unavailable, Effect::Unknown),
        Refusal::Says(ErrorKind::Protocol, Effect::Unknown),
        Refusal::NeverAnswers,
        Refusal::Panics,
    ];
    try_join_all(refusals.map(|refusal| ends(&world, refusal))).await.map(drop)
}

/// The release ends, its lock is free for other processes and for the same process within a lease, the process
/// has other locks at once, and no other holder is harmed.
async fn ends(world: &World, refusal: Refusal) -> Outcome {
    let name = |which| format!("{which} {refusal:?}");
    let refusals = Refusals::new(refusal.clone());
    let (refused, other) = (world.behind(refusals.wrap()).manager().await?, world.manager().await?);
    let bystander = other.lock(name("b"))?.acquire().await?;
    let guard = refused.lock(name("a"))?.acquire().await?;
    let bound = world.ttl() + Timing::for_ttl(world.ttl()).op_timeout + world.moment();
    let answer = world.within(bound, &name("the release with"), guard.release()).await?;
    let said = answer.as_ref().err().map(|error| (error.kind().clone(), error.effect()));
    ensure!(said == Some(refusals.heard()), "a release with {refusal:?} returned {answer:?}");
    let another = refused.lock(name("c"))?;
    let another = world.within(world.soon(), &name("another lock after"), another.acquire()).await??;
    refusals.end();
    another.release().await?;
    if world.guarantees().contains(Guarantees::LEASED) {
        for (who, manager) in [("another process after", &other), ("the same process after", &refused)] {
            let lock = manager.lock(name("a"))?;
            world.within(world.takeover(), &name(who), lock.acquire()).await??.release().await?;
        }
    }
    bystander.ensure_held()?;
    Ok(bystander.release().await?)
}

async fn a_release_that_is_not_awaited_goes_on(world: World) -> Outcome {
    let (network, manager) = world.far().await?;
    let guard = manager.lock("a")?.acquire().await?;
    network.next(Operation::Release, Fault::LoseRequest);
    let impatient = world.within(world.ttl() / 1_000, "the end of the wait", guard.release()).await;
    ensure!(impatient.is_err(), "the lost request was answered");
    world.empty(world.ttl() * 2 / 3, "the release goes on").await
}

async fn a_try_with_a_lost_reply_leaves_nothing(world: World) -> Outcome {
    let (network, manager) = world.far().await?;
    network.next(Operation::TryAcquire, Fault::LoseReply);
    let answer = world.within(world.ttl(), "the answer", manager.lock("a")?.try_acquire()).await?;
    let said = answer.as_ref().err().map(|error| (error.kind(), error.effect()));
    ensure!(
        said == Some((&ErrorKind::Unavailable, Effect::Unknown)),
        "a try without a reply returned {answer:?}"
    );
    world.empty(world.soon(), "the lock after a try with a lost grant").await
}

async fn a_renewal_with_a_lost_reply_is_repeated(world: World) -> Outcome {
    let (network, manager) = world.far().await?;
    let guard = manager.lock("a")?.acquire().await?;
    for loss in [Fault::LoseReply, Fault::LoseRequest] {
        network.next(Operation::Renew, loss);
        world.pass(world.ttl()).await;
        guard.ensure_held()?;
    }
    world.pass(world.ttl() / 2).await;
    ensure!(guard.state() == GuardState::Held, "after two lost renewals: {:?}", guard.state());
    guard.release().await?;
    Ok(())
}

async fn an_unreachable_store_is_not_a_busy_lock(world: World) -> Outcome {
    let (network, manager) = world.far().await?;
    network.cut();
    let answer = world.within(world.ttl(), "the answer", manager.lock("a")?.try_acquire()).await?;
    let kind = answer.as_ref().err().map(leasehold_core::Error::kind);
    ensure!(kind == Some(&ErrorKind::Unavailable), "a missing reply returned {answer:?}");
    Ok(())
}

async fn a_process_goes_on_after_a_cut(world: World) -> Outcome {
    let (network, manager) = world.far().await?;
    let lock = manager.lock("a")?;
    let guard = lock.acquire().await?;
    network.cut();
    world.within(world.ttl(), "the guard is notified", guard.lost()).await?;
    // The lease ends at the store too, as it does in a cut that lasts.
    world.pass(world.ttl()).await;
    network.heal();
    let again = world.within(world.takeover(), "the lock, again", lock.acquire()).await??;
    again.ensure_held()?;
    ensure!(guard.ensure_held().is_err(), "the old guard holds again");
    again.release().await?;
    Ok(())
}

async fn a_wait_abandoned_during_a_cut_leaves_nothing(world: World) -> Outcome {
    let (network, manager) = world.far().await?;
    let lock = manager.lock("a")?;
    let holder = world.manager().await?.lock("a")?.acquire().await?;
    let waiting = Task::acquire(lock);
    world.queued("a", 1).await?;
    network.cut();
    drop(waiting);
    world.settle().await;
    network.heal();
    world.queued("a", 0).await?;
    holder.release().await?;
    world.empty(world.soon(), "the queue is empty").await
}

async fn a_refusal_says_that_nothing_was_done(world: World) -> Outcome {
    let session = world.session().await?;
    session.backend.close().await?;
    let request = session.request("a")?;
    let tried = session.backend.try_acquire(&request).await.map(drop);
    let waited = world.within(world.soon(), "the answer", session.backend.acquire(&request)).await?.map(drop);
    for answer in [tried, waited] {
        let said = answer.as_ref().err().map(|error| (error.kind(), error.effect()));
        ensure!(
            said == Some((&ErrorKind::Closed, Effect::NotApplied)),
            "a closed session answered {answer:?}"
        );
    }
    world.empty(world.soon(), "a closed session may have had an effect").await
}
