//! Told before it is gone: also where others hold on.

use leasehold_core::backend::Revoke;
use leasehold_core::{LostReason, Mode};

use super::{NAME, reader, writer};
use crate::cases::exclusion::holds_only_after;
use crate::session::dead_holder_in;
use crate::{Outcome, World, case, ensure};

case::table! { "g2":
    a_share_is_lost_before_a_writer_holds [SHARED|LEASED]: "no writer holds before the last deadline of a \
         dead reader",
    guards_that_joined_are_lost_together [SHARED]: "all tasks that share one hold are notified of its end",
}

async fn a_share_is_lost_before_a_writer_holds(world: World) -> Outcome {
    let next = writer(&world.manager().await?)?;
    let grant = dead_holder_in(&world, &world.name(NAME)?, Mode::SHARED).await?;
    holds_only_after(&world, &grant, &next).await
}

async fn guards_that_joined_are_lost_together(world: World) -> Outcome {
    let (manager, admin) = (world.manager().await?, world.manager().await?);
    let lock = reader(&manager)?;
    let guards = [lock.acquire().await?, lock.acquire().await?, lock.acquire().await?];
    let [first, others @ ..] = guards;
    first.release().await?;
    world.within(world.soon(), "the revocation", admin.revoke(NAME, Revoke::AT_ONCE)).await??;
    for guard in others {
        let reason = world.within(world.soon(), "a reader is notified", guard.lost()).await?;
        ensure!(reason == LostReason::Revoked, "a reader got the reason {reason:?}");
        ensure!(guard.ensure_held().is_err(), "held after it was revoked");
    }
    world.empty(world.soon(), "all were revoked").await
}
