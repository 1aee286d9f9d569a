//! Order and no herd: first come, first served between processes, and one release wakes one
//! contender.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use leasehold_core::{LockGuard, LockManager};
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
    processes_are_served_in_order [FIFO]: "five managers are granted in the order in which they came",
    waiting_beyond_the_ttl_keeps_the_place [FIFO|LEASED]: "a waiter is still first after three ttls",
    one_release_wakes_one_contender [FIFO]: "requests per release are the same with two and with twelve waiting",
    an_abandoned_place_is_closed_up [FIFO]: "leaving the middle of the queue delays no waiter",
    a_driver_that_leaves_keeps_the_place_of_its_process [FIFO]: "the place belongs to the process, not to the task that asked",
    local_waiters_are_served_in_order: "tasks of one process are granted in the order in which they came",
    local_hand_off_needs_no_request: "any number of tasks of one process cost one acquisition and one release",
    local_hand_off_stays_within_its_budget [FIFO]: "a process hands a lock off locally at most as often as \
         its limit",
    local_hand_off_stays_within_its_tenure [FIFO]: "a process hands a lock off locally at most for its \
         window",
    without_budget_processes_take_turns [FIFO]: "without local hand-off every release goes to the store",
    one_entry_per_process_and_name: "a process has one entry per name at the store, whatever its tasks do",
}

async fn grants_in_order_of_arrival(world: World) -> Outcome {
    let name = world.name("a")?;
    let holder = world.session().await?;
    let grant = holder.take(&name).await?;
    let mut queue: Vec<(Session, _)> = Vec::new();
    for place in 1..=5 {
        let session = world.session().await?;
        let waiting = session.acquire_aside(&name);
        world.queued(&name, place).await?;
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

async fn processes_are_served_in_order(world: World) -> Outcome {
    let name = world.name("a")?;
    let guard = world.manager().await?.lock("a")?.acquire().await?;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut workers = Vec::new();
    for place in 0..5 {
        let (manager, order) = (world.manager().await?, Arc::clone(&order));
        workers.push(Task::start(async move {
            let guard = manager.lock("a")?.acquire().await?;
            order.lock().push(place);
            guard.release().await?;
            Ok::<_, Failure>(())
        }));
        world.queued(&name, place + 1).await?;
    }
    guard.release().await?;
    all_served_in_order(&world, workers, &order).await
}

async fn all_served_in_order(
    world: &World,
    workers: Vec<Task<Outcome>>,
    order: &Mutex<Vec<usize>>,
) -> Outcome {
    for worker in workers {
        world.joined(world.soon(), "everybody's turn", worker).await?;
    }
    let order = order.lock().clone();
    ensure!(order.is_sorted(), "served in the order {order:?}");
    Ok(())
}

async fn waiting_beyond_the_ttl_keeps_the_place(world: World) -> Outcome {
    let name = world.name("a")?;
    let (first, second) = (world.manager().await?, world.manager().await?);
    let guard = world.manager().await?.lock("a")?.acquire().await?;
    let first = Task::acquire(first.lock("a")?);
    world.queued(&name, 1).await?;
    world.pass(3 * world.ttl()).await;
    let mut second = Task::acquire(second.lock("a")?);
    world.queued(&name, 2).await?;
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
    let few = requests_of_a_release(&world, "few", 2).await?;
    let many = requests_of_a_release(&world, "many", 12).await?;
    ensure!(few == many, "a release with 2 waiting took {few:?}, with 12 waiting {many:?}");
    Ok(())
}

async fn requests_of_a_release(world: &World, name: &str, waiting: usize) -> Outcome<Counts> {
    let name = world.name(name)?;
    let counts = RequestCounts::default();
    let there = world.behind(counts.wrap());
    let holder = there.session().await?;
    let grant = holder.take(&name).await?;
    let mut queue = Vec::new();
    for place in 1..=waiting {
        queue.push(there.session().await?.acquire_aside(&name));
        world.queued(&name, place).await?;
    }
    let asked = counts.of_a_release(world, &holder, &grant).await?;
    let woken = queue.iter().filter(|waiting| waiting.is_finished()).count();
    ensure!(woken == 1, "{woken} of {waiting} hold after one release");
    Ok(asked)
}

async fn an_abandoned_place_is_closed_up(world: World) -> Outcome {
    let name = world.name("a")?;
    let guard = world.manager().await?.lock("a")?.acquire().await?;
    let mut queue = Vec::new();
    for place in 0..4 {
        queue.push(Task::acquire(world.manager().await?.lock("a")?));
        world.queued(&name, place + 1).await?;
    }
    let last = queue.pop();
    drop(queue);
    world.queued(&name, 1).await?;
    guard.release().await?;
    if let Some(last) = last {
        world.joined(world.soon(), "the turn of the one who stayed", last).await?.release().await?;
    }
    Ok(())
}

async fn a_driver_that_leaves_keeps_the_place_of_its_process(world: World) -> Outcome {
    let name = world.name("a")?;
    let (process, rival) = (world.manager().await?, world.manager().await?);
    let guard = world.manager().await?.lock("a")?.acquire().await?;
    let driver = Task::acquire(process.lock("a")?);
    world.queued(&name, 1).await?;
    let behind = Task::acquire(process.lock("a")?);
    let rival = Task::acquire(rival.lock("a")?);
    world.queued(&name, 2).await?;
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
    all_served_in_order(&world, workers, &order).await
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
            world.joined(world.soon(), "everybody's turn", worker).await?;
        }
        asked.push(counts.take());
    }
    let once = Counts { tries: 0, acquires: 1, releases: 1 };
    ensure!(asked.iter().all(|counts| *counts == once), "with 2 and 32 tasks the store was asked {asked:?}");
    Ok(())
}

/// How many tasks of a process hold the lock before a rival that came while the first held it.
async fn holds_before_the_rival(world: &World, manager: &LockManager, tasks: usize) -> Outcome<usize> {
    let name = world.name("a")?;
    let rival = world.manager().await?;
    let guard: LockGuard = manager.lock("a")?.acquire().await?;
    let (order, workers) = local_queue(world, manager, tasks).await?;
    let rival = Task::acquire(rival.lock("a")?);
    world.queued(&name, 1).await?;
    guard.release().await?;
    let guard = world.joined(world.soon(), "the rival's turn", rival).await?;
    let before = order.lock().len();
    guard.release().await?;
    for worker in workers {
        world.joined(world.soon(), "everybody's turn", worker).await?;
    }
    Ok(before)
}

async fn local_hand_off_stays_within_its_budget(world: World) -> Outcome {
    let generous = world.ttl();
    let manager = world.manager_with(|builder| builder.handoff_limit(3).handoff_window(generous)).await?;
    let before = holds_before_the_rival(&world, &manager, 8).await?;
    ensure!(before == 3, "{before} local hand-offs with a limit of 3, past a waiting process");
    Ok(())
}

async fn local_hand_off_stays_within_its_tenure(world: World) -> Outcome {
    let tenure = world.ttl() / 50;
    let manager = world.manager_with(|builder| builder.handoff_window(tenure)).await?;
    // Sixty holds of a thousandth of the ttl each are three times the tenure.
    let before = holds_before_the_rival(&world, &manager, 60).await?;
    ensure!(before <= 30, "{before} local hand-offs in a hold for 20, past a waiting process");
    Ok(())
}

async fn without_budget_processes_take_turns(world: World) -> Outcome {
    let manager = world.manager_with(|builder| builder.handoff_limit(0)).await?;
    let before = holds_before_the_rival(&world, &manager, 4).await?;
    ensure!(before == 0, "{before} local hand-offs without a limit");
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
