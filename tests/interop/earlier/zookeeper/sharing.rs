//! ZooKeeper: the earlier version beside locks that several hold, of which it knows nothing, with the rights that its
//! documents name.

use leasehold::{LockGuard, LockManager, LostReason, Mode, Revocation, Revoke};
use libtest_mimic::Trial;
use testbed::{BOUND, Beside, eventually, trial, within};

use super::Nodes;
use crate::ours::{LONG, is_busy, manager, take};
use crate::played::{NAME, Process, Store};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("zk::sharers_and_it_wait_for_each_other", sharers_and_it_wait_for_each_other),
        trial("zk::its_dead_keep_nobody_from_sharing", its_dead_keep_nobody_from_sharing),
        trial("zk::it_asks_the_first_of_those_who_share", it_asks_the_first_of_those_who_share),
    ]
}

/// By a grant of its own.
async fn share(locks: &LockManager) -> LockGuard {
    locks.lock(NAME).unwrap().shared().handoff_limit(0).wait(BOUND).acquire().await.unwrap()
}

/// A reader in the queue, with `ahead` others before it who wait.
async fn waits(locks: &LockManager, ahead: usize) -> Beside<LockGuard> {
    let lock = locks.lock(NAME).unwrap().shared().handoff_limit(0);
    let waiting = Beside::start(async move { lock.acquire().await.unwrap() });
    let contenders = async || locks.inspect(NAME).await.unwrap().contenders;
    eventually("it is in the queue", async || contenders().await == ahead + 1).await;
    waiting
}

/// It takes every node in the lock's directory for one to wait for, and is waited for by all: who shares does so before
/// it and after it. No right is needed for that which exclusive locks do not need.
async fn sharers_and_it_wait_for_each_other() {
    let store = Nodes::start().await;
    let [one, other, last] = [manager(&store).await, manager(&store).await, manager(&store).await];
    let mut theirs = [store.process(LONG).await, store.process(LONG).await];
    for _ in 0..3 {
        let (first, second) = (share(&one).await, share(&other).await);
        assert_eq!(theirs[0].enters().await, None, "beside two who share");
        assert!(theirs[0].sees_a_holder().await);
        assert!(one.lock(NAME).unwrap().shared().handoff_limit(0).try_acquire().await.unwrap().is_none());
        let behind = [waits(&one, 1).await, waits(&last, 2).await];
        assert_eq!(theirs[1].enters().await, None);

        second.release().await.unwrap();
        assert!(!theirs[0].is_first().await);
        let newest = first.token().counter();
        first.release().await.unwrap();
        let held_as = theirs[0].is_next().await;
        assert!(newest < held_as);
        assert!(behind.iter().all(|reader| !reader.is_finished()), "a reader beside it");
        theirs[0].leaves().await;
        for reader in behind {
            let guard = reader.end("we share after it").await;
            assert!(held_as < guard.token().counter());
            assert!(!theirs[1].is_first().await);
            guard.release().await.unwrap();
        }
        theirs[1].is_next().await;
        assert!(is_busy(&one).await);
        theirs[1].leaves().await;
        take(&one).await.release().await.unwrap();
    }
}

/// Neither one that holds nor one that waits among readers.
async fn its_dead_keep_nobody_from_sharing() {
    let store = Nodes::start().await;
    let (one, other) = (manager(&store).await, manager(&store).await);
    let mut dead = store.process(Nodes::TTL).await;
    dead.enters().await.expect("it is free");
    drop(dead);
    let first = share(&one).await;
    let mut dead = store.process(Nodes::TTL).await;
    assert_eq!(dead.enters().await, None);
    drop(dead);
    let second = share(&other).await;
    first.ensure_held().unwrap();
    let modes: Vec<_> = one.inspect(NAME).await.unwrap().holders.iter().map(|holder| holder.mode).collect();
    assert_eq!(modes, [Mode::SHARED; 2]);
    first.release().await.unwrap();
    second.release().await.unwrap();
}

/// Which is all that it knows of: that one lets go, the others hold on. Ours asks it as ever.
async fn it_asks_the_first_of_those_who_share() {
    let store = Nodes::start().await;
    let (one, other) = (manager(&store).await, manager(&store).await);
    let mut theirs = store.process(LONG).await;
    let (first, second) = (share(&one).await, share(&other).await);
    assert_eq!(theirs.asks().await, Some(first.token().counter()));
    assert_eq!(within(BOUND, "it is lost", first.lost()).await, LostReason::Revoked);
    second.renew().await.unwrap();
    second.release().await.unwrap();

    theirs.enters().await.expect("it is free");
    let reading = waits(&one, 0).await;
    let admin = other.clone();
    let revoked = Beside::start(async move { admin.revoke(NAME, Revoke::AT_ONCE).await.unwrap() });
    theirs.is_asked().await;
    theirs.leaves().await;
    assert_eq!(revoked.end("it has answered").await, Revocation::Released);
    reading.end("it reads").await.release().await.unwrap();
}
