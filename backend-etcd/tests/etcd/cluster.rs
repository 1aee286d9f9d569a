//! Three members: leaders killed and paused, quorum lost, members restarted.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::LostReason;
use leasehold_core::clock::Moment;
use leasehold_etcd::EtcdConfig;
use parking_lot::Mutex;
use testbed::etcd::{Setup, current};

use crate::rig::{
    BOUND, Beside, PREFIX, Rig, Store, eventually, hold, hold_aside, now, open, open_with_ttl, trials, within,
};

trials![
    a_paused_leader_may_end_leases_and_guards_know,
    a_paused_leader_of_a_current_version_may_do_so_too,
    without_a_quorum_a_guard_is_lost_at_its_deadline,
    restarting_the_members_one_by_one_loses_nothing,
    a_learner_among_the_endpoints_is_passed_over,
];

/// Longer than an election and a failed renewal together, on a busy machine.
const LONG_TTL: Duration = Duration::from_secs(12);

/// Shorter than the pause of a leader.
const PAUSED_TTL: Duration = Duration::from_secs(6);

/// A leader that was paused may end leases that were kept, when it goes on before it has heard of
/// the next one. No client can prevent that; its guards must know at once, and the fence must hold.
async fn a_paused_leader_may_end_leases_and_guards_know() {
    let ended = paused_leader(Setup::new().members(3)).await;
    println!("the paused leader ended {ended} of {HOLDERS} leases that were kept");
}

/// Since 3.4.31 and 3.5.13 a leader asks before it ends a lease, but not if it has just ticked, as
/// one has that goes on after a pause.
async fn a_paused_leader_of_a_current_version_may_do_so_too() {
    let Some(program) = current() else {
        return testbed::peers::skip("etcd 3.6", "there is none in target/tools; run: make tools");
    };
    let ended = paused_leader(Setup::new().members(3).program(program)).await;
    println!("the paused leader of a current version ended {ended} of {HOLDERS} leases that were kept");
}

const HOLDERS: usize = 20;

/// Pauses the leader for 8 s under holders with sessions of their own; how many keys went while
/// their guards held.
async fn paused_leader(setup: Setup) -> usize {
    let mut rig = Rig::on(setup).await;
    let leader = rig.etcd.leader().await.unwrap();
    let follower = (leader + 1) % rig.etcd.size();
    let witness = Store::connect(&[rig.etcd.addr(follower).to_string()]).await;
    let diary = witness.diary(&format!("{PREFIX}/n")).await;
    let mut holders = Vec::new();
    for index in 0..HOLDERS {
        let manager = open_with_ttl(rig.config(), PAUSED_TTL).await.unwrap();
        let guard = hold(&manager, &format!("n{index}")).await;
        let lost_at: Arc<Mutex<Option<(Moment, LostReason)>>> = Arc::default();
        let (lost, noted) = (guard.lost(), Arc::clone(&lost_at));
        let noting = Beside::start(async move {
            let reason = lost.await;
            *noted.lock() = Some((now(), reason));
        });
        holders.push((manager, guard, lost_at, noting));
    }

    rig.etcd.stop(leader).await.unwrap();
    tokio::time::sleep(Duration::from_secs(8)).await; // The pause itself.
    rig.etcd.cont(leader).unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await; // The old leader does its harm within milliseconds.

    let mut ended = 0;
    for (index, (_manager, guard, lost_at, _noting)) in holders.iter().enumerate() {
        let name = format!("{PREFIX}/n{index}/");
        let deletion =
            || diary.entries().into_iter().find(|entry| entry.is_deletion && entry.key.starts_with(&name));
        let lost = || *lost_at.lock();
        if deletion().is_none() && lost().is_none() {
            guard.ensure_held().unwrap();
            continue;
        }
        eventually(format!("{name} is lost and gone"), async || deletion().is_some() && lost().is_some())
            .await;
        let (deletion, (at, reason)) = (deletion().unwrap(), lost().unwrap());
        // Nobody could renew it in time: it was lost before it was gone (G2).
        if reason == LostReason::Expired {
            assert!(at <= deletion.at, "{name}: expired {:?} after it was gone", at.since(deletion.at));
        } else {
            ended += 1;
            let late = at.since(deletion.at);
            assert!(late < PAUSED_TTL / 3, "{name}: known {late:?} after it was gone");
        }
    }
    // Whoever comes next has a larger token, whether the hold before it ended rightly or wrongly.
    let rival = open_with_ttl(rig.config(), PAUSED_TTL).await.unwrap();
    for (index, (_manager, guard, lost_at, _noting)) in holders.into_iter().enumerate() {
        let token = guard.token();
        if lost_at.lock().is_none() {
            guard.release().await.unwrap();
        }
        let next = hold(&rival, &format!("n{index}")).await;
        assert!(next.token() > token);
        next.release().await.unwrap();
    }
    ended
}

/// Nobody can renew: the guard is lost by its own clock. Healed, the same manager goes on by
/// itself, behind whoever was before it.
async fn without_a_quorum_a_guard_is_lost_at_its_deadline() {
    let mut rig = Rig::on(Setup::new().members(3)).await;
    let (holder, waiter) = (rig.manager().await, rig.manager().await);
    let guard = hold(&holder, "n").await;
    let next = hold_aside(&waiter, "n");
    rig.store.queued("n", 2).await;

    let leader = rig.etcd.leader().await.unwrap();
    let downed = [leader, (leader + 1) % 3];
    for member in downed {
        rig.etcd.stop(member).await.unwrap();
    }
    let deadline = now() + guard.remaining();
    let reason = within(BOUND, "it is lost", guard.lost()).await;
    assert_eq!(reason, LostReason::Expired);
    assert!(now() >= deadline, "given up while it was good, {:?} too early", deadline.since(now()));

    for member in downed {
        rig.etcd.cont(member).unwrap();
    }
    let next = next.end_within(2 * BOUND, "the waiter holds").await;
    assert!(guard.ensure_held().is_err());
    assert!(next.token() > guard.token());
    let token = next.token();
    next.release().await.unwrap();
    let again =
        within(2 * BOUND, "the holder holds again", holder.lock("n").unwrap().acquire()).await.unwrap();
    assert!(again.token() > token);
}

/// Every member in turn, the leader among them, is killed and started again. A session that knows all members lasts. The
/// members that are left pass another lock on, with growing tokens.
async fn restarting_the_members_one_by_one_loses_nothing() {
    let mut rig = Rig::on(Setup::new().members(3)).await;
    let mut endpoints = rig.etcd.endpoints();
    endpoints.rotate_left(1);
    let (holder, waiter) = (
        open_with_ttl(rig.config(), LONG_TTL).await.unwrap(),
        open_with_ttl(EtcdConfig::new(endpoints).prefix(PREFIX), LONG_TTL).await.unwrap(),
    );
    let guard = hold(&holder, "n").await;
    let next = hold_aside(&waiter, "n");
    rig.store.queued("n", 2).await;
    let place = rig.store.queue("n").await;
    let mut passed = hold(&holder, "passed").await;

    for (member, locks) in [&waiter, &holder, &waiter].into_iter().enumerate() {
        rig.etcd.kill(member).await.unwrap();
        eventually("a renewal", async || guard.renew().await.is_ok()).await;
        eventually("a renewal", async || passed.renew().await.is_ok()).await;
        eventually("an answer", async || locks.inspect("passed").await.is_ok()).await;
        let (waiting, token) = (hold_aside(locks, "passed"), passed.token());
        passed.release().await.unwrap();
        passed = waiting.end("the other manager holds").await;
        assert!(passed.token() > token);
        rig.etcd.restart(member).await.unwrap();
    }
    guard.ensure_held().unwrap();
    passed.release().await.unwrap();
    // By a new client: the old one may be connecting still.
    let store = Store::connect(&rig.etcd.endpoints()).await;
    assert_eq!(store.queue("n").await, place);
    let token = guard.token();
    guard.release().await.unwrap();
    let next = next.end("the waiter holds").await;
    assert!(next.token() > token);
    next.release().await.unwrap();
}

/// A learner answers none of our requests: whoever meets it goes on to the next endpoint, at the
/// beginning and later.
async fn a_learner_among_the_endpoints_is_passed_over() {
    for program in [None, current()] {
        let setup = program.iter().fold(Setup::new(), |setup, program| setup.program(program));
        let mut rig = Rig::on(setup).await;
        let learner = rig.etcd.add_learner().await.unwrap();
        let (voter, learner) = (rig.proxy(0), rig.etcd.addr(learner).to_string());
        // Whichever comes first, it is the learner most of the time.
        let endpoints = [learner.clone(), learner.clone(), learner, voter.addr().to_string()];
        for _ in 0..4 {
            let manager = open(EtcdConfig::new(endpoints.clone()).prefix(PREFIX)).await;
            let guard = hold(&manager, "n").await;
            voter.reset().await;
            eventually("a renewal", async || guard.renew().await.is_ok()).await;
            guard.release().await.unwrap();
            manager.shutdown().await.unwrap();
        }
    }
}
