//! Cancel safety, in every mode.

use leasehold_core::Mode;

use super::some;
use crate::cancel::{NAME, at_every_poll};
use crate::{Outcome, Task, World, case, ensure};

case::table! { "g8":
    a_cancelled_share_leaves_nothing [SHARED]: "the contract's `acquire` of a share while another share is \
         held, dropped at every poll",
    a_cancelled_permit_gives_its_weight_back [PERMITS]: "the contract's `acquire` of permits while others \
         wait, dropped at every poll",
    a_dropped_reader_passes_its_turn_on [SHARED]: "a manager's reader that joins, waits or asks the store, \
         dropped at every poll",
}

async fn a_cancelled_share_leaves_nothing(world: World) -> Outcome {
    at_every_poll(&world, |scene| async move {
        let name = scene.world.name(NAME)?;
        let beside = scene.world.session().await?.wants(Mode::SHARED);
        let share = beside.take(&name).await?;
        let session = scene.there.session().await?.wants(Mode::SHARED);
        scene.interrupts_acquire(&session, &name).await?;
        beside.backend.release(&share).await?;
        scene.ensure_free().await
    })
    .await
}

async fn a_cancelled_permit_gives_its_weight_back(world: World) -> Outcome {
    at_every_poll(&world, |scene| async move {
        let name = scene.world.name(NAME)?;
        let holder = scene.world.session().await?.wants(some(1, 3)?);
        let held = holder.take(&name).await?;
        let session = scene.there.session().await?.wants(some(2, 3)?);
        scene.interrupts_acquire(&session, &name).await?;
        let next = scene.world.session().await?.wants(some(2, 3)?);
        let granted = scene.world.within(
            scene.world.soon(),
            "another client with the same \
             weight",
            next.acquire(&name),
        );
        let grant = granted.await??;
        next.backend.release(&grant).await?;
        holder.backend.release(&held).await?;
        scene.ensure_free().await
    })
    .await
}

async fn a_dropped_reader_passes_its_turn_on(world: World) -> Outcome {
    at_every_poll(&world, |scene| async move {
        let manager = scene.there.manager().await?;
        let guard = manager.lock(NAME)?.acquire().await?;
        let other = Task::acquire(manager.lock(NAME)?.shared());
        let lock = manager.lock(NAME)?.shared();
        let reads = async {
            let read = lock.acquire().await?;
            read.release().await
        };
        let writes = async {
            scene.world.settle().await;
            guard.release().await
        };
        let (_, written) = futures_util::future::join(scene.interrupt(reads), writes).await;
        written?;
        let other = scene.world.joined(scene.world.soon(), "the reader beside it", other).await?;
        ensure!(other.ensure_held().is_ok(), "the other reader has lost it");
        other.release().await?;
        scene.ensure_free().await
    })
    .await
}
