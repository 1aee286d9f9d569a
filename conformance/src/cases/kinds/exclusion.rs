//! Timed exclusion: who holds fits together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use leasehold_core::Mode;

use super::{NAME, reader, some, writer};
use crate::{Failure, Outcome, Task, World, case, ensure};

case::table! { "g1":
    shared_holders_coexist [SHARED]: "any number of processes and tasks share a lock, and no writer holds \
         it meanwhile",
    exclusive_and_shared_exclude_each_other [SHARED]: "readers wait for a writer, a writer for readers",
    permits_stay_within_the_capacity [PERMITS]: "the permits in use never exceed the capacity",
    the_smallest_capacity_counts [PERMITS]: "if clients use different capacities, the smallest counts",
}

async fn shared_holders_coexist(world: World) -> Outcome {
    let name = world.name(NAME)?;
    let rival = world.session().await?;
    let mut guards = Vec::new();
    for _ in 0..3 {
        let lock = reader(&world.manager().await?)?;
        for _ in 0..2 {
            guards.push(world.within(world.soon(), "a reader beside readers", lock.acquire()).await??);
        }
    }
    while let Some(guard) = guards.pop() {
        ensure!(guard.mode() == Mode::SHARED, "held as {}", guard.mode());
        ensure!(rival.try_acquire(&name).await?.is_none(), "a writer beside readers");
        guard.ensure_held()?;
        guard.release().await?;
    }
    world.within(world.soon(), "the last reader's release", rival.acquire(&name)).await??;
    Ok(())
}

async fn exclusive_and_shared_exclude_each_other(world: World) -> Outcome {
    let name = world.name(NAME)?;
    for (first, second) in [(Mode::SHARED, Mode::EXCLUSIVE), (Mode::EXCLUSIVE, Mode::SHARED)] {
        let (holder, rival) = (world.session().await?.wants(first), world.session().await?.wants(second));
        let grant = holder.take(&name).await?;
        ensure!(rival.try_acquire(&name).await?.is_none(), "{second} beside {first}");
        let waiting = rival.acquire_aside(&name);
        world.settle().await;
        ensure!(!waiting.is_finished(), "{second} beside {first}");
        holder.backend.release(&grant).await?;
        let grant = world.joined(world.soon(), "its turn", waiting).await?;
        ensure!(holder.try_acquire(&name).await?.is_none(), "{first} beside {second}");
        rival.backend.release(&grant).await?;
    }
    Ok(())
}

async fn permits_stay_within_the_capacity(world: World) -> Outcome {
    const CAPACITY: u32 = 4;
    let name = world.name(NAME)?;
    let (held, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut workers = Vec::new();
    for weight in [1, 1, 2, 2, 3, 4] {
        let (world, name, held, most) = (world.clone(), name.clone(), Arc::clone(&held), Arc::clone(&most));
        let session = world.session().await?.wants(some(weight, CAPACITY)?);
        workers.push(Task::start(async move {
            for _ in 0..6 {
                let grant = session.acquire(&name).await?;
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
    ensure!(
        most == CAPACITY,
        "at most {most} of {CAPACITY} were held at a time: a client waited for no reason"
    );
    world.empty(world.soon(), "all entries are removed").await
}

async fn the_smallest_capacity_counts(world: World) -> Outcome {
    let name = world.name(NAME)?;
    let (of_two, of_four) = (some(1, 2)?, some(1, 4)?);
    let (old, beside) = (world.session().await?.wants(of_two), world.session().await?.wants(of_two));
    let (first, second) = (old.take(&name).await?, beside.take(&name).await?);
    let new = world.session().await?.wants(of_four);
    ensure!(new.try_acquire(&name).await?.is_none(), "a third while those who hold agreed on two");
    old.backend.release(&first).await?;
    let raised = new.take(&name).await?;
    ensure!(new.try_acquire(&name).await?.is_none(), "a third while one who holds counts two");
    beside.backend.release(&second).await?;
    let all = [raised, new.take(&name).await?, new.take(&name).await?];
    ensure!(old.try_acquire(&name).await?.is_none(), "one of two while three are held");
    for grant in &all[..2] {
        new.backend.release(grant).await?;
    }
    let lowered = old.take(&name).await?;
    ensure!(new.try_acquire(&name).await?.is_none(), "a third while one who holds counts two");
    old.backend.release(&lowered).await?;
    new.backend.release(&all[2]).await?;
    let guard = writer(&world.manager().await?)?.acquire().await?;
    guard.release().await?;
    Ok(())
}
