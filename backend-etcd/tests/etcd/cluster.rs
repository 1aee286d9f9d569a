//! A leader of three members that was paused; what every store of several servers does is in `tests/servers` of the
//! workspace.

use std::time::Duration;

use leasehold_core::LostReason;
use testbed::etcd::{Setup, current};
use testbed::pass;

use crate::fixture::{Beside, Fixture, PREFIX, Store, eventually, hold, now, open_with_ttl, trials};

trials![a_paused_leader_may_end_leases_and_guards_know, a_paused_leader_of_a_current_version_may_do_so_too,];

/// Shorter than the pause of a leader.
const PAUSED_TTL: Duration = Duration::from_secs(6);

/// A leader that was paused may end leases that were renewed, when it goes on before it knows of the next one. No client
/// can prevent that; its guards must notice at once, and tokens must grow.
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

/// Pauses the leader for 8 s under holders with sessions of their own; how many keys were deleted while their guards held.
async fn paused_leader(setup: Setup) -> usize {
    let mut fixture = Fixture::on(setup).await;
    let leader = fixture.etcd.leader().await.unwrap();
    let follower = (leader + 1) % fixture.etcd.size();
    let observer = Store::connect(&[fixture.etcd.addr(follower).to_string()]).await;
    let diary = observer.diary(&format!("{PREFIX}/n")).await;
    let mut holders = Vec::new();
    for index in 0..HOLDERS {
        let manager = open_with_ttl(fixture.config(), PAUSED_TTL).await.unwrap();
        let guard = hold(&manager, &format!("n{index}")).await;
        let lost = guard.lost();
        let losing = Beside::start(async move { (lost.await, now()) });
        holders.push((manager, guard, losing));
    }

    fixture.etcd.stop(leader).await.unwrap();
    pass(Duration::from_secs(8)).await;
    fixture.etcd.cont(leader).unwrap();
    pass(Duration::from_secs(2)).await; // The old leader ends leases within milliseconds.

    let rival = open_with_ttl(fixture.config(), PAUSED_TTL).await.unwrap();
    let mut ended = 0;
    for (index, (_manager, guard, losing)) in holders.into_iter().enumerate() {
        let (name, token) = (format!("n{index}"), guard.token());
        let key = format!("{PREFIX}/{name}/");
        let deletion =
            || diary.entries().into_iter().find(|entry| entry.is_deletion && entry.key.starts_with(&key));
        if deletion().is_none() && !losing.is_finished() {
            guard.ensure_held().unwrap();
            guard.release().await.unwrap();
        } else {
            let (reason, at) = losing.end("it is lost").await;
            eventually("its key is deleted", async || deletion().is_some()).await;
            let deleted_at = deletion().unwrap().at;
            // Without a renewal it was lost before its key was deleted (G2).
            if reason == LostReason::Expired {
                assert!(at <= deleted_at, "{name}: expired {:?} after the deletion", at.since(deleted_at));
            } else {
                ended += 1;
                let late = at.since(deleted_at);
                assert!(late < PAUSED_TTL / 3, "{name}: lost {late:?} after the deletion");
            }
        }
        // The next holder has a larger token, whether the hold before it ended rightly or wrongly.
        let next = hold(&rival, &name).await;
        assert!(next.token() > token);
        next.release().await.unwrap();
    }
    ended
}
