//! `try_acquire` takes a free lock without waiting, never waits for a holder, and leaves no trace.

use std::time::Duration;

use leasehold_core::ErrorKind;
use leasehold_core::backend::Attempt;

use crate::request_counts::RequestCounts;
use crate::{Outcome, World, case, ensure};

case::table! { "g9":
    try_takes_a_free_lock: "a lock that nobody holds or waits for is granted, by one call of the store",
    try_does_not_wait: "a held lock is answered at once",
    try_leaves_no_trace: "a refused try is not in the queue and gets no later grant",
    try_does_not_overtake [FIFO]: "a try does not pass a waiter",
    try_follows_a_dropped_guard: "a process that drops its guard gets the lock by a try, whatever is still \
         pending",
    try_asks_no_store_for_what_its_process_holds: "contention within a process costs no request",
    waiting_for_no_time_is_one_attempt: "a wait of zero is one try, then a timeout that names the holder",
}

async fn try_takes_a_free_lock(world: World) -> Outcome {
    let name = world.name("a")?;
    let session = world.session().await?;
    let grant = session.take(&name).await?;
    ensure!(grant.name == name, "{:?} was granted instead of {name:?}", grant.name);
    ensure!(world.inspect(&name).await?.holder().is_some(), "granted, and the store knows of no holder");
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
    let name = world.name("a")?;
    let (holder, rival) = (world.session().await?, world.session().await?);
    let grant = holder.take(&name).await?;
    let request = rival.request(&name);
    let attempt = world.within(world.moment(), "the answer", rival.backend.try_acquire(&request)).await??;
    ensure!(matches!(attempt, Attempt::Held { .. }), "granted although held");
    let manager = world.manager().await?;
    let refused = world.within(world.moment(), "the answer", manager.lock("a")?.try_acquire()).await??;
    ensure!(refused.is_none(), "granted although held");
    holder.backend.release(&grant).await?;
    Ok(())
}

async fn try_leaves_no_trace(world: World) -> Outcome {
    let name = world.name("a")?;
    let (holder, rival) = (world.session().await?, world.session().await?);
    let grant = holder.take(&name).await?;
    for _ in 0..3 {
        ensure!(rival.try_acquire(&name).await?.is_none(), "granted although held");
    }
    world.settle().await;
    let contenders = world.inspect(&name).await?.contenders;
    ensure!(contenders == 0, "{contenders} clients wait, but all of them only tried");
    holder.backend.release(&grant).await?;
    world.empty(world.soon(), "the queue is empty").await
}

async fn try_does_not_overtake(world: World) -> Outcome {
    let name = world.name("a")?;
    let (holder, waiter, rival) = (world.session().await?, world.session().await?, world.session().await?);
    let grant = holder.take(&name).await?;
    let waiting = waiter.acquire_aside(&name);
    world.queued(&name, 1).await?;
    holder.backend.release(&grant).await?;
    ensure!(rival.try_acquire(&name).await?.is_none(), "a try passed a waiter");
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
