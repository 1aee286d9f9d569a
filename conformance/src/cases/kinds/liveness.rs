//! Liveness: of those who share, each dies alone.

use leasehold_core::Mode;

use super::{NAME, reader, some, writer};
use crate::session::dead_holder_in;
use crate::{Outcome, Task, World, case, dead_waiter, ensure};

case::table! { "g6":
    a_dead_reader_holds_a_writer_up_for_a_ttl [SHARED|LEASED]: "permits of a dead process are free while \
         other holders live and release",
    a_dead_waiting_writer_holds_readers_up_for_a_ttl [SHARED|LEASED|FIFO]: "readers behind a dead writer \
         join the holding readers",
    a_dead_permit_gives_its_weight_back [PERMITS|LEASED]: "the permits of a dead process are free after its \
         lease",
}

async fn a_dead_reader_holds_a_writer_up_for_a_ttl(world: World) -> Outcome {
    let next = world.manager().await?;
    let living = reader(&world.manager().await?)?.acquire().await?;
    dead_holder_in(&world, &world.name(NAME)?, Mode::SHARED).await?;
    let waiting = Task::acquire(writer(&next)?);
    world.settle().await;
    living.ensure_held()?;
    living.release().await?;
    world.joined(world.takeover(), "the writer behind a dead reader", waiting).await?.release().await?;
    Ok(())
}

async fn a_dead_waiting_writer_holds_readers_up_for_a_ttl(world: World) -> Outcome {
    let next = world.manager().await?;
    let living = reader(&world.manager().await?)?.acquire().await?;
    dead_waiter(&world, &world.name(NAME)?, 0).await?;
    let guard = world.within(world.takeover(), "the reader behind a dead writer", async {
        Ok::<_, crate::Failure>(reader(&next)?.acquire().await?)
    });
    let guard = guard.await??;
    living.ensure_held()?;
    guard.release().await?;
    living.release().await?;
    Ok(())
}

async fn a_dead_permit_gives_its_weight_back(world: World) -> Outcome {
    let name = world.name(NAME)?;
    dead_holder_in(&world, &name, some(2, 3)?).await?;
    let next = world.manager().await?;
    let beside = next.lock(NAME)?.permits(1, 3).acquire().await?;
    let lock = world.manager().await?.lock(NAME)?.permits(2, 3);
    ensure!(lock.try_acquire().await?.is_none(), "four of three");
    let guard = world.within(world.takeover(), "the weight of a dead process", lock.acquire()).await??;
    beside.ensure_held()?;
    guard.release().await?;
    beside.release().await?;
    Ok(())
}
