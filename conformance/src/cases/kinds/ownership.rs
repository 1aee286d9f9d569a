//! Ownership: what one does with its share leaves the shares of others.

use leasehold_core::backend::{Renewal, Revocation, Revoke};
use leasehold_core::{LostReason, Mode};

use super::{NAME, reader, writer};
use crate::{Outcome, Task, World, case, ensure};

case::table! { "g4":
    releasing_a_share_leaves_the_others [SHARED]: "who lets go, even twice, ends nobody else's hold",
    renewing_a_share_keeps_no_other [SHARED|LEASED]: "each share lives by its own renewals",
    revoke_asks_every_holder [SHARED]: "all who share a lock are asked, or lose it by force, and the writer behind them holds",
}

async fn releasing_a_share_leaves_the_others(world: World) -> Outcome {
    let name = world.name(NAME)?;
    let [one, other] =
        [world.session().await?.wants(Mode::SHARED), world.session().await?.wants(Mode::SHARED)];
    let rival = world.session().await?;
    let (first, second) = (one.take(&name).await?, other.take(&name).await?);
    one.backend.release(&first).await?;
    ensure!(one.backend.release(&first).await.is_err(), "a share was released twice");
    ensure!(rival.try_acquire(&name).await?.is_none(), "one release ended two shares");
    other.backend.release(&second).await?;
    rival.take(&name).await?;
    Ok(())
}

async fn renewing_a_share_keeps_no_other(world: World) -> Outcome {
    let name = world.name(NAME)?;
    let [one, other] =
        [world.session().await?.wants(Mode::SHARED), world.session().await?.wants(Mode::SHARED)];
    let (kept, left) = (one.take(&name).await?, other.take(&name).await?);
    let _kept = one.keep(&kept);
    world.pass(world.takeover()).await;
    let answer = other.renew(left.lease.id).await?;
    ensure!(matches!(answer, Renewal::Gone(_)), "a share that nobody renewed was answered {answer:?}");
    let answer = one.renew(kept.lease.id).await?;
    ensure!(matches!(answer, Renewal::Until(_)), "a share that was renewed was answered {answer:?}");
    let holders = world.inspect(&name).await?.holders;
    ensure!(holders.len() == 1, "one of two shares has ended, and there are {holders:?}");
    Ok(())
}

async fn revoke_asks_every_holder(world: World) -> Outcome {
    let admin = world.manager().await?;
    for how in [Revoke::AT_ONCE, Revoke::Ask { grace: world.moment() }, Revoke::Force] {
        let managers = [world.manager().await?, world.manager().await?, world.manager().await?];
        let mut guards = Vec::new();
        for manager in &managers {
            guards.push(reader(manager)?.acquire().await?);
        }
        let waiting = Task::acquire(writer(&admin)?);
        world.queued(&world.name(NAME)?, 1).await?;
        let revoked = world.within(world.soon(), "the revocation", admin.revoke(NAME, how)).await??;
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
