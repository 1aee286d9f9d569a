//! What is shown of those who hold together.

use leasehold_core::Mode;

use super::{NAME, some};
use crate::{Outcome, World, case, ensure};

case::table! { "g10":
    inspect_shows_every_holder [SHARED]: "holders are shown in order of arrival, with the mode of each",
    inspect_shows_permits [PERMITS]: "holders are shown with the number of permits of each",
}

async fn inspect_shows_every_holder(world: World) -> Outcome {
    let name = world.name(NAME)?;
    let mut guards = Vec::new();
    for label in ["first", "second", "third"] {
        let manager = world.manager_with(|builder| builder.owner_label(label)).await?;
        guards.push(manager.lock(NAME)?.shared().acquire().await?);
    }
    let shown = world.inspect(&name).await?.holders;
    let labels: Vec<_> = shown.iter().map(|holder| holder.label.as_str()).collect();
    ensure!(labels == ["first", "second", "third"], "three hold, and {labels:?} are shown");
    ensure!(shown.iter().all(|holder| holder.mode == Mode::SHARED), "readers are shown as {shown:?}");
    for (guard, holder) in guards.iter().zip(&shown) {
        ensure!(holder.token.is_none_or(|token| token == guard.token()), "{holder:?} is not {guard:?}");
    }
    let listed = world.list().await?;
    ensure!(listed.len() == 1 && listed[0].holders.len() == 3, "listed as {listed:?}");
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

async fn inspect_shows_permits(world: World) -> Outcome {
    let name = world.name(NAME)?;
    let session = world.session().await?.wants(some(2, 5)?);
    let grant = session.take(&name).await?;
    let shown = world.inspect(&name).await?.holders;
    ensure!(shown.len() == 1 && shown[0].mode == some(2, 5)?, "two of five are shown as {shown:?}");
    session.backend.release(&grant).await?;
    Ok(())
}
