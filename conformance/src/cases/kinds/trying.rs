//! Trying, in every mode.

use leasehold_core::{ErrorKind, Mode};

use super::{NAME, reader, some};
use crate::request_counts::RequestCounts;
use crate::{Outcome, World, case, ensure};

case::table! { "g9":
    try_shared_next_to_readers [SHARED]: "a reader's try joins other readers with at most one request",
    try_shared_behind_a_waiting_writer_is_held [SHARED|FIFO]: "a reader's try does not pass a waiting writer",
    try_takes_what_is_left [PERMITS]: "a try of permits is granted while they fit, and leaves no trace \
         otherwise",
    invalid_number_of_permits_is_refused: "invalid permits and unsupported modes are refused before any \
         request",
}

async fn try_shared_next_to_readers(world: World) -> Outcome {
    let counts = RequestCounts::default();
    let first = reader(&world.manager().await?)?.acquire().await?;
    let lock = reader(&world.behind(counts.wrap()).manager().await?)?;
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
    let name = world.name(NAME)?;
    let (holder, rival) = (world.session().await?.wants(Mode::SHARED), world.session().await?);
    let grant = holder.take(&name).await?;
    let waiting = rival.acquire_aside(&name);
    world.queued(&name, 1).await?;
    let tries = world.session().await?.wants(Mode::SHARED);
    ensure!(tries.try_acquire(&name).await?.is_none(), "a trying reader went past a writer that waits");
    holder.backend.release(&grant).await?;
    world.joined(world.soon(), "the writer's turn", waiting).await?;
    Ok(())
}

async fn try_takes_what_is_left(world: World) -> Outcome {
    let name = world.name(NAME)?;
    let holder = world.session().await?.wants(some(2, 4)?);
    let held = holder.take(&name).await?;
    let (two, three) = (world.session().await?.wants(some(2, 4)?), world.session().await?.wants(some(3, 4)?));
    ensure!(three.try_acquire(&name).await?.is_none(), "five of four");
    let rest = two.take(&name).await?;
    ensure!(two.try_acquire(&name).await?.is_none(), "six of four");
    for (session, grant) in [(&holder, &held), (&two, &rest)] {
        session.backend.release(grant).await?;
    }
    world.empty(world.soon(), "a try left an entry").await
}

async fn invalid_number_of_permits_is_refused(world: World) -> Outcome {
    let counts = RequestCounts::default();
    let manager = world.behind(counts.wrap()).manager().await?;
    for (weight, capacity) in [(0, 0), (0, 1), (2, 1), (1, u32::MAX)] {
        let refused = manager.lock(NAME)?.permits(weight, capacity).acquire().await;
        let kind = refused.as_ref().map_err(leasehold_core::Error::kind);
        ensure!(matches!(kind, Err(ErrorKind::InvalidOption)), "{weight} of {capacity} returned {refused:?}");
    }
    for mode in [Mode::SHARED, some(1, 2)?] {
        if manager.guarantees().contains(mode.needs()) {
            continue;
        }
        let mut options = leasehold_core::LockOptions::default();
        options.mode = mode;
        let refused = manager.lock(NAME)?.options(options).try_acquire().await;
        let kind = refused.as_ref().map_err(leasehold_core::Error::kind);
        ensure!(matches!(kind, Err(ErrorKind::Unsupported)), "{mode}, not promised, returned {refused:?}");
    }
    let asked = counts.take();
    ensure!(asked == crate::Counts::default(), "the store was asked: {asked:?}");
    Ok(())
}
