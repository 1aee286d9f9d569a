//! Timed exclusion: at any instant at most one guard of a name is held.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use leasehold_core::backend::Grant;
use leasehold_core::{Lock, LockManager, Mode};

use crate::dice::Dice;
use crate::network::Network;
use crate::{Failure, Outcome, Task, World, case, dead_holder, ensure};

case::table! { "g1":
    one_holder_at_a_time: "contending processes with several tasks each lose no increment of a plain counter",
    a_renewed_hold_excludes_beyond_its_ttl [LEASED]: "a hold of three ttls is never lost or at risk",
    a_dead_holder_excludes_until_its_deadline [LEASED]: "no client holds before the last deadline of a dead \
         process",
    comings_and_goings_keep_exclusion: "cancelled, timed out, dropped and released in any order, over a slow network",
    shared_holders_coexist [SHARED]: "any number of processes and tasks share a lock, and no writer holds \
         it meanwhile",
    exclusive_and_shared_exclude_each_other [SHARED]: "readers wait for a writer, a writer for readers",
    permits_stay_within_the_capacity [PERMITS]: "the permits in use never exceed the capacity",
    the_smallest_capacity_counts [PERMITS]: "if clients use different capacities, the smallest counts",
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
        ensure!(counted == expected, "{expected} increments counted {counted}: two held at the same time");
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
    let manager = world.manager().await?;
    let grant = dead_holder(&world, "a").await?;
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

async fn shared_holders_coexist(world: World) -> Outcome {
    let rival = world.session().await?;
    let mut guards = Vec::new();
    for _ in 0..3 {
        let lock = world.manager().await?.lock("a")?.shared();
        for _ in 0..2 {
            guards.push(world.within(world.soon(), "a reader beside readers", lock.acquire()).await??);
        }
    }
    while let Some(guard) = guards.pop() {
        ensure!(guard.mode() == Mode::SHARED, "held as {}", guard.mode());
        ensure!(rival.try_acquire("a").await?.is_none(), "a writer beside readers");
        guard.ensure_held()?;
        guard.release().await?;
    }
    world.within(world.soon(), "the last reader's release", rival.acquire("a")).await??;
    Ok(())
}

async fn exclusive_and_shared_exclude_each_other(world: World) -> Outcome {
    for (first, second) in [(Mode::SHARED, Mode::EXCLUSIVE), (Mode::EXCLUSIVE, Mode::SHARED)] {
        let (holder, rival) = (world.session().await?.wants(first), world.session().await?.wants(second));
        let grant = holder.take("a").await?;
        ensure!(rival.try_acquire("a").await?.is_none(), "{second} beside {first}");
        let waiting = rival.acquire_aside("a");
        world.settle().await;
        ensure!(!waiting.is_finished(), "{second} beside {first}");
        holder.backend.release(&grant).await?;
        let grant = world.joined(world.soon(), "its turn", waiting).await?;
        ensure!(holder.try_acquire("a").await?.is_none(), "{first} beside {second}");
        rival.backend.release(&grant).await?;
    }
    Ok(())
}

async fn permits_stay_within_the_capacity(world: World) -> Outcome {
    const CAPACITY: u32 = 4;
    let (held, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut workers = Vec::new();
    for weight in [1, 1, 2, 2, 3, 4] {
        let (world, held, most) = (world.clone(), Arc::clone(&held), Arc::clone(&most));
        let session = world.session().await?.wants(Mode::permits(weight, CAPACITY)?);
        workers.push(Task::start(async move {
            for _ in 0..6 {
                let grant = session.acquire("a").await?;
                let now = held.fetch_add(weight, Ordering::Relaxed) + weight;
                most.fetch_max(now, Ordering::Relaxed);
                ensure!(now <= CAPACITY, "{now} of {CAPACITY} are held");
                world.pass(world.ttl() / 5_000).await;
                held.fetch_sub(weight, Ordering::Relaxed);
                session.backend.release(&grant).await?;
            }
            Ok::<_, Failure>(())
        }));
    }
    Task::all(workers).await?;
    let most = most.load(Ordering::Relaxed);
    ensure!(most == CAPACITY, "at most {most} of {CAPACITY} were held: a client waited for no reason");
    world.empty(world.soon(), "all entries are removed").await
}

async fn the_smallest_capacity_counts(world: World) -> Outcome {
    let (of_two, of_four) = (Mode::permits(1, 2)?, Mode::permits(1, 4)?);
    let (old, beside) = (world.session().await?.wants(of_two), world.session().await?.wants(of_two));
    let (first, second) = (old.take("a").await?, beside.take("a").await?);
    let new = world.session().await?.wants(of_four);
    ensure!(new.try_acquire("a").await?.is_none(), "a third while those who hold agreed on two");
    old.backend.release(&first).await?;
    let raised = new.take("a").await?;
    ensure!(new.try_acquire("a").await?.is_none(), "a third while one who holds counts two");
    beside.backend.release(&second).await?;
    let all = [raised, new.take("a").await?, new.take("a").await?];
    ensure!(old.try_acquire("a").await?.is_none(), "one of two while three are held");
    for grant in &all[..2] {
        new.backend.release(grant).await?;
    }
    let lowered = old.take("a").await?;
    ensure!(new.try_acquire("a").await?.is_none(), "a third while one who holds counts two");
    old.backend.release(&lowered).await?;
    new.backend.release(&all[2]).await?;
    let guard = world.manager().await?.lock("a")?.acquire().await?;
    guard.release().await?;
    Ok(())
}
