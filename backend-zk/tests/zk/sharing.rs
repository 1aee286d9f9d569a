//! Locks that several hold: how they lie in the tree, and what may befall them.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Lock, LockGuard, LockManager, LockOptions, LostReason, Mode as Kind, Revoke};
use parking_lot::Mutex;
use testbed::zookeeper::Op;
use testbed::{Direction, Mode};

use crate::rig::{BOUND, Beside, Rig, TTL, eventually, noting, now, proxy, within};

pub(crate) const W: Kind = Kind::EXCLUSIVE;
pub(crate) const R: Kind = Kind::SHARED;

/// The lock of every test, held in some way, by a grant of its own each time.
fn lock(locks: &LockManager, mode: Kind) -> Lock {
    let mut options = LockOptions::default();
    options.mode = mode;
    locks.lock("a").unwrap().options(options).handoff_limit(0)
}

pub(crate) async fn take(locks: &LockManager, mode: Kind) -> LockGuard {
    within(BOUND, "there is room", lock(locks, mode).acquire()).await.unwrap()
}

pub(crate) async fn tries(locks: &LockManager, mode: Kind) -> Option<LockGuard> {
    within(BOUND, "an answer", lock(locks, mode).try_acquire()).await.unwrap()
}

pub(crate) fn aside(locks: &LockManager, mode: Kind) -> Beside<LockGuard> {
    let lock = lock(locks, mode);
    Beside::start(async move { lock.acquire().await.unwrap() })
}

/// Names are the format that other versions and libraries read; of those who share none says that it passes.
pub(crate) async fn nodes_say_how_their_bearers_hold(rig: Arc<Rig>) {
    let space = rig.space().await;
    let (locks, outside, directory) = (space.manager().await, space.outside().await, space.directory("a"));
    let is_uuid = |text: &str| {
        let lengths: Vec<_> = text.split('-').map(str::len).collect();
        lengths == [8, 4, 4, 4, 12]
    };
    let guards = [take(&locks, R).await, take(&locks, R).await];
    for (at, child) in outside.has(&directory, 2).await.iter().enumerate() {
        let (uuid, number) = child.strip_prefix("_c_").unwrap().split_once("-shared-lock-").unwrap();
        assert!(is_uuid(uuid) && number == format!("{at:010}"), "{child}");
        let (note, _) = outside.client.get_data(&format!("{directory}/{child}")).await.unwrap();
        assert!(!String::from_utf8_lossy(&note).contains("passes"), "{note:?}");
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
    let guard = take(&locks, W).await;
    let child = outside.has(&directory, 1).await.remove(0);
    let (uuid, number) = child.strip_prefix("_c_").unwrap().split_once("-lock-").unwrap();
    assert!(is_uuid(uuid) && number == "0000000002", "{child}");
    guard.release().await.unwrap();
}

/// In whatever order they let go, the last one lets in who waits, and nobody else does.
pub(crate) async fn readers_let_go_in_every_order(rig: Arc<Rig>) {
    let space = rig.space().await;
    let [one, other, writer, last] =
        [space.manager().await, space.manager().await, space.manager().await, space.manager().await];
    let (outside, directory) = (space.outside().await, space.directory("a"));
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut guards = Vec::new();
        for locks in [&one, &other, &one] {
            guards.push(Some(take(locks, R).await));
        }
        let writing = aside(&writer, W);
        outside.has(&directory, 4).await;
        let reading = aside(&last, R);
        outside.has(&directory, 5).await;
        for at in order {
            assert!(!writing.is_finished() && !reading.is_finished(), "{order:?}");
            guards[at].take().unwrap().release().await.unwrap();
        }
        let guard = writing.end("it writes").await;
        assert!(!reading.is_finished(), "{order:?}");
        guard.release().await.unwrap();
        reading.end("it shares").await.release().await.unwrap();
    }
}

/// One who shares falls silent: it is lost before who writes holds, in its turn, and those beside it go on.
pub(crate) async fn a_reader_that_is_cut_off_is_lost_before_a_writer_holds(rig: Arc<Rig>) {
    let space = rig.space().await;
    let way = proxy(rig.server().await);
    let (silent, living) = (space.by(way.addr()).manager().await, space.manager().await);
    let writer = space.manager().await;
    let late = take(&silent, R).await;
    let beside = take(&living, R).await;
    let (outside, directory) = (space.outside().await, space.directory("a"));
    let writing = aside(&writer, W);
    outside.has(&directory, 3).await;
    way.set_both(Mode::Blackhole).await;
    let began = now();
    assert_eq!(within(BOUND, "it is lost", late.lost()).await, LostReason::Expired);
    assert!(now().since(began) < TTL, "it held for longer than its session");
    assert!(outside.children(&directory).await.len() == 3, "its node went before it was told");
    outside.has(&directory, 2).await;
    beside.ensure_held().unwrap();
    assert!(!writing.is_finished(), "it writes beside who shares");
    beside.release().await.unwrap();
    let written = writing.end("it writes").await;
    assert!(written.token() > late.token());
}

/// One who waits to write falls silent: those behind it who share hold beside the one ahead when its session is over, and
/// not before.
pub(crate) async fn a_silent_writer_keeps_readers_out_for_its_session(rig: Arc<Rig>) {
    let space = rig.space().await;
    let way = proxy(rig.server().await);
    let (silent, one, other) =
        (space.by(way.addr()).manager().await, space.manager().await, space.manager().await);
    let (outside, directory) = (space.outside().await, space.directory("a"));
    let reader = take(&one, R).await;
    let _writing = aside(&silent, W);
    outside.has(&directory, 2).await;
    let behind = [aside(&one, R), aside(&other, R)];
    let nodes = outside.has(&directory, 4).await;
    way.set_both(Mode::Blackhole).await;
    for reading in behind {
        let guard = reading.end("it shares").await;
        assert!(!outside.children(&directory).await.contains(&nodes[1]), "it passes who waits");
        reader.ensure_held().unwrap();
        guard.release().await.unwrap();
    }
}

/// An administrator deletes the node of one who shares: that guard is lost, and no other. Of one who waits behind it the
/// place is lost, too, and taken anew.
pub(crate) async fn a_share_that_is_deleted_is_lost_alone(rig: Arc<Rig>) {
    let space = rig.space().await;
    let (one, other, writer) = (space.manager().await, space.manager().await, space.manager().await);
    let (outside, directory) = (space.outside().await, space.directory("a"));
    let guards = [take(&one, R).await, take(&one, R).await];
    let beside = take(&other, R).await;
    let writing = aside(&writer, W);
    let nodes = outside.has(&directory, 4).await;
    let delete = async |node: &String| {
        outside.client.delete(&format!("{directory}/{node}"), None).await.unwrap();
    };
    delete(&nodes[1]).await;
    assert_eq!(within(BOUND, "it is lost", guards[1].lost()).await, LostReason::Gone);
    guards[0].ensure_held().unwrap();
    beside.ensure_held().unwrap();
    assert_eq!(outside.has(&directory, 3).await, [&*nodes[0], &*nodes[2], &*nodes[3]]);
    // By now its node has stood for a while.
    eventually("its place is watched", async || {
        rig.server().await.ask("wchp").await.unwrap().contains(&nodes[3])
    })
    .await;
    delete(&nodes[3]).await;
    eventually("it queues again", async || {
        let children = outside.children(&directory).await;
        children.len() == 3 && !children.contains(&nodes[3])
    })
    .await;
    assert!(!writing.is_finished());
    let [first, _] = guards;
    first.release().await.unwrap();
    beside.release().await.unwrap();
    writing.end("it writes").await.release().await.unwrap();
}

/// Whoever shares and whoever waits to is cut off for a moment: the one goes on, and the other looks and has its turn,
/// also if that came meanwhile.
pub(crate) async fn a_cut_costs_nobody_who_shares_their_turn(rig: Arc<Rig>) {
    let space = rig.space().await;
    let way = proxy(rig.server().await);
    let (writer, one) = (space.manager().await, space.by(way.addr()).manager().await);
    let (outside, directory) = (space.outside().await, space.directory("a"));
    let asked = Arc::new(Mutex::new(Vec::new()));
    way.set(Direction::ClientToServer, noting(&asked)).await;
    for is_released_meanwhile in [false, true] {
        let writing = take(&writer, W).await;
        let reading = [aside(&one, R), aside(&one, R)];
        // The second one of a session comes when the first one has its turn.
        outside.has(&directory, 2).await;
        way.refuse_new().await.unwrap();
        way.reset().await;
        if is_released_meanwhile {
            writing.release().await.unwrap();
            way.accept_new().await.unwrap();
        } else {
            way.accept_new().await.unwrap();
            assert!(reading.iter().all(|reading| !reading.is_finished()));
            writing.release().await.unwrap();
        }
        let [first, second] = reading;
        let (first, second) = (first.end("it shares").await, second.end("so does it").await);
        asked.lock().clear();
        way.reset().await;
        // A node of its own is made, looked at and deleted, and its inbox is read.
        let is_back = || asked.lock().iter().skip_while(|op| **op != Op::Delete).any(|op| *op == Op::Get);
        eventually("it is back", async || is_back()).await;
        first.renew().await.unwrap();
        second.ensure_held().unwrap();
        assert!(tries(&writer, W).await.is_none(), "it writes beside who shares");
        first.release().await.unwrap();
        second.ensure_held().unwrap();
        second.release().await.unwrap();
    }
}

/// All who share are shown, in the order in which they came; all are asked, and forced out.
pub(crate) async fn all_who_hold_are_shown_and_forced_out(rig: Arc<Rig>) {
    let space = rig.space().await;
    let [one, other, last] = [space.manager().await, space.manager().await, space.manager().await];
    let (outside, directory) = (space.outside().await, space.directory("a"));
    for force in [false, true] {
        let guards = [take(&one, R).await, take(&other, R).await, take(&one, R).await];
        let waiting = aside(&last, W);
        outside.has(&directory, 4).await;
        let state = one.inspect("a").await.unwrap();
        let shown: Vec<_> = state.holders.iter().map(|holder| (holder.mode, holder.token)).collect();
        assert_eq!(shown, Vec::from_iter(guards.iter().map(|guard| (R, Some(guard.token())))));
        assert_eq!(state.contenders, 1);
        let listed = one.list("").await.unwrap();
        assert_eq!((listed.len(), listed[0].holders.len(), listed[0].contenders), (1, 3, 1));
        let how = if force { Revoke::Force } else { Revoke::Ask { grace: Duration::ZERO } };
        last.revoke("a", how).await.unwrap();
        for guard in &guards {
            within(BOUND, "it is lost", guard.lost()).await;
        }
        drop(guards);
        waiting.end("it writes").await.release().await.unwrap();
    }
}
