//! `try_acquire` takes a free lock without waiting, never waits for a holder, and leaves no trace.

use std::time::Duration;

use leasehold_core::backend::Attempt;
use leasehold_core::{ErrorKind, Mode};

use crate::request_counts::RequestCounts;
use crate::{Outcome, World, case, ensure};

case::table! { "g9":
    try_takes_a_free_lock: "a lock that nobody holds or waits for is granted, by one call of the store",
    try_does_not_wait: "a held lock is answered at once, and a refused try is not in the queue",
    try_does_not_overtake [FIFO]: "a try does not pass a waiter",
    try_follows_a_dropped_guard: "a process that drops its guard gets the lock by a try, whatever is still \
         pending",
    try_asks_no_store_for_what_its_process_holds: "contention within a process costs no request",
    waiting_for_no_time_is_one_attempt: "a wait of zero is one try, then a timeout that names the holder",
    try_shared_next_to_readers [SHARED]: "a reader's try joins other readers with at most one request",
    try_shared_behind_a_waiting_writer_is_held [SHARED|FIFO]: "a reader's try does not pass a waiting writer",
    try_takes_what_is_left [PERMITS]: "a try of permits is granted while they fit, and leaves no trace \
         otherwise",
    invalid_number_of_permits_is_refused: "invalid permits and unsupported modes are refused before any \
         request",
}

async fn try_takes_a_free_lock(world: World) -> Outcome {
    let session = world.session().await?;
    let grant = session.take("a").await?;
    ensure!(grant.name.as_str() == "a", "{:?} was granted instead", grant.name);
    ensure!(world.inspect("a").await?.holder().is_some(), "granted, and the store knows of no holder");
    session.backend.release(&grant).await?;
    let counts = RequestCounts::default();
    let manager = world.behind(counts.wrap()).manager().await?;
    let guard = manager.lock("b")?.try_acquire().await?;
    ensure!(guard.is_some(), "a free lock was refused");
    let asked = counts.take();
    ensure!(asked.tries == 1 && asked.acquires == 0, "one attempt took {asked:?}");
    Ok(())
}

async fn try_does_not_wait(world: World) -> Outcome {
    let (holder, rival) = (world.session().await?, world.session().await?);
    let grant = holder.take("a").await?;
    let request = rival.request("a")?;
    let attempt = world.within(world.moment(), "the answer", rival.backend.try_acquire(&request)).await??;
    ensure!(matches!(attempt, Attempt::Held { .. }), "granted although held");
    let manager = world.manager().await?;
    let refused = world.within(world.moment(), "the answer", manager.lock("a")?.try_acquire()).await??;
    ensure!(refused.is_none(), "granted although held");
    world.settle().await;
    let contenders = world.inspect("a").await?.contenders;
    ensure!(contenders == 0, "{contenders} clients wait, but all of them only tried");
    holder.backend.release(&grant).await?;
    world.empty(world.soon(), "the queue is empty").await
}

async fn try_does_not_overtake(world: World) -> Outcome {
    let (holder, waiter, rival) = (world.session().await?, world.session().await?, world.session().await?);
    let grant = holder.take("a").await?;
    let waiting = waiter.acquire_aside("a");
    world.queued("a", 1).await?;
    holder.backend.release(&grant).await?;
    ensure!(rival.try_acquire("a").await?.is_none(), "a try passed a waiter");
    world.joined(world.soon(), "the waiter's turn", waiting).await?;
    Ok(())
}

async fn try_follows_a_dropped_guard(world: World) -> Outcome {
    let lock = world.manager().await?.lock("a")?;
    for round in 0..5 {
        let guard = world.within(world.soon(), "the lock", lock.try_acquire()).await??;
        let Some(guard) = guard else {
            return Err(crate::Failure::new(format!(
                "refused in round {round}, after its own guard was dropped"
            )));
        };
        drop(guard);
    }
    Ok(())
}

async fn try_asks_no_store_for_what_its_process_holds(world: World) -> Outcome {
    let counts = RequestCounts::default();
    let lock = world.behind(counts.wrap()).manager().await?.lock("a")?;
    let guard = lock.acquire().await?;
    counts.take();
    for _ in 0..10 {
        ensure!(lock.try_acquire().await?.is_none(), "granted twice in one process");
    }
    let asked = counts.take();
    ensure!(asked == crate::Counts::default(), "the store was asked: {asked:?}");
    guard.release().await?;
    Ok(())
}

async fn waiting_for_no_time_is_one_attempt(world: World) -> Outcome {
    let (holder, rival) = (world.manager().await?, world.manager().await?);
    let lock = rival.lock("a")?.wait(Duration::ZERO);
    let guard = holder.lock("a")?.acquire().await?;
    let refused = world.within(world.moment(), "the answer", lock.acquire()).await?;
    match refused.as_ref().map_err(leasehold_core::Error::kind) {
        Err(ErrorKind::Timeout { .. }) => {}
        other => return Err(crate::Failure::new(format!("a wait of zero returned {other:?}"))),
    }
    guard.release().await?;
    let guard = world.within(world.soon(), "the lock", lock.acquire()).await??;
    guard.release().await?;
    world.empty(world.soon(), "released").await
}

async fn try_shared_next_to_readers(world: World) -> Outcome {
    let counts = RequestCounts::default();
    let first = world.manager().await?.lock("a")?.shared().acquire().await?;
    let lock = world.behind(counts.wrap()).manager().await?.lock("a")?.shared();
    let Some(second) = lock.try_acquire().await? else {
        return Err(crate::Failure::new("a reader beside a reader is refused"));
    };
    let asked = counts.take();
    ensure!(asked.tries + asked.acquires == 1, "it took {asked:?}");
    let third = lock.try_acquire().await?;
    let asked = counts.take();
    ensure!(third.is_some() && asked.tries + asked.acquires == 0, "beside its own process it took {asked:?}");
    for guard in [Some(first), Some(second), third].into_iter().flatten() {
        guard.release().await?;
    }
    world.empty(world.soon(), "all entries are removed").await
}

async fn try_shared_behind_a_waiting_writer_is_held(world: World) -> Outcome {
    let (holder, rival) = (world.session().await?.wants(Mode::SHARED), world.session().await?);
    let grant = holder.take("a").await?;
    let waiting = rival.acquire_aside("a");
    world.queued("a", 1).await?;
    let tries = world.session().await?.wants(Mode::SHARED);
    ensure!(tries.try_acquire("a").await?.is_none(), "a trying reader went past a writer that waits");
    holder.backend.release(&grant).await?;
    world.joined(world.soon(), "the writer's turn", waiting).await?;
    Ok(())
}

async fn try_takes_what_is_left(world: World) -> Outcome {
    let holder = world.session().await?.wants(Mode::permits(2, 4)?);
    let held = holder.take("a").await?;
    let (two, three) = (
        world.session().await?.wants(Mode::permits(2, 4)?),
        world.session().await?.wants(Mode::permits(3, 4)?),
    );
    ensure!(three.try_acquire("a").await?.is_none(), "five of four");
    let rest = two.take("a").await?;
    ensure!(two.try_acquire("a").await?.is_none(), "six of four");
    for (session, grant) in [(&holder, &held), (&two, &rest)] {
        session.backend.release(grant).await?;
    }
    world.empty(world.soon(), "a try left an entry").await
}

async fn invalid_number_of_permits_is_refused(world: World) -> Outcome {
    let counts = RequestCounts::default();
    let manager = world.behind(counts.wrap()).manager().await?;
    for (weight, capacity) in [(0, 0), (0, 1), (2, 1), (1, u32::MAX)] {
        let refused = manager.lock("a")?.permits(weight, capacity).acquire().await;
        let kind = refused.as_ref().map_err(leasehold_core::Error::kind);
        ensure!(matches!(kind, Err(ErrorKind::InvalidOption)), "{weight} of {capacity} returned {refused:?}");
    }
    for mode in [Mode::SHARED, Mode::permits(1, 2)?] {
        if manager.guarantees().contains(mode.needs()) {
            continue;
        }
        let options = leasehold_core::LockOptions::default().mode(mode);
        let refused = manager.lock("a")?.options(options).try_acquire().await;
        let kind = refused.as_ref().map_err(leasehold_core::Error::kind);
        ensure!(matches!(kind, Err(ErrorKind::Unsupported)), "{mode}, not promised, returned {refused:?}");
    }
    let asked = counts.take();
    ensure!(asked == crate::Counts::default(), "the store was asked: {asked:?}");
    Ok(())
}
