//! Liveness: a dead process delays others by a ttl and a little, one that has ended not at all.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::Revoke;
use leasehold_core::{ErrorKind, Guarantees, HeldRef, LostReason, Mode};
use tokio::sync::mpsc;

use crate::network::Network;
use crate::session::dead_holder_in;
use crate::{Failure, Outcome, Task, World, case, dead_holder, dead_waiter, ensure};

case::table! { "g6":
    a_dead_holder_frees_the_lock: "the next client holds within ttl, granularity and a second",
    a_dead_waiter_is_passed_over [LEASED|FIFO]: "a waiter that died long ago costs no time, one \
         that has just died its lease",
    a_lost_wait_ends [LEASED]: "a lost queue entry ends its acquisition without a trace, or is queued again",
    a_lost_waiter_queues_again [LEASED]: "a process whose queue entry was lost in a cut queues again and is \
         served",
    closing_frees_everything: "closing a session frees its locks, removes its waits, and refuses later \
         requests",
    shutdown_frees_everything: "a manager's guards are lost and released, its waiters refused",
    the_end_of_a_manager_frees_everything: "dropping the last handle ends the session",
    a_dropped_guard_frees_the_lock: "a guard that goes out of scope is released in the background",
    a_guard_dropped_off_the_runtime_frees_the_lock [RUNTIME_FREE]: "a guard dropped on a plain thread is \
         released at once",
    a_lock_may_have_its_own_ttl [PER_LOCK_TTL|LEASED]: "a shorter lease ends sooner",
    local_waiters_outlive_a_lost_hold: "local waiters of the process that lost the lock still get it",
    leadership_passes_on: "another candidate leads in time when the leader's work panics, when it is revoked, \
         stopped or shut down, and after an outage of a store with leases",
    waiting_for_one_name_delays_no_other: "a wait is for one name",
    a_dead_reader_holds_a_writer_up_for_a_ttl [SHARED|LEASED]: "permits of a dead process are free while \
         other holders live and release",
    a_dead_waiting_writer_holds_readers_up_for_a_ttl [SHARED|LEASED|FIFO]: "readers behind a dead writer \
         join the holding readers",
    a_dead_permit_gives_its_weight_back [PERMITS|LEASED]: "the permits of a dead process are free after its \
         lease",
}

async fn a_dead_holder_frees_the_lock(world: World) -> Outcome {
    dead_holder(&world, "a").await?;
    let next = world.session().await?;
    let grant = world.within(world.takeover(), "the next holder", next.acquire("a")).await??;
    next.backend.release(&grant).await?;
    Ok(())
}

async fn a_dead_waiter_is_passed_over(world: World) -> Outcome {
    for (dead_for, bound) in [(world.takeover(), world.soon()), (Duration::ZERO, world.takeover())] {
        let holder = world.manager().await?.lock("a")?.acquire().await?;
        dead_waiter(&world, "a", 0).await?;
        let next = Task::acquire(world.manager().await?.lock("a")?);
        world.queued("a", 2).await?;
        world.pass(dead_for).await;
        holder.release().await?;
        world.joined(bound, "the turn behind a dead waiter", next).await?.release().await?;
    }
    Ok(())
}

async fn a_lost_wait_ends(world: World) -> Outcome {
    let holder = world.manager().await?.lock("a")?.acquire().await?;
    // Nobody renews the entry of a raw session.
    let session = world.session().await?;
    let (backend, request) = (Arc::clone(&session.backend), session.request("a")?);
    let mut waiting = Task::start(async move { backend.acquire(&request).await });
    world.queued("a", 1).await?;
    // A store may find out when it is the waiter's turn.
    let early = world.within(2 * world.takeover(), "the loss", &mut waiting).await;
    holder.release().await?;
    let ended = match early {
        Ok(ended) => {
            let ended = ended?;
            ensure!(ended.is_err(), "granted although held: {ended:?}");
            ended
        }
        Err(_) => world.within(world.takeover(), "the waiter whose entry was lost", waiting).await??,
    };
    let grant = match ended {
        // It may have queued again by itself.
        Ok(grant) => grant,
        Err(error) => {
            let is_lost = error.lost_reason().is_some();
            ensure!(is_lost, "an acquisition whose entry was lost returned {error:?}");
            // The release may have come before what clears up after the loss.
            world.within(world.soon(), "the next client", session.acquire("a")).await??
        }
    };
    ensure!(!grant.lease.deadline.has_passed(world.now()), "a grant that has already expired");
    session.backend.release(&grant).await?;
    world.empty(world.soon(), "no entry is left").await
}

async fn a_lost_waiter_queues_again(world: World) -> Outcome {
    let holder = world.manager().await?.lock("a")?.acquire().await?;
    let (network, manager) = world.far().await?;
    let waiting = Task::acquire(manager.lock("a")?);
    world.queued("a", 1).await?;
    network.cut();
    world.pass(2 * world.takeover()).await;
    ensure!(!waiting.is_finished(), "granted although held, or cancelled");
    network.heal();
    world.queued("a", 1).await?;
    holder.release().await?;
    let guard = world.joined(world.takeover(), "the waiter whose entry was lost", waiting).await?;
    guard.ensure_held()?;
    guard.release().await?;
    Ok(())
}

async fn closing_frees_everything(world: World) -> Outcome {
    let (session, rival) = (world.session().await?, world.session().await?);
    let other = rival.take("waited").await?;
    session.take("held").await?;
    let waiting = session.acquire_aside("waited");
    world.queued("waited", 1).await?;
    for _ in 0..2 {
        session.backend.close().await?;
    }
    let grant = world.within(world.soon(), "what a closed session held", rival.acquire("held")).await??;
    let answer = session.backend.try_acquire(&session.request("held")?).await;
    let kind = answer.as_ref().err().map(leasehold_core::Error::kind);
    ensure!(kind == Some(&ErrorKind::Closed), "a closed session answered {answer:?}");
    drop(waiting);
    world.queued("waited", 0).await?;
    rival.backend.release(&grant).await?;
    rival.backend.release(&other).await?;
    world.empty(world.soon(), "everything was closed or released").await
}

async fn shutdown_frees_everything(world: World) -> Outcome {
    let (manager, rival) = (world.manager().await?, world.manager().await?);
    let other = rival.lock("waited")?.acquire().await?;
    let guard = manager.lock("held")?.acquire().await?;
    let waiting = [manager.lock("held")?, manager.lock("waited")?];
    let waiting = waiting.map(|lock| Task::start(async move { lock.acquire().await.map(drop) }));
    world.queued("waited", 1).await?;
    world.within(world.soon(), "the shutdown", manager.clone().shutdown()).await??;
    manager.shutdown().await?;
    ensure!(guard.ensure_held().is_err(), "held after the shutdown");
    let reason = world.within(world.soon(), "the guard is notified", guard.lost()).await?;
    ensure!(reason == LostReason::Shutdown, "the guard was told {reason:?}");
    let mut answers = Vec::new();
    for waiting in waiting {
        answers.push(world.within(world.soon(), "the waiter is told", waiting).await??);
    }
    answers.push(manager.lock("new")?.try_acquire().await.map(drop));
    answers.push(manager.inspect("held").await.map(drop));
    for answer in answers {
        let kind = answer.as_ref().err().map(leasehold_core::Error::kind);
        ensure!(kind == Some(&ErrorKind::Closed), "a manager that was shut down answered {answer:?}");
    }
    world.queued("waited", 0).await?;
    let next = world.within(world.soon(), "what was held", rival.lock("held")?.acquire()).await??;
    next.release().await?;
    other.release().await?;
    world.empty(world.soon(), "everything was shut down or released").await
}

async fn the_end_of_a_manager_frees_everything(world: World) -> Outcome {
    let manager = world.manager().await?;
    let guards = [manager.lock("a")?.acquire().await?, manager.lock("b")?.acquire().await?];
    drop(manager);
    world.settle().await;
    for guard in &guards {
        guard.ensure_held()?;
    }
    drop(guards);
    world.empty(world.soon(), "the manager and its guards are gone").await
}

async fn a_dropped_guard_frees_the_lock(world: World) -> Outcome {
    let (manager, next) = (world.manager().await?, world.manager().await?);
    drop(manager.lock("a")?.acquire().await?);
    let guard = world.within(world.soon(), "what was dropped", next.lock("a")?.acquire()).await??;
    ensure!(manager.guards_dropped() == 1, "{} guards were dropped", manager.guards_dropped());
    guard.release().await?;
    Ok(())
}

async fn a_guard_dropped_off_the_runtime_frees_the_lock(world: World) -> Outcome {
    let (manager, next) = (world.manager().await?, world.session().await?);
    let guard = manager.lock("a")?.acquire().await?;
    let dropped = std::thread::spawn(move || drop(guard)).join();
    ensure!(dropped.is_ok(), "dropping a guard on a plain thread panicked");
    ensure!(next.try_acquire("a").await?.is_some(), "not free when `drop` returned");
    Ok(())
}

async fn a_lock_may_have_its_own_ttl(world: World) -> Outcome {
    let network = Network::new(world.crossing());
    let short = world.ttl() / 2;
    let manager =
        world.behind(network.wrap()).manager_with(|builder| builder.op_timeout(world.ttl() / 6)).await?;
    let guard = manager.lock("a")?.ttl(short).acquire().await?;
    ensure!(guard.remaining() <= short, "{:?} remain of a lease of {short:?}", guard.remaining());
    world.pass(world.ttl()).await;
    guard.ensure_held()?;
    network.cut();
    let next = world.manager().await?.lock("a")?;
    let bound = world.takeover() - short;
    let next = world.within(bound, "the next holder", next.acquire()).await??;
    ensure!(guard.ensure_held().is_err(), "two hold");
    next.release().await?;
    Ok(())
}

async fn local_waiters_outlive_a_lost_hold(world: World) -> Outcome {
    let (manager, admin) = (world.manager().await?, world.manager().await?);
    let guard = manager.lock("a")?.acquire().await?;
    let waiting = Task::acquire(manager.lock("a")?);
    world.settle().await;
    world.within(world.soon(), "the revocation", admin.revoke("a", Revoke::AT_ONCE)).await??;
    let next = world.joined(world.soon(), "the local waiter", waiting).await?;
    ensure!(guard.ensure_held().is_err(), "two guards of one process hold");
    next.release().await?;
    Ok(())
}

async fn leadership_passes_on(world: World) -> Outcome {
    let networks = [0, 1].map(|_| Network::new(world.crossing()));
    let hosts = [0, 1].map(|_| world.host(0));
    let open = async |process: usize| {
        let clock = Arc::clone(&hosts[process].1);
        world.behind(networks[process].wrap()).manager_with(|builder| builder.clock(clock)).await
    };
    let managers = [open(0).await?, open(1).await?];
    let (begins, mut terms) = mpsc::unbounded_channel();
    let campaign = |process: usize, panics: bool| {
        let (candidate, begins) = (managers[process].lead("a")?, begins.clone());
        let work = move |leadership: HeldRef| {
            let begins = begins.clone();
            async move {
                // The case may have failed by now.
                let _ = begins.send((process, leadership));
                assert!(!panics, "the work of a leader");
                pending::<()>().await;
            }
        };
        Outcome::Ok(Task::start(async move { Ok(candidate.run(work).await?) }))
    };
    let mut next = async |after: &str, before: Option<HeldRef>| {
        let begun = world.within(world.takeover(), &format!("a leader after {after}"), terms.recv()).await?;
        let (process, leadership) = begun.ok_or_else(|| Failure::new("no candidate is left"))?;
        if let Some(before) = before {
            ensure!(before.ensure_held().is_err(), "two lead after {after}");
            ensure!(before.token() < leadership.token(), "the token does not grow after {after}");
        }
        Outcome::Ok((process, leadership))
    };
    let panics = campaign(0, true)?;
    let (_, first) = next("the start", None).await?;
    let panicked = world.within(world.soon(), "the panic of a leader", panics).await?;
    ensure!(panicked.is_err(), "a panic of the work was swallowed");
    let second = campaign(1, false)?;
    let (_, led) = next("a panic", Some(first)).await?;
    let third = campaign(0, false)?;
    world.queued("a", 1).await?;
    managers[0].revoke("a", Revoke::AT_ONCE).await?;
    let (mut leader, mut led) = next("a revocation", Some(led)).await?;
    world.queued("a", 1).await?;
    if world.guarantees().contains(Guarantees::LEASED) {
        let (stopped, _) = &hosts[leader];
        stopped.stop();
        (_, led) = next("a stop of its process", Some(led)).await?;
        stopped.resume();
        // A candidate pauses after an error, for up to the bound of a request.
        world.queued_within(world.takeover(), "a", 1).await?;
        networks.iter().for_each(Network::cut);
        world.pass(3 * world.ttl()).await;
        ensure!(led.ensure_held().is_err(), "it leads without a store");
        networks.iter().for_each(Network::heal);
        (leader, led) = next("an outage of three ttls", Some(led)).await?;
        world.queued_within(world.takeover(), "a", 1).await?;
    }
    managers[leader].shutdown().await?;
    next("a shutdown", Some(led)).await?;
    let ended = if leader == 0 { third } else { second };
    let ended = world.joined(world.soon(), "the end of a campaign", ended).await?;
    ensure!(ended.is_none(), "a campaign that was shut down ended with {ended:?}");
    Ok(())
}

async fn waiting_for_one_name_delays_no_other(world: World) -> Outcome {
    let (holder, manager) = (world.manager().await?, world.manager().await?);
    let guard = holder.lock("busy")?.acquire().await?;
    let waiting = Task::acquire(manager.lock("busy")?);
    world.queued("busy", 1).await?;
    for round in 0..10 {
        let free = manager.lock(format!("free {round}"))?;
        let other = world.within(world.soon(), "a free lock", free.acquire()).await??;
        other.release().await?;
    }
    guard.release().await?;
    world.joined(world.soon(), "the waiter's turn", waiting).await?.release().await?;
    Ok(())
}

async fn a_dead_reader_holds_a_writer_up_for_a_ttl(world: World) -> Outcome {
    let next = world.manager().await?;
    let living = world.manager().await?.lock("a")?.shared().acquire().await?;
    dead_holder_in(&world, "a", Mode::SHARED).await?;
    let waiting = Task::acquire(next.lock("a")?);
    world.settle().await;
    living.ensure_held()?;
    living.release().await?;
    world.joined(world.takeover(), "the writer behind a dead reader", waiting).await?.release().await?;
    Ok(())
}

async fn a_dead_waiting_writer_holds_readers_up_for_a_ttl(world: World) -> Outcome {
    let next = world.manager().await?;
    let living = world.manager().await?.lock("a")?.shared().acquire().await?;
    dead_waiter(&world, "a", 0).await?;
    let next = next.lock("a")?.shared();
    let guard = world.within(world.takeover(), "the reader behind a dead writer", next.acquire()).await??;
    living.ensure_held()?;
    guard.release().await?;
    living.release().await?;
    Ok(())
}

async fn a_dead_permit_gives_its_weight_back(world: World) -> Outcome {
    dead_holder_in(&world, "a", Mode::permits(2, 3)?).await?;
    let next = world.manager().await?;
    let beside = next.lock("a")?.permits(1, 3).acquire().await?;
    let lock = world.manager().await?.lock("a")?.permits(2, 3);
    ensure!(lock.try_acquire().await?.is_none(), "four of three");
    let guard = world.within(world.takeover(), "the weight of a dead process", lock.acquire()).await??;
    beside.ensure_held()?;
    guard.release().await?;
    beside.release().await?;
    Ok(())
}
