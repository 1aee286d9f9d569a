//! Locks with several holders: a failure of one holder does not affect the others, and no writer holds at the same time.
//!
//! At depth `soak` one release grants a thousand shares, on Postgres a quarter of that.

use std::sync::Arc;

use futures_util::future::join_all;
use leasehold::{Lock, LockGuard, LockManager, LostReason};
use testbed::{BOUND, Beside, Depth, Mode, Server, eventually, within};

use crate::fixture::{EARLY, LONG, NAME, Scene, VERY_LONG, hold, is_left_alone, queued, quiet, steady, warm};
use crate::store::Store;

/// Each time at the store.
pub(crate) fn reader(locks: &LockManager) -> Lock {
    locks.lock(NAME).unwrap().shared().handoff_limit(0)
}

async fn share(locks: &LockManager) -> LockGuard {
    reader(locks).wait(BOUND).acquire().await.unwrap()
}

fn share_aside(locks: &LockManager) -> Beside<LockGuard> {
    let lock = reader(locks);
    Beside::start(async move { lock.acquire().await.unwrap() })
}

/// How many hold, and how many wait.
async fn shown(observer: &LockManager) -> Option<(usize, usize)> {
    let state = observer.inspect(NAME).await.ok()?;
    Some((state.holders.len(), state.contenders))
}

async fn until_shown(observer: &LockManager, hold: usize, wait: usize) {
    let expected = Some((hold, wait));
    eventually(format!("{hold} hold, {wait} wait"), async || shown(observer).await == expected).await;
}

/// G1, G2 and G4: one of two who share is cut off. Its guard ends before its share does, so before a writer holds; the
/// other goes on, and keeps the writer out for as long as it likes.
pub(crate) async fn a_share_that_is_cut_off_ends_alone<S: Server>(scene: Scene<S>) {
    for stays in [false, true] {
        let proxy = scene.proxy().await;
        let (victim, living) = (scene.behind(&proxy, S::TTL).await, scene.direct(LONG).await);
        let writer = scene.direct(LONG).await;
        let guard = Arc::new(share(&victim).await);
        let beside = share(&living).await;
        let (lock, watched) = (writer.lock(NAME).unwrap(), Arc::clone(&guard));
        let writing = Beside::start(async move {
            let next = lock.acquire().await.unwrap();
            (next, watched.ensure_held().is_ok())
        });
        until_shown(&writer, 2, 1).await;

        proxy.set_both(Mode::Blackhole).await;
        if stays {
            until_shown(&writer, 1, 1).await;
            guard.ensure_held().expect_err("its share is over");
            beside.ensure_held().unwrap();
            assert!(!writing.is_finished(), "a writer beside a reader");
        }
        beside.release().await.unwrap();
        let (next, still_held) = writing.end("the writer holds").await;
        assert!(!still_held, "a reader beside the writer");
        assert_eq!(within(EARLY, "it is told", guard.lost()).await, LostReason::Expired);
        assert!(next.token() > guard.token());

        proxy.set_both(Mode::Pass).await;
        next.release().await.unwrap();
        let again = share(&victim).await;
        guard.ensure_held().unwrap_err();
        again.release().await.unwrap();
        drop(guard);
        eventually("nothing is left", async || is_left_alone(&writer).await).await;
    }
}

/// G7: all who have come between two writers, and nobody before the first lets go, whether it has waited itself or not; the
/// second waits for every one of them, in whatever order they leave. The release is one request.
pub(crate) async fn one_release_lets_many_readers_in<S: Store>(scene: Scene<S>) {
    const AT_ONCE: usize = 10;
    let readers = Depth::of_run().pick(100, 100, S::SHARERS);
    let server = S::start_patient().await;
    let open = async || scene.on(&server, VERY_LONG).await;
    let (first, second) = (warm(open().await).await, open().await);
    for has_waited in [false, true] {
        let mut guard = hold(&first).await;
        if has_waited {
            let waiting = queued(&second, 0, &first).await;
            guard.release().await.unwrap();
            guard = waiting.end("it holds").await;
        }
        let mut reading = Vec::new();
        while reading.len() < readers {
            let opening = (0..AT_ONCE.min(readers - reading.len())).map(async |_| open().await);
            let opened = join_all(opening).await;
            reading.extend(opened.into_iter().map(|locks| (share_aside(&locks), locks)));
            until_shown(&first, 1, reading.len()).await;
        }
        // The manager that does not hold: the readers are before its writer.
        let last = if has_waited { &first } else { &second };
        let writing = queued(last, readers, &first).await;
        let before = quiet(&server).await;
        assert!(reading.iter().all(|(reading, _)| !reading.is_finished()), "a reader beside the writer");
        let token = guard.token();
        guard.release().await.unwrap();
        let mut guards = Vec::new();
        for (reading, locks) in reading {
            guards.push((reading.end("a reader holds").await, locks));
        }
        let made = server.requests().await - before;
        assert!(made <= 1 + S::ADMISSION * readers as u64, "{made} requests let {readers} readers in");
        assert!(guards.iter().all(|(guard, _)| guard.token() > token && guard.ensure_held().is_ok()));
        assert_eq!(shown(&first).await, Some((readers, 1)));
        // Neither in the order in which they came nor against it.
        let late = guards.split_off(readers / 2);
        let newest = guards.iter().chain(&late).map(|(guard, _)| guard.token()).max();
        let turns = late.into_iter().zip(guards).flat_map(|(late, early)| [late, early]);
        for (guard, _locks) in turns {
            assert!(!writing.is_finished(), "a writer beside readers");
            guard.release().await.unwrap();
        }
        let written = writing.end("the writer holds").await;
        assert!(Some(written.token()) > newest);
        written.release().await.unwrap();
    }
}

pub(crate) async fn deleted_share_is_lost_alone<S: Store>(scene: Scene<S>) {
    let open = async || scene.direct(steady::<S>()).await;
    let (one, other, writer) = (open().await, open().await, open().await);
    let mut guards = vec![share(&one).await, share(&one).await, share(&other).await];
    let writing = queued(&writer, 0, &other).await;
    scene.server().await.remove_share(scene.namespace()).await;
    until_shown(&other, 2, 1).await;
    let lost = async || guards.iter().filter(|guard| guard.ensure_held().is_err()).count();
    eventually("it is lost", async || lost().await == 1).await;
    let at = guards.iter().position(|guard| guard.ensure_held().is_err()).unwrap();
    assert_eq!(guards.remove(at).lost().await, LostReason::Gone);
    for guard in guards {
        assert!(!writing.is_finished(), "a writer beside a reader");
        guard.renew().await.unwrap();
        guard.release().await.unwrap();
    }
    writing.end("the writer holds").await.release().await.unwrap();
}
