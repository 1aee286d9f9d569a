//! A watch shows the holders of a lock, and that it is free.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use leasehold_core::backend::LockState;
use leasehold_core::{Error, ErrorKind, LockManager, LockName, Result, Timing};
use parking_lot::Mutex;

use crate::layer::{Below, For, Layer, shared};
use crate::{Failure, Outcome, World, case, ensure};

case::table! { "g10":
    watch_shows_the_state_first: "a watch begins with the present state of a held and of a free lock",
    watch_shows_whoever_holds: "a watch shows each holder that holds for long enough, and the \
         end of the last hold",
    watch_never_goes_back: "a watch never shows an older state after a newer one",
    watch_shows_the_latest: "a slow watcher gets the present state, not earlier ones",
    watch_goes_on_after_a_cut: "a watch reports an unreachable store once, and then the state after it",
    watch_ends_with_its_manager: "a watcher neither holds nor waits, and leaves no entry",
}

type Watch = BoxStream<'static, Result<LockState>>;

const NAME: &str = "watched";

/// Within which a hold that lasts is shown.
fn bound(world: &World) -> Duration {
    Timing::for_ttl(world.ttl()).op_timeout + world.soon()
}

async fn shown(world: &World, watch: &mut Watch, what: &str) -> Outcome<LockState> {
    let item = world.within(bound(world), what, watch.next()).await?;
    Ok(item.ok_or_else(|| Failure::new(format!("{what}: the watch has ended")))??)
}

/// A process with that label.
async fn labelled(world: &World, label: &str) -> Outcome<LockManager> {
    world.manager_with(|builder| builder.owner_label(label)).await
}

/// The labels of the holders that are shown.
fn labels(state: &LockState) -> Vec<&str> {
    state.holders.iter().map(|holder| holder.label.as_str()).collect()
}

async fn watch_shows_the_state_first(world: World) -> Outcome {
    let onlooker = world.manager().await?;
    let state = shown(&world, &mut onlooker.watch(NAME)?, "the state of a free lock").await?;
    ensure!(state.holders.is_empty() && state.name.as_str() == NAME, "a free lock is shown as {state:?}");
    let holder = labelled(&world, "the holder").await?;
    let guard = holder.lock(NAME)?.metadata("here").acquire().await?;
    let state = shown(&world, &mut onlooker.watch(NAME)?, "the state of a held lock").await?;
    ensure!(labels(&state) == ["the holder"], "a held lock is shown as {state:?}");
    let metadata = state.holder().and_then(|holder| holder.metadata.as_deref());
    ensure!(metadata == Some("here"), "the holder's metadata is shown as {metadata:?}");
    ensure!(state.holders.iter().all(|holder| !holder.foreign), "a leasehold holder is shown as foreign");
    let layer = Arc::new(FailsOnce::default());
    let mut watch = world.behind(shared(Arc::<FailsOnce>::clone(&layer))).manager().await?.watch(NAME)?;
    let item = world.within(bound(&world), "the failure", watch.next()).await?;
    ensure!(matches!(item, Some(Err(_))), "a store that cannot be reached is shown as {item:?}");
    shown(&world, &mut watch, "the state after the failure").await?;
    let are_new = layer.0.lock()[..2] == [true, true];
    ensure!(are_new, "after a failure the first state may be older than the watch");
    Ok(guard.release().await?)
}

/// Fails the first inspection, and keeps which ones were for a new watch.
#[derive(Debug, Default)]
struct FailsOnce(Mutex<Vec<bool>>);

#[async_trait]
impl Layer for FailsOnce {
    async fn inspect(&self, below: &Below, name: &LockName, whom: For) -> Result<LockState> {
        let is_first = {
            let mut seen = self.0.lock();
            seen.push(matches!(whom, For::Watch(true)));
            seen.len() == 1
        };
        if is_first {
            return Err(Error::not_applied(ErrorKind::Unavailable, "cannot be reached once"));
        }
        whom.inspect(&*below.backend, name).await
    }
}

async fn watch_shows_whoever_holds(world: World) -> Outcome {
    let mut watch = world.manager().await?.watch(NAME)?;
    shown(&world, &mut watch, "the state of a free lock").await?;
    for label in ["first", "second", "third"] {
        let guard = labelled(&world, label).await?.lock(NAME)?.acquire().await?;
        let mut state = shown(&world, &mut watch, label).await?;
        if state.holders.is_empty() {
            // The release of the one before.
            state = shown(&world, &mut watch, label).await?;
        }
        ensure!(labels(&state) == [label], "{label} holds, and {:?} are shown", labels(&state));
        let token = state.holders[0].token;
        ensure!(token.is_none_or(|token| token == guard.token()), "{token:?} is not {}", guard.token());
        guard.release().await?;
    }
    let state = shown(&world, &mut watch, "the end of the last hold").await?;
    ensure!(state.holders.is_empty(), "a released lock is shown as held by {:?}", labels(&state));
    Ok(())
}

async fn watch_never_goes_back(world: World) -> Outcome {
    let mut watch = world.manager().await?.watch(NAME)?;
    shown(&world, &mut watch, "the state of a free lock").await?;
    let holders = async {
        for _ in 0..4 {
            let guard = world.manager().await?.lock(NAME)?.acquire().await?;
            // Some of them are seen, some are not.
            world.pass(bound(&world) / 8).await;
            guard.release().await?;
        }
        Outcome::Ok(())
    };
    let mut holders = std::pin::pin!(holders);
    let mut last = None;
    loop {
        tokio::select! {
            biased;
            item = watch.next() => {
                let state = item.ok_or_else(|| Failure::new("the watch has ended"))??;
                let token = state.holder().and_then(|holder| holder.token);
                ensure!(token.is_none() || last <= token, "{token:?} is shown after {last:?}");
                last = token.or(last);
            }
            done = &mut holders => return done,
        }
    }
}

async fn watch_shows_the_latest(world: World) -> Outcome {
    let onlooker = world.manager().await?;
    let (mut watch, mut other) = (onlooker.watch(NAME)?, onlooker.watch(NAME)?);
    shown(&world, &mut watch, "the state of a free lock").await?;
    // It waits for a reading that the other stream carries out, and is not polled meanwhile.
    let item = watch.next().now_or_never();
    ensure!(item.is_none(), "{item:?} is shown, and nothing has changed");
    for label in ["gone by then", "gone as well", "the present one"] {
        let guard = labelled(&world, label).await?.lock(NAME)?.acquire().await?;
        let mut state = shown(&world, &mut other, label).await?;
        while labels(&state) != [label] {
            state = shown(&world, &mut other, label).await?;
        }
        if label == "the present one" {
            let state = shown(&world, &mut watch, "the present state").await?;
            ensure!(labels(&state) == [label], "{:?} are shown", labels(&state));
        }
        guard.release().await?;
    }
    Ok(())
}

async fn watch_goes_on_after_a_cut(world: World) -> Outcome {
    let (network, onlooker) = world.far().await?;
    let mut watch = onlooker.watch(NAME)?;
    shown(&world, &mut watch, "the state of a free lock").await?;
    network.cut();
    let item = world.within(2 * bound(&world), "the cut", watch.next()).await?;
    ensure!(matches!(item, Some(Err(_))), "a store that cannot be reached is shown as {item:?}");
    let guard = labelled(&world, "unseen").await?.lock(NAME)?.acquire().await?;
    let again = world.within(bound(&world), "nothing", watch.next()).await;
    ensure!(again.is_err(), "during the cut {again:?} is reported again");
    network.heal();
    let state = world.within(2 * bound(&world), "the state after the cut", watch.next()).await?;
    let state = state.ok_or_else(|| Failure::new("the watch has ended"))??;
    ensure!(labels(&state) == ["unseen"], "after the cut {:?} are shown", labels(&state));
    Ok(guard.release().await?)
}

async fn watch_ends_with_its_manager(world: World) -> Outcome {
    let onlooker = world.manager().await?;
    let mut watch = onlooker.watch(NAME)?;
    shown(&world, &mut watch, "the state of a free lock").await?;
    world.empty(world.moment(), "a lock that is only watched").await?;
    onlooker.shutdown().await?;
    let item = world.within(bound(&world), "the end of the watch", watch.next()).await?;
    ensure!(item.is_none(), "after the shutdown {item:?} is shown");
    let item = watch.next().await;
    ensure!(item.is_none(), "after the end {item:?} is shown");
    Ok(())
}
