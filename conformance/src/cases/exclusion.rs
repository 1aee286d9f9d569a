//! Timed exclusion: at any instant at most one guard of a name is held.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use leasehold_core::backend::Grant;
use leasehold_core::{Lock, LockManager};

use crate::dice::Dice;
use crate::network::Network;
use crate::{Failure, Outcome, Task, World, case, dead_holder, ensure};

case::table! { "g1":
    one_holder_at_a_time: "contending processes with several tasks each lose no increment of a plain counter",
    raw_sessions_exclude_each_other: "the store alone excludes, without the core's queue",
    try_and_acquire_exclude_each_other: "tries and waits together lose no increment",
    a_renewed_hold_excludes_beyond_its_ttl [LEASED]: "a hold of three ttls is never lost or at risk",
    a_dead_holder_excludes_until_its_deadline [LEASED]: "no client holds before the last deadline of a dead \
         process",
    comings_and_goings_keep_exclusion: "cancelled, timed out, dropped and released in any order, over a slow network",
}

/// A number that only a lock protects.
#[derive(Debug, Default)]
struct Unprotected(AtomicU32);

impl Unprotected {
    async fn increment(&self, world: &World) {
        let seen = self.0.load(Ordering::Relaxed);
        // Others get their chance to do it wrong.
        world.pass(world.ttl() / 5_000).await;
        self.0.store(seen + 1, Ordering::Relaxed);
    }

    fn ensure(&self, expected: u32) -> Outcome {
        let counted = self.0.load(Ordering::Relaxed);
        ensure!(
            counted == expected,
            "{expected} increments counted {counted}: two clients held at the same \
             time"
        );
        Ok(())
    }
}

async fn one_holder_at_a_time(world: World) -> Outcome {
    let number = Arc::new(Unprotected::default());
    let mut workers = Vec::new();
    for _ in 0..4 {
        // A small budget, so that the lock passes within a process and between them.
        let manager = world.manager_with(|builder| builder.handoff_limit(2)).await?;
        for _ in 0..3 {
            let (world, number, lock) = (world.clone(), Arc::clone(&number), manager.lock("number")?);
            workers.push(Task::start(async move {
                for _ in 0..8 {
                    let guard = lock.acquire().await?;
                    number.increment(&world).await;
                    guard.release().await?;
                }
                Ok::<_, Failure>(())
            }));
        }
    }
    Task::all(workers).await?;
    number.ensure(4 * 3 * 8)
}

async fn raw_sessions_exclude_each_other(world: World) -> Outcome {
    let name = world.name("number")?;
    let number = Arc::new(Unprotected::default());
    let mut workers = Vec::new();
    for _ in 0..5 {
        let (world, number, name) = (world.clone(), Arc::clone(&number), name.clone());
        let session = world.session().await?;
        workers.push(Task::start(async move {
            for _ in 0..6 {
                let grant = session.acquire(&name).await?;
                number.increment(&world).await;
                session.backend.release(&grant).await?;
            }
            Ok::<_, Failure>(())
        }));
    }
    Task::all(workers).await?;
    number.ensure(5 * 6)
}

async fn try_and_acquire_exclude_each_other(world: World) -> Outcome {
    let number = Arc::new(Unprotected::default());
    let mut workers = Vec::new();
    for patient in [true, false, true, false] {
        let (world, number) = (world.clone(), Arc::clone(&number));
        let lock = world.manager().await?.lock("number")?;
        workers.push(Task::start(async move {
            for _ in 0..10 {
                let guard = loop {
                    if patient {
                        break lock.acquire().await?;
                    }
                    if let Some(guard) = lock.try_acquire().await? {
                        break guard;
                    }
                    // Whoever does not queue has to ask again.
                    world.pass(world.ttl() / 7_000).await;
                };
                number.increment(&world).await;
                guard.release().await?;
                world.pass(world.ttl() / 2_000).await;
            }
            Ok::<_, Failure>(())
        }));
    }
    Task::all(workers).await?;
    number.ensure(4 * 10)
}

async fn a_renewed_hold_excludes_beyond_its_ttl(world: World) -> Outcome {
    let (holder, rival) = (world.manager().await?, world.manager().await?);
    let guard = holder.lock("a")?.acquire().await?;
    let rival = rival.lock("a")?;
    for _ in 0..12 {
        world.pass(world.ttl() / 4).await;
        guard.ensure_held()?;
        ensure!(guard.state() == leasehold_core::GuardState::Held, "a healthy hold is {:?}", guard.state());
        ensure!(rival.try_acquire().await?.is_none(), "a second holder while the first is renewed");
    }
    guard.release().await?;
    Ok(())
}

async fn a_dead_holder_excludes_until_its_deadline(world: World) -> Outcome {
    let name = world.name("a")?;
    let manager = world.manager().await?;
    let grant = dead_holder(&world, &name).await?;
    holds_only_after(&world, &grant, &manager.lock("a")?).await
}

/// Takes the lock of a dead holder, whose deadline has passed then.
pub(super) async fn holds_only_after(world: &World, dead: &Grant, next: &Lock) -> Outcome {
    let guard = world.within(world.takeover(), "the next holder", next.acquire()).await??;
    let deadline = dead.lease.deadline;
    ensure!(deadline.has_passed(world.now()), "held before {deadline:?} has passed");
    guard.release().await?;
    Ok(())
}

async fn comings_and_goings_keep_exclusion(world: World) -> Outcome {
    let network = Network::new(world.crossing());
    let there = world.behind(network.wrap());
    let number = Arc::new(Unprotected::default());
    let done = Arc::new(AtomicU32::new(0));
    let mut workers = Vec::new();
    for process in 0..3 {
        let manager: LockManager = there.manager().await?;
        for task in 0..3 {
            let (world, number, done) = (world.clone(), Arc::clone(&number), Arc::clone(&done));
            let (lock, dice) = (manager.lock("number")?, Dice::new(process * 3 + task));
            workers.push(Task::start(async move {
                let counted = come_and_go(&world, &lock, &number, dice).await?;
                done.fetch_add(counted, Ordering::Relaxed);
                Ok::<_, Failure>(())
            }));
        }
    }
    Task::all(workers).await?;
    number.ensure(done.load(Ordering::Relaxed))?;
    world.empty(world.soon(), "all entries are removed").await
}

/// Twenty rounds of one task; how often it held the lock.
async fn come_and_go(world: &World, lock: &Lock, number: &Unprotected, mut dice: Dice) -> Outcome<u32> {
    let mut held = 0;
    for _ in 0..20 {
        let patience = dice.span(world.ttl() * 20 / 5_000);
        let guard = match dice.below(4) {
            0 => lock.try_acquire().await?,
            1 => lock.clone().wait(patience).acquire().await.ok(),
            2 => world.within(patience, "patience", lock.acquire()).await.ok().transpose()?,
            _ => Some(lock.acquire().await?),
        };
        let Some(guard) = guard else {
            continue;
        };
        number.increment(world).await;
        held += 1;
        if dice.below(2) == 0 {
            guard.release().await?;
        } else {
            drop(guard);
        }
    }
    Ok(held)
}
