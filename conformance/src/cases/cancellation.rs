//! Cancel safety: what is dropped at any await point leaves nothing behind and loses no wake-up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use futures_util::future::{FutureExt, join};
use leasehold_core::backend::{AcquireRequest, Grant};
use leasehold_core::clock::Deadline;
use leasehold_core::{Error, ErrorKind, Lock, LockGuard, LostReason, Mode, Result};

use crate::cancel::{NAME, Scene, at_every_poll};
use crate::layer::{Below, Layer, shared};
use crate::{Outcome, Task, World, case, ensure};

case::table! { "g8":
    cancelled_acquire_leaves_nothing: "the contract's `acquire` of a free lock, dropped at every poll",
    cancelled_wait_leaves_nothing: "the contract's `acquire` of a held lock, dropped at every poll, the grant included",
    cancelled_try_leaves_nothing: "the contract's `try_acquire`, dropped at every poll",
    a_dropped_acquire_leaves_nothing: "a manager's `acquire` of a free lock, after a lost place and a late grant, \
         dropped at every poll",
    a_dropped_try_leaves_nothing: "a manager's `try_acquire`, dropped at every poll",
    a_dropped_waiter_passes_its_turn_on: "a waiting process that cancels at any poll, also during the \
         hand-over",
    a_dropped_local_waiter_passes_its_turn_on: "a task that waits for another task of its process, dropped \
         at every poll",
    a_dropped_driver_passes_its_request_on: "if the task that asked the store leaves, the tasks behind it \
         get the lock",
    a_dropped_release_goes_on: "a release that has started frees the lock even if its future is dropped",
    a_dropped_with_releases: "dropped work releases its lock",
    a_panic_in_with_releases: "work that panics releases its lock",
    a_timeout_leaves_nothing: "a cancelled wait leaves no entry in the store",
    a_cancelled_share_leaves_nothing [SHARED]: "the contract's `acquire` of a share while another share is \
         held, dropped at every poll",
    a_cancelled_permit_gives_its_weight_back [PERMITS]: "the contract's `acquire` of permits while others \
         wait, dropped at every poll",
    a_dropped_reader_passes_its_turn_on [SHARED]: "a manager's reader that joins, waits or asks the store, \
         dropped at every poll",
}

async fn cancelled_acquire_leaves_nothing(world: World) -> Outcome {
    at_every_poll(&world, |scene| async move {
        let session = scene.there.session().await?;
        scene.interrupts_acquire(&session, NAME).await?;
        scene.ensure_free_of(session).await
    })
    .await
}

async fn cancelled_wait_leaves_nothing(world: World) -> Outcome {
    at_every_poll(&world, |scene| async move {
        let (holder, session) = (scene.world.session().await?, scene.there.session().await?);
        let held = holder.take(NAME).await?;
        let (granted, released) = join(scene.interrupt(session.acquire(NAME)), async {
            scene.world.settle().await;
            holder.backend.release(&held).await
        })
        .await;
        released?;
        if let Some(grant) = granted? {
            session.backend.release(&grant).await?;
        }
        scene.ensure_free_of(session).await
    })
    .await
}

async fn cancelled_try_leaves_nothing(world: World) -> Outcome {
    at_every_poll(&world, |scene| async move {
        let session = scene.there.session().await?;
        if let Some(Some(grant)) = scene.interrupt(session.try_acquire(NAME)).await? {
            session.backend.release(&grant).await?;
        }
        scene.ensure_free_of(session).await
    })
    .await
}

/// A store that loses the first place in its queue, and is late with the first grant.
#[derive(Debug, Default)]
struct Unlucky {
    asked: AtomicUsize,
}

#[async_trait]
impl Layer for Unlucky {
    async fn acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Grant> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        if asked == 0 {
            return Err(Error::lost(LostReason::Gone));
        }
        let mut grant = below.backend.acquire(request).await?;
        if asked == 1 {
            grant.lease.deadline = Deadline::At(below.env.now());
        }
        Ok(grant)
    }
}

async fn a_dropped_acquire_leaves_nothing(world: World) -> Outcome {
    at_every_poll(&world, |scene| async move {
        let manager = scene.there.behind(shared(Arc::new(Unlucky::default()))).manager().await?;
        if let Some(guard) = scene.interrupt(manager.lock(NAME)?.acquire()).await? {
            guard.release().await?;
        }
        scene.ensure_free().await
    })
    .await
}

async fn a_dropped_try_leaves_nothing(world: World) -> Outcome {
    at_every_poll(&world, |scene| async move {
        let lock = scene.there.manager().await?.lock(NAME)?;
        if let Some(Some(guard)) = scene.interrupt(lock.try_acquire()).await? {
            guard.release().await?;
        }
        scene.ensure_free().await
    })
    .await
}

async fn a_dropped_waiter_passes_its_turn_on(world: World) -> Outcome {
    at_every_poll(&world, |scene| async move {
        let held = scene.holder.lock(NAME)?.acquire().await?;
        let leaves = scene.there.manager().await?.lock(NAME)?;
        a_waiter_leaves(&scene, held, leaves, scene.next.lock(NAME)?).await
    })
    .await
}

async fn a_dropped_local_waiter_passes_its_turn_on(world: World) -> Outcome {
    at_every_poll(&world, |scene| async move {
        let process = scene.there.manager().await?;
        let held = process.lock(NAME)?.acquire().await?;
        a_waiter_leaves(&scene, held, process.lock(NAME)?, process.lock(NAME)?).await
    })
    .await
}

/// While a lock is held, one waits and is interrupted, and another waits behind it.
async fn a_waiter_leaves(scene: &Scene, held: LockGuard, leaves: Lock, next: Lock) -> Outcome {
    let (guard, next) = join(scene.interrupt(leaves.acquire()), async {
        scene.world.settle().await;
        let next = Task::acquire(next);
        scene.world.settle().await;
        held.release().await?;
        Ok::<_, crate::Failure>(next)
    })
    .await;
    if let Some(guard) = guard? {
        guard.release().await?;
    }
    let next = scene.world.joined(scene.world.soon(), "the next one's turn", next?).await?;
    next.release().await?;
    scene.ensure_free().await
}

async fn a_dropped_driver_passes_its_request_on(world: World) -> Outcome {
    at_every_poll(&world, |scene| async move {
        let process = scene.there.manager().await?;
        let held = scene.holder.lock(NAME)?.acquire().await?;
        let lock = process.lock(NAME)?;
        let (guard, heirs) = join(scene.interrupt(lock.acquire()), async {
            let heirs = [process.lock(NAME)?, process.lock(NAME)?].map(|heir| {
                Task::start(async move {
                    heir.acquire().await?.release().await?;
                    Ok::<_, crate::Failure>(())
                })
            });
            scene.world.settle().await;
            held.release().await?;
            Ok::<_, crate::Failure>(heirs)
        })
        .await;
        if let Some(guard) = guard? {
            guard.release().await?;
        }
        for heir in heirs? {
            scene.world.joined(scene.world.soon(), "the heir's turn", heir).await?;
        }
        scene.ensure_free().await
    })
    .await
}

async fn a_dropped_release_goes_on(world: World) -> Outcome {
    at_every_poll(&world, |scene| async move {
        let guard = scene.there.manager().await?.lock(NAME)?.acquire().await?;
        scene.interrupt(guard.release()).await?;
        scene.ensure_free().await
    })
    .await
}

async fn a_dropped_with_releases(world: World) -> Outcome {
    at_every_poll(&world, |scene| async move {
        let lock = scene.there.manager().await?.lock(NAME)?;
        scene.interrupt(lock.with(async |_held| scene.world.settle().await)).await?;
        scene.ensure_free().await
    })
    .await
}

async fn a_panic_in_with_releases(world: World) -> Outcome {
    let lock = world.manager().await?.lock(NAME)?;
    let work = lock.with(async |_held| {
        // Not a panic that prints: this one is part of the property.
        std::panic::resume_unwind(Box::new("work that panics"));
    });
    let panicked = std::panic::AssertUnwindSafe(work).catch_unwind().await;
    ensure!(panicked.is_err(), "the panic was swallowed");
    Scene::whole(world).await?.ensure_free().await
}

async fn a_timeout_leaves_nothing(world: World) -> Outcome {
    let holder = world.manager_with(|builder| builder.owner_label("label of the holder")).await?;
    let held = holder.lock(NAME)?.acquire().await?;
    let lock = world.manager().await?.lock(NAME)?.wait(world.moment());
    let answer = world.within(world.soon(), "the timeout", lock.acquire()).await?;
    let Err(ErrorKind::Timeout { waited, holder }) = answer.as_ref().map_err(Error::kind) else {
        return Err(crate::Failure::new(format!("a wait with a timeout returned {answer:?}")));
    };
    ensure!(*waited >= world.moment(), "ended after {waited:?} instead of {:?}", world.moment());
    if let Some(holder) = holder {
        ensure!(holder.label == "label of the holder", "{:?} was named as holder", holder.label);
    }
    world.queued(NAME, 0).await?;
    held.release().await?;
    Scene::whole(world).await?.ensure_free().await
}

async fn a_cancelled_share_leaves_nothing(world: World) -> Outcome {
    at_every_poll(&world, |scene| async move {
        let beside = scene.world.session().await?.wants(Mode::SHARED);
        let share = beside.take(NAME).await?;
        let session = scene.there.session().await?.wants(Mode::SHARED);
        scene.interrupts_acquire(&session, NAME).await?;
        beside.backend.release(&share).await?;
        scene.ensure_free_of(session).await
    })
    .await
}

async fn a_cancelled_permit_gives_its_weight_back(world: World) -> Outcome {
    at_every_poll(&world, |scene| async move {
        let holder = scene.world.session().await?.wants(Mode::permits(1, 3)?);
        let held = holder.take(NAME).await?;
        let session = scene.there.session().await?.wants(Mode::permits(2, 3)?);
        scene.interrupts_acquire(&session, NAME).await?;
        let next = scene.world.session().await?.wants(Mode::permits(2, 3)?);
        let granted = scene.world.within(scene.world.soon(), "the same weight", next.acquire(NAME));
        let grant = granted.await??;
        next.backend.release(&grant).await?;
        holder.backend.release(&held).await?;
        scene.ensure_free_of(session).await
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
        let (_, written) = join(scene.interrupt(reads), writes).await;
        written?;
        let other = scene.world.joined(scene.world.soon(), "the reader beside it", other).await?;
        ensure!(other.ensure_held().is_ok(), "the other reader has lost it");
        other.release().await?;
        scene.ensure_free().await
    })
    .await
}
