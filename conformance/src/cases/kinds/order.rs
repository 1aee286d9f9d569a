//! Order: nobody passes who waits, whatever each wants; and whoever fits is let in at once.

use std::time::Duration;

use leasehold_core::{LockManager, Mode};

use super::{NAME, reader, some, writer};
use crate::request_counts::{Counts, RequestCounts};
use crate::{Outcome, Session, Task, World, case, ensure};

case::table! { "g7":
    a_reader_does_not_pass_a_waiting_writer [SHARED|FIFO]: "a stream of readers does not block a writer",
    a_writer_does_not_pass_readers [SHARED|FIFO]: "a stream of writers does not block a reader",
    a_light_request_does_not_pass_a_heavy_one [PERMITS|FIFO]: "a request that fits waits behind an earlier \
         one that does not fit",
    one_release_admits_whoever_fits [SHARED|FIFO]: "a release grants all readers up to the next writer, and \
         all free permits",
    a_leaving_writer_lets_readers_in [SHARED|FIFO]: "a cancelled waiter does not delay the waiters behind it",
    requests_of_a_release_do_not_grow_with_sharers [SHARED|FIFO]: "the release of a share costs the same \
         with two and with twelve readers",
    local_readers_join_without_a_request [SHARED]: "any number of tasks of one process cost one acquisition and one release",
    joins_stay_within_the_budget [SHARED|FIFO]: "a process's readers take turns with a writer of another",
    a_leaving_local_writer_lets_local_readers_in [SHARED]: "readers and writers of one process take turns",
}

/// A session for each mode, queued in this order behind `ahead`, and what it waits for.
async fn line(world: &World, ahead: usize, modes: &[Mode]) -> Outcome<Vec<Waits>> {
    let mut line = Vec::new();
    for (place, mode) in modes.iter().enumerate() {
        let session = world.session().await?.wants(*mode);
        let waiting = session.acquire_aside(&world.name(NAME)?);
        world.queued(&world.name(NAME)?, ahead + place + 1).await?;
        line.push((session, waiting));
    }
    Ok(line)
}

type Waits = (Session, Task<Outcome<leasehold_core::backend::Grant>>);

/// Which of them hold by now.
async fn served(world: &World, line: &[Waits]) -> Vec<usize> {
    world.settle().await;
    (0..line.len()).filter(|place| line[*place].1.is_finished()).collect()
}

async fn a_reader_does_not_pass_a_waiting_writer(world: World) -> Outcome {
    let holder = world.session().await?.wants(Mode::SHARED);
    let grant = holder.take(&world.name(NAME)?).await?;
    let mut line = line(&world, 0, &[Mode::EXCLUSIVE, Mode::SHARED]).await?;
    let early = served(&world, &line).await;
    ensure!(early.is_empty(), "{early:?} hold beside a reader, and the first of them is a writer");
    holder.backend.release(&grant).await?;
    ensure!(served(&world, &line).await == [0], "not the writer, who was first");
    let grant = world.joined(world.soon(), "the writer's turn", &mut line[0].1).await?;
    line[0].0.backend.release(&grant).await?;
    world.joined(world.soon(), "the reader's turn", &mut line[1].1).await?;
    Ok(())
}

async fn a_writer_does_not_pass_readers(world: World) -> Outcome {
    let holder = world.session().await?;
    let grant = holder.take(&world.name(NAME)?).await?;
    let mut line = line(&world, 0, &[Mode::SHARED, Mode::EXCLUSIVE, Mode::SHARED]).await?;
    holder.backend.release(&grant).await?;
    ensure!(served(&world, &line).await == [0], "not the reader, who was first");
    for (session, waiting) in &mut line[..2] {
        let grant = world.joined(world.soon(), "its turn", waiting).await?;
        session.backend.release(&grant).await?;
    }
    world.joined(world.soon(), "the last one's turn", &mut line[2].1).await?;
    Ok(())
}

async fn a_light_request_does_not_pass_a_heavy_one(world: World) -> Outcome {
    let holder = world.session().await?.wants(some(2, 3)?);
    let grant = holder.take(&world.name(NAME)?).await?;
    let line = line(&world, 0, &[some(2, 3)?, some(1, 3)?]).await?;
    let early = served(&world, &line).await;
    ensure!(early.is_empty(), "{early:?} hold beside two of three, and the first of them wants two");
    holder.backend.release(&grant).await?;
    ensure!(served(&world, &line).await == [0, 1], "two and one of three fit together");
    Ok(())
}

async fn one_release_admits_whoever_fits(world: World) -> Outcome {
    let holder = world.session().await?;
    let name = world.name(NAME)?;
    let grant = holder.take(&name).await?;
    let mut readers = vec![Mode::SHARED; 4];
    readers.extend([Mode::EXCLUSIVE, Mode::SHARED]);
    let mut line_up = line(&world, 0, &readers).await?;
    holder.backend.release(&grant).await?;
    let hold = served(&world, &line_up).await;
    ensure!(hold == [0, 1, 2, 3], "behind a release {hold:?} hold, of four readers before a writer");
    for (session, waiting) in &mut line_up {
        let grant = world.joined(world.soon(), "its turn", waiting).await?;
        session.backend.release(&grant).await?;
    }
    Ok(())
}

async fn a_leaving_writer_lets_readers_in(world: World) -> Outcome {
    let holder = world.session().await?.wants(Mode::SHARED);
    let grant = holder.take(&world.name(NAME)?).await?;
    let mut line = line(&world, 0, &[Mode::EXCLUSIVE, Mode::SHARED, Mode::SHARED]).await?;
    // Its session stays, and gives up what it has asked for.
    let (_session, writer) = line.remove(0);
    drop(writer);
    world.joined(world.soon(), "a reader behind a writer that left", &mut line[0].1).await?;
    world.joined(world.soon(), "the other one", &mut line[1].1).await?;
    holder.backend.release(&grant).await?;
    Ok(())
}

async fn requests_of_a_release_do_not_grow_with_sharers(world: World) -> Outcome {
    let few = requests_of_a_release(&world, "few", 2).await?;
    let many = requests_of_a_release(&world, "many", 12).await?;
    ensure!(few == many, "a release beside 2 took {few:?}, beside 12 {many:?}");
    Ok(())
}

async fn requests_of_a_release(world: &World, name: &str, sharers: usize) -> Outcome<Counts> {
    let name = world.name(name)?;
    let counts = RequestCounts::default();
    let there = world.behind(counts.wrap());
    let holder = there.session().await?.wants(Mode::SHARED);
    let grant = holder.take(&name).await?;
    let mut others = Vec::new();
    for _ in 0..sharers {
        let session = there.session().await?.wants(Mode::SHARED);
        let share = session.take(&name).await?;
        others.push((session, share));
    }
    let waiting = there.session().await?.acquire_aside(&name);
    world.queued(&name, 1).await?;
    let asked = counts.of_a_release(world, &holder, &grant).await?;
    ensure!(!waiting.is_finished(), "a writer holds beside readers");
    Ok(asked)
}

async fn local_readers_join_without_a_request(world: World) -> Outcome {
    let counts = RequestCounts::default();
    let there = world.behind(counts.wrap());
    let manager = there.manager_with(|builder| builder.handoff_window(world.ttl())).await?;
    let lock = reader(&manager)?;
    let mut guards = Vec::new();
    for _ in 0..64 {
        guards.push(lock.acquire().await?);
    }
    for guard in guards {
        guard.release().await?;
    }
    let asked = counts.take();
    ensure!((asked.acquires, asked.releases) == (1, 1), "64 readers asked the store {asked:?}");
    Ok(())
}

/// Readers of one process, one after the other without a gap, until a writer of another has had its turn; how
/// many came before it.
async fn readers_before_a_writer(world: &World, manager: &LockManager) -> Outcome<usize> {
    const MOST: usize = 500;
    let lock = reader(manager)?;
    let mut guard = lock.acquire().await?;
    let waiting = Task::acquire(writer(&world.manager().await?)?);
    world.queued(&world.name(NAME)?, 1).await?;
    for before in 0..MOST {
        // Beside the last one, which is let go behind it.
        let Ok(next) = world
            .within(world.soon(), "the next reader", lock.clone().wait(world.moment()).acquire())
            .await?
        else {
            guard.release().await?;
            world.joined(world.soon(), "the writer's turn", waiting).await?.release().await?;
            return Ok(before);
        };
        guard.release().await?;
        guard = next;
        world.pass(world.ttl() / 1_000).await;
    }
    Err(crate::Failure::new(format!("{MOST} readers passed a writer that waits")))
}

async fn joins_stay_within_the_budget(world: World) -> Outcome {
    let generous = world.ttl();
    let few = world.manager_with(|builder| builder.handoff_limit(3).handoff_window(generous)).await?;
    let before = readers_before_a_writer(&world, &few).await?;
    ensure!(before == 3, "{before} readers joined with a limit of 3, past a waiting writer");
    let window = world.ttl() / 50;
    let short = world.manager_with(|builder| builder.handoff_window(window)).await?;
    let before = readers_before_a_writer(&world, &short).await?;
    ensure!(before <= 30, "{before} readers joined in a window for 20, past a writer that waits");
    Ok(())
}

async fn a_leaving_local_writer_lets_local_readers_in(world: World) -> Outcome {
    let manager = world.manager_with(|builder| builder.handoff_window(Duration::from_secs(60))).await?;
    let held = reader(&manager)?.acquire().await?;
    let leaving = Task::acquire(writer(&manager)?);
    world.settle().await;
    let behind = Task::acquire(reader(&manager)?);
    world.settle().await;
    ensure!(!behind.is_finished(), "a reader passed a writer of its process");
    drop(leaving);
    world.joined(world.soon(), "the reader behind a writer that left", behind).await?.release().await?;
    held.release().await?;
    Ok(())
}
