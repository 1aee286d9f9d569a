//! Order and no herd: first come, first served between processes, and one release wakes one
//! contender.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold_core::{LockGuard, LockManager, Mode};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::dice::Dice;
use crate::entry_rule::entry_rule;
use crate::history::Journal;
use crate::invariants::one_entry;
use crate::network::Network;
use crate::request_counts::{Counts, RequestCounts};
use crate::{Failure, Outcome, Session, Task, World, case, ensure};

case::table! { "g7":
    grants_in_order_of_arrival [FIFO]: "five sessions of the contract are granted in the order in which they came",
    waiting_beyond_the_ttl_keeps_the_place [FIFO|LEASED]: "a waiter is still first after three ttls",
    one_release_wakes_one_contender [FIFO]: "requests per release are the same with two and with twelve waiting",
    an_abandoned_place_is_closed_up [FIFO]: "leaving the middle of the queue delays no waiter",
    a_driver_that_leaves_keeps_the_place_of_its_process [FIFO]: "the place belongs to the process, not to the task that asked",
    local_waiters_are_served_in_order: "tasks of one process are granted in the order in which they came",
    local_hand_off_needs_no_request: "any number of tasks of one process cost one acquisition and one release",
    local_hand_off_stays_within_its_budget [FIFO]: "past a waiting process a lock is handed off locally \
         as often as the limit allows, and within the window",
    one_entry_per_process_and_name: "a process has one entry per name at the store, whatever its tasks do",
    a_reader_does_not_pass_a_waiting_writer [SHARED|FIFO]: "a stream of readers does not block a writer",
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

async fn grants_in_order_of_arrival(world: World) -> Outcome {
    let holder = world.session().await?;
    let grant = holder.take("a").await?;
    let mut queue: Vec<(Session, _)> = Vec::new();
    for place in 1..=5 {
        let session = world.session().await?;
        let waiting = session.acquire_aside("a");
        world.queued("a", place).await?;
        queue.push((session, waiting));
    }
    holder.backend.release(&grant).await?;
    for place in 0..queue.len() {
        let (session, waiting) = &mut queue[place];
        let grant = world.joined(world.soon(), &format!("turn {place}"), waiting).await?;
        world.settle().await;
        let session = session.clone();
        let early: Vec<_> = (place + 1..queue.len()).filter(|later| queue[*later].1.is_finished()).collect();
        ensure!(early.is_empty(), "places {early:?} were served before place {place} let go");
        session.backend.release(&grant).await?;
    }
    Ok(())
}

async fn waiting_beyond_the_ttl_keeps_the_place(world: World) -> Outcome {
    let (first, second) = (world.manager().await?, world.manager().await?);
    let guard = world.manager().await?.lock("a")?.acquire().await?;
    let first = Task::acquire(first.lock("a")?);
    world.queued("a", 1).await?;
    world.pass(3 * world.ttl()).await;
    let mut second = Task::acquire(second.lock("a")?);
    world.queued("a", 2).await?;
    guard.release().await?;
    tokio::select! {
        biased;
        served = world.joined(world.soon(), "the first one's turn", first) => served?.release().await?,
        _ = &mut second => return Err(Failure::new("who waited for three ttls was overtaken")),
    }
    world.joined(world.soon(), "the second one's turn", second).await?.release().await?;
    Ok(())
}

async fn one_release_wakes_one_contender(world: World) -> Outcome {
    let few = requests_of_a_release(&world, "few", Mode::EXCLUSIVE, [0, 2]).await?;
    let many = requests_of_a_release(&world, "many", Mode::EXCLUSIVE, [0, 12]).await?;
    ensure!(few == many, "a release with 2 waiting took {few:?}, with 12 waiting {many:?}");
    Ok(())
}

/// What a holder's release costs beside so many other holders, and before so many that wait.
pub(super) async fn requests_of_a_release(
    world: &World,
    name: &str,
    mode: Mode,
    [beside, waiting]: [usize; 2],
) -> Outcome<Counts> {
    let counts = RequestCounts::default();
    let there = world.behind(counts.wrap());
    let mut holders = Vec::new();
    for _ in 0..=beside {
        let session = there.session().await?.wants(mode);
        let grant = session.take(name).await?;
        holders.push((session, grant));
    }
    let mut queue = Vec::new();
    for place in 1..=waiting {
        queue.push(there.session().await?.acquire_aside(name));
        world.queued(name, place).await?;
    }
    let (holder, grant) = &holders[0];
    world.settle().await;
    counts.take();
    holder.backend.release(grant).await?;
    world.settle().await;
    let woken = queue.iter().filter(|waiting| waiting.is_finished()).count();
    ensure!(woken == usize::from(beside == 0), "{woken} of {waiting} hold after one release beside {beside}");
    Ok(counts.take())
}

async fn an_abandoned_place_is_closed_up(world: World) -> Outcome {
    let guard = world.manager().await?.lock("a")?.acquire().await?;
    let mut queue = Vec::new();
    for place in 0..4 {
        queue.push(Task::acquire(world.manager().await?.lock("a")?));
        world.queued("a", place + 1).await?;
    }
    let last = queue.pop();
    drop(queue);
    world.queued("a", 1).await?;
    guard.release().await?;
    if let Some(last) = last {
        world.joined(world.soon(), "the turn of the one who stayed", last).await?.release().await?;
    }
    Ok(())
}

async fn a_driver_that_leaves_keeps_the_place_of_its_process(world: World) -> Outcome {
    let (process, rival) = (world.manager().await?, world.manager().await?);
    let guard = world.manager().await?.lock("a")?.acquire().await?;
    let driver = Task::acquire(process.lock("a")?);
    world.queued("a", 1).await?;
    let behind = Task::acquire(process.lock("a")?);
    let rival = Task::acquire(rival.lock("a")?);
    world.queued("a", 2).await?;
    drop(driver);
    world.settle().await;
    guard.release().await?;
    world.settle().await;
    ensure!(!rival.is_finished(), "the process lost its place with the task that asked the store");
    world.joined(world.soon(), "the next task of the process", behind).await?.release().await?;
    world.joined(world.soon(), "the rival's turn", rival).await?.release().await?;
    Ok(())
}

/// Tasks of one process that wait for `a` and say in which order they held it.
async fn local_queue(
    world: &World,
    manager: &LockManager,
    tasks: usize,
) -> Outcome<(Arc<Mutex<Vec<usize>>>, Vec<Task<Outcome>>)> {
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut workers = Vec::new();
    for place in 0..tasks {
        let (lock, order, there) = (manager.lock("a")?, Arc::clone(&order), world.clone());
        let (tell, told) = oneshot::channel();
        workers.push(Task::start(async move {
            let mut acquiring = pin!(lock.acquire());
            // Its first poll puts it into the queue.
            let first = poll_fn(|cx| Poll::Ready(acquiring.as_mut().poll(cx))).await;
            let _ = tell.send(());
            let guard = match first {
                Poll::Ready(guard) => guard?,
                Poll::Pending => acquiring.await?,
            };
            order.lock().push(place);
            there.pass(there.ttl() / 1_000).await;
            guard.release().await?;
            Ok(())
        }));
        // One after the other, so that the order is known.
        let asked = world.within(world.soon(), "a task asks for the lock", told).await?;
        asked.map_err(|_| Failure::new("a task died before it asked"))?;
    }
    Ok((order, workers))
}

async fn local_waiters_are_served_in_order(world: World) -> Outcome {
    let manager = world.manager().await?;
    let guard = manager.lock("a")?.acquire().await?;
    let (order, workers) = local_queue(&world, &manager, 8).await?;
    guard.release().await?;
    for worker in workers {
        world.joined(world.soon(), "every task's turn", worker).await?;
    }
    let order = order.lock().clone();
    ensure!(order.is_sorted(), "served in the order {order:?}");
    Ok(())
}

async fn local_hand_off_needs_no_request(world: World) -> Outcome {
    let mut asked = Vec::new();
    for tasks in [2, 32] {
        let counts = RequestCounts::default();
        let there = world.behind(counts.wrap());
        let manager = there.manager_with(|builder| builder.handoff_window(world.ttl())).await?;
        let guard = manager.lock("a")?.acquire().await?;
        let (_, workers) = local_queue(&world, &manager, tasks).await?;
        guard.release().await?;
        for worker in workers {
            world.joined(world.soon(), "every task's turn", worker).await?;
        }
        asked.push(counts.take());
    }
    let once = Counts { tries: 0, acquires: 1, releases: 1 };
    ensure!(asked.iter().all(|counts| *counts == once), "with 2 and 32 tasks the store was asked {asked:?}");
    Ok(())
}

/// How many tasks of a process hold the lock before a rival that came while the first held it.
async fn holds_before_the_rival(world: &World, manager: &LockManager, tasks: usize) -> Outcome<usize> {
    let rival = world.manager().await?;
    let guard: LockGuard = manager.lock("a")?.acquire().await?;
    let (order, workers) = local_queue(world, manager, tasks).await?;
    let rival = Task::acquire(rival.lock("a")?);
    world.queued("a", 1).await?;
    guard.release().await?;
    let guard = world.joined(world.soon(), "the rival's turn", rival).await?;
    let before = order.lock().len();
    guard.release().await?;
    for worker in workers {
        world.joined(world.soon(), "every task's turn", worker).await?;
    }
    Ok(before)
}

async fn local_hand_off_stays_within_its_budget(world: World) -> Outcome {
    let ttl = world.ttl();
    let limited = world.manager_with(|builder| builder.handoff_limit(3).handoff_window(ttl)).await?;
    let brief = world.manager_with(|builder| builder.handoff_window(ttl / 50)).await?;
    let none = world.manager_with(|builder| builder.handoff_limit(0)).await?;
    // Sixty holds of a thousandth of the ttl each are three times the window.
    for (manager, tasks, allowed) in [(&limited, 8, 3..=3), (&brief, 60, 0..=30), (&none, 4, 0..=0)] {
        let before = holds_before_the_rival(&world, manager, tasks).await?;
        ensure!(
            allowed.contains(&before),
            "{before} local hand-offs past a waiting process, not {allowed:?}"
        );
    }
    Ok(())
}

async fn one_entry_per_process_and_name(world: World) -> Outcome {
    let journal = Journal::new(Arc::clone(world.clock()));
    let network = Network::new(world.crossing());
    let mut workers = Vec::new();
    for process in 0..2 {
        let watched = entry_rule(journal.actor(format!("p{process}")));
        let there = world.behind(network.wrap()).behind(watched);
        let manager = there.manager_with(|builder| builder.handoff_limit(2)).await?;
        for task in 0..4 {
            let (world, lock, mut dice) = (world.clone(), manager.lock("a")?, Dice::new(process * 4 + task));
            workers.push(Task::start(async move {
                for _ in 0..25 {
                    let patience = dice.span(world.ttl() * 16 / 5_000);
                    let guard = match dice.below(3) {
                        0 => lock.try_acquire().await?,
                        1 => world.within(patience, "patience", lock.acquire()).await.ok().transpose()?,
                        _ => Some(lock.acquire().await?),
                    };
                    world.pass(dice.span(world.ttl() * 3 / 5_000)).await;
                    match guard {
                        Some(guard) if dice.below(2) == 0 => guard.release().await?,
                        guard => drop(guard),
                    }
                }
                Ok::<_, Failure>(())
            }));
        }
    }
    Task::all(workers).await?;
    let found = one_entry::check(&journal.history());
    ensure!(found.is_empty(), "the core broke the contract {} times: {:?}", found.len(), found.first());
    world.empty(world.soon(), "all entries are removed").await
}

/// A session for each mode, queued in this order behind `ahead`, and what it waits for.
async fn line(world: &World, ahead: usize, modes: &[Mode]) -> Outcome<Vec<Waits>> {
    let mut line = Vec::new();
    for (place, mode) in modes.iter().enumerate() {
        let session = world.session().await?.wants(*mode);
        let waiting = session.acquire_aside("a");
        world.queued("a", ahead + place + 1).await?;
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
    let grant = holder.take("a").await?;
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

async fn a_light_request_does_not_pass_a_heavy_one(world: World) -> Outcome {
    let holder = world.session().await?.wants(Mode::permits(2, 3)?);
    let grant = holder.take("a").await?;
    let line = line(&world, 0, &[Mode::permits(2, 3)?, Mode::permits(1, 3)?]).await?;
    let early = served(&world, &line).await;
    ensure!(early.is_empty(), "{early:?} hold beside two of three, and the first of them wants two");
    holder.backend.release(&grant).await?;
    ensure!(served(&world, &line).await == [0, 1], "two and one of three fit together");
    Ok(())
}

async fn one_release_admits_whoever_fits(world: World) -> Outcome {
    let holder = world.session().await?;
    let grant = holder.take("a").await?;
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
    let grant = holder.take("a").await?;
    let mut line = line(&world, 0, &[Mode::EXCLUSIVE, Mode::SHARED, Mode::SHARED]).await?;
    // Its session stays, and its request is cancelled.
    let (_session, writer) = line.remove(0);
    drop(writer);
    world.joined(world.soon(), "a reader behind a writer that left", &mut line[0].1).await?;
    world.joined(world.soon(), "the other one", &mut line[1].1).await?;
    holder.backend.release(&grant).await?;
    Ok(())
}

async fn requests_of_a_release_do_not_grow_with_sharers(world: World) -> Outcome {
    let few = requests_of_a_release(&world, "few", Mode::SHARED, [2, 1]).await?;
    let many = requests_of_a_release(&world, "many", Mode::SHARED, [12, 1]).await?;
    ensure!(few == many, "a release beside 2 took {few:?}, beside 12 {many:?}");
    Ok(())
}

async fn local_readers_join_without_a_request(world: World) -> Outcome {
    let counts = RequestCounts::default();
    let there = world.behind(counts.wrap());
    let manager = there.manager_with(|builder| builder.handoff_window(world.ttl())).await?;
    let lock = manager.lock("a")?.shared();
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
    let lock = manager.lock("a")?.shared();
    let mut guard = lock.acquire().await?;
    let waiting = Task::acquire(world.manager().await?.lock("a")?);
    world.queued("a", 1).await?;
    for before in 0..MOST {
        // Beside the last one, which is released after it.
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
    Err(Failure::new(format!("{MOST} readers passed a writer that waits")))
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
    let held = manager.lock("a")?.shared().acquire().await?;
    let leaving = Task::acquire(manager.lock("a")?);
    world.settle().await;
    let behind = Task::acquire(manager.lock("a")?.shared());
    world.settle().await;
    ensure!(!behind.is_finished(), "a reader passed a writer of its process");
    drop(leaving);
    world.joined(world.soon(), "the reader behind a writer that left", behind).await?.release().await?;
    held.release().await?;
    Ok(())
}
