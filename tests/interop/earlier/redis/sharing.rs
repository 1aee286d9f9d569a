//! Redis: the earlier version beside locks that several hold, of which it knows nothing.

use leasehold::{Lock, LockGuard, LockManager};
use libtest_mimic::Trial;
use testbed::{Beside, eventually, trial};

use super::{KEYS, Scripts};
use crate::ours::{manager, queued};
use crate::played::{NAME, Process, Store};
use testbed::BOUND;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("redis::it_waits_for_whoever_shares", it_waits_for_whoever_shares),
        trial("redis::who_would_share_waits_for_it", who_would_share_waits_for_it),
        trial(
            "redis::who_would_share_holds_alone_if_it_hands_on",
            who_would_share_holds_alone_if_it_hands_on,
        ),
        trial("redis::it_leaves_nothing_of_who_would_share", it_leaves_nothing_of_who_would_share),
        trial("redis::its_waiting_keeps_readers_behind_it", its_waiting_keeps_readers_behind_it),
    ]
}

fn reader(locks: &LockManager) -> Lock {
    locks.lock(NAME).unwrap().wait(BOUND).shared()
}

/// A reader in the queue, with `ahead` others before it.
async fn waits(locks: &LockManager, ahead: usize) -> Beside<LockGuard> {
    let lock = reader(locks);
    let waiting = Beside::start(async move { lock.acquire().await.unwrap() });
    let contenders = async || locks.inspect(NAME).await.unwrap().contenders;
    eventually("it is in the queue", async || contenders().await > ahead).await;
    waiting
}

/// For the last of them; it has a larger token than all, and its messages.
async fn it_waits_for_whoever_shares() {
    let store = Scripts::start().await;
    let (a, b) = (manager(&store).await, manager(&store).await);
    let mut old = store.process(Scripts::TTL * 10).await;
    let (first, second) = (reader(&a).acquire().await.unwrap(), reader(&b).acquire().await.unwrap());
    assert_eq!(old.enters().await, None);
    assert!(old.sees_a_holder().await);
    first.release().await.unwrap();
    assert_eq!(old.refresh().await.0, 0);
    second.ensure_held().unwrap();
    let last = second.token().counter();
    second.release().await.unwrap();
    assert!(old.is_next().await > last);
    assert!(reader(&a).try_acquire().await.unwrap().is_none());
    old.leaves().await;
    reader(&a).acquire().await.unwrap().release().await.unwrap();
}

/// Whichever way it came to hold, and ours hold together after it.
async fn who_would_share_waits_for_it() {
    let store = Scripts::start().await;
    let (a, b) = (manager(&store).await, manager(&store).await);
    let mut old = store.process(Scripts::TTL * 10).await;
    let held_as = old.enters().await.expect("it is free");
    assert!(reader(&a).try_acquire().await.unwrap().is_none());
    let first = waits(&a, 0).await;
    let second = waits(&b, 1).await;
    old.leaves().await;
    // It hands the lock to the first, which it knows no better than to have alone.
    let first = first.end("the first has it").await;
    assert!(first.token().counter() > held_as);
    first.renew().await.unwrap();
    first.release().await.unwrap();
    second.end("the next one has it").await.release().await.unwrap();
}

/// What it has handed on is held, renewed and released as an exclusive lock is, and shared after that.
async fn who_would_share_holds_alone_if_it_hands_on() {
    let store = Scripts::start().await;
    let (a, b) = (manager(&store).await, manager(&store).await);
    let mut old = store.process(Scripts::TTL * 10).await;
    old.enters().await.expect("it is free");
    let alone = waits(&a, 0).await;
    old.leaves().await;
    let alone = alone.end("it has it").await;
    assert!(reader(&b).try_acquire().await.unwrap().is_none(), "safe, and no more");
    alone.renew().await.unwrap();
    alone.release().await.unwrap();
    let (one, other) = (reader(&a).acquire().await.unwrap(), reader(&b).acquire().await.unwrap());
    one.release().await.unwrap();
    other.release().await.unwrap();
    for key in [KEYS[0], KEYS[1], "billing:{a}:h"] {
        assert_eq!(store.0.command(&["EXISTS", key]).await.unwrap().integer(), Some(0), "{key}");
    }
}

/// What it drops of those who wait, it drops whole, also while others wait on.
async fn it_leaves_nothing_of_who_would_share() {
    let store = Scripts::start().await;
    let (a, b) = (manager(&store).await, manager(&store).await);
    let mut old = store.process(Scripts::TTL * 10).await;
    old.enters().await.expect("it is free");
    let (first, second) = (waits(&a, 0).await, waits(&b, 1).await);
    old.leaves().await;
    let first = first.end("the first has it").await;
    let texts = async |words: &[&str]| -> Vec<_> {
        let answer = store.0.command(words).await.unwrap().elements();
        answer.iter().map(|text| text.text().unwrap()).collect()
    };
    let waiting = texts(&["ZRANGE", KEYS[1], "0", "-1"]).await;
    let left = texts(&["HKEYS", KEYS[2]]).await;
    assert!(left.iter().all(|field| field.ends_with(&waiting[0])), "{left:?} beside {waiting:?}");
    first.release().await.unwrap();
    second.end("the next one has it").await.release().await.unwrap();
}

/// And when it leaves the queue, of which its scripts tell nobody who shares, the next refresh lets them in.
async fn its_waiting_keeps_readers_behind_it() {
    let store = Scripts::start().await;
    let (a, b) = (manager(&store).await, manager(&store).await);
    let mut old = store.process(Scripts::TTL * 10).await;
    let share = reader(&a).acquire().await.unwrap();
    assert_eq!(old.enters().await, None);
    assert!(reader(&b).try_acquire().await.unwrap().is_none());
    let behind = waits(&b, 1).await;
    assert!(!old.release().await, "it has waited");
    // A renewal of whoever shares is as good.
    share.renew().await.unwrap();
    behind.end("it shares the lock").await.release().await.unwrap();
    share.release().await.unwrap();
    queued_alone(&a, &b).await;
}

/// An exclusive hold and one behind it, as ever.
async fn queued_alone(a: &LockManager, b: &LockManager) {
    let guard = a.lock(NAME).unwrap().acquire().await.unwrap();
    let waiting = queued(b, 0, a).await;
    guard.release().await.unwrap();
    waiting.end("it holds").await.release().await.unwrap();
}
