//! A step of the move at every poll of what a process is doing with a lock: it goes on doing that, or stops right
//! there. Either way the step comes to its end, nobody holds beside it, tokens grow, and nothing is left behind.

#![allow(clippy::unwrap_used, reason = "test binary")]

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold_conformance::Network;
use leasehold_core::backend::StoreConfig;
use leasehold_core::backend::stage::Phase;
use leasehold_core::clock::TokioClock;
use leasehold_core::memory::{MemoryConfig, MemoryStore};
use leasehold_core::{Env, FencingToken, LockGuard, LockManager, Timing};
use leasehold_migration::{Admin, Migration, Steps};
use tokio::time::timeout;

/// Every step, both ways.
const STEPS: [(Phase, Phase); 8] = [
    (Phase::Old, Phase::Shadow),
    (Phase::Shadow, Phase::Both),
    (Phase::Both, Phase::Drain),
    (Phase::Drain, Phase::New),
    (Phase::New, Phase::Drain),
    (Phase::Drain, Phase::Both),
    (Phase::Both, Phase::Shadow),
    (Phase::Shadow, Phase::Old),
];

const TTL: Duration = Timing::DEFAULT_TTL;

/// One message's way, where it takes time.
const CROSSING: Duration = Duration::from_millis(5);

/// Enough for everything that takes no lease's end.
const SOON: Duration = Duration::from_secs(4);

/// How a step meets what is going on.
#[derive(Clone, Copy, Debug)]
struct Scene {
    from: Phase,
    to: Phase,
    /// Whether messages take time.
    far: bool,
    /// After how many polls,
    polls: usize,
    /// and whether it goes on then.
    goes_on: bool,
}

/// Two stores, and who uses them.
struct Place {
    scene: Scene,
    old: MemoryConfig,
    new: MemoryConfig,
    admin: Admin,
}

impl Place {
    async fn open(scene: Scene) -> Self {
        let store = || MemoryConfig::on(MemoryStore::with_clock(Arc::new(TokioClock::new())));
        let (old, new) = (store(), store());
        let env = Env::new(Timing::for_ttl(TTL)).unwrap().with_clock(Arc::new(TokioClock::new()));
        let migration = Migration::new(old.clone(), new.clone());
        // Whoever comes first writes the records.
        let first = manager(migration.clone()).await;
        let admin = migration.admin(env).await.unwrap();
        let place = Self { scene, old, new, admin };
        walk(&place.admin, scene.from).await;
        first.shutdown().await.unwrap();
        place
    }

    async fn manager(&self) -> LockManager {
        let way = |store: &MemoryConfig| -> Box<dyn StoreConfig> {
            let near = Box::new(store.clone());
            if self.scene.far { Network::new(CROSSING).wrap()(near) } else { near }
        };
        manager(Migration::new(way(&self.old), way(&self.new)).poll(Duration::from_millis(100))).await
    }

    /// The step is done, everybody has what they should, and nothing is left.
    async fn ends(self, managers: Vec<LockManager>, last: Option<FencingToken>) {
        let next = self.manager().await;
        let guard = hold(&next).await;
        assert!(Some(guard.token()) > last, "{:?}: token {} after {last:?}", self.scene, guard.token());
        guard.release().await.unwrap();
        soon("nothing is left", async {
            while !(self.old.store().is_empty() && self.new.store().is_empty()) {
                tokio::time::sleep(CROSSING).await;
            }
        })
        .await;
        for manager in managers.into_iter().chain([next]) {
            manager.shutdown().await.unwrap();
        }
        self.admin.close().await.unwrap();
    }
}

async fn manager(migration: Migration) -> LockManager {
    LockManager::builder(migration).ttl(TTL).clock(Arc::new(TokioClock::new())).build().await.unwrap()
}

async fn hold(locks: &LockManager) -> LockGuard {
    soon("the lock", locks.lock("a").unwrap().acquire()).await.unwrap()
}

async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    timeout(SOON, work).await.unwrap_or_else(|_| panic!("{what}: not within {SOON:?}"))
}

async fn walk(admin: &Admin, to: Phase) {
    let steps = Steps::default().quiet_for(Duration::ZERO).to(to).wait(SOON);
    let status = admin.status().await.unwrap();
    if status.phase == Some(to) {
        return;
    }
    let told = &mut |_: &_| {};
    let walked = if status.phase < Some(to) {
        admin.advance(&steps, told).await
    } else {
        admin.rollback(&steps, told).await
    };
    let status = walked.unwrap_or_else(|error| panic!("to {to}: {error:#}"));
    assert_eq!(status.phase, Some(to));
}

/// Plays a scene for every step and every number of polls. `play` says whether what it did came to its end before the
/// step.
fn at_every_poll<F: Future<Output = bool>>(play: impl Fn(Scene) -> F) {
    let (mut scenes, mut runtimes) = (0, 0);
    for ((from, to), far, goes_on) in STEPS
        .into_iter()
        .flat_map(|step| [(step, false, true), (step, false, false), (step, true, true), (step, true, false)])
    {
        let mut scene = Scene { from, to, far, polls: 0, goes_on };
        loop {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
            let finished = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                runtime.unwrap().block_on(play(scene))
            }));
            let finished = finished.unwrap_or_else(|_| panic!("{scene:?}"));
            scenes += 1;
            if finished {
                break;
            }
            scene.polls += 1;
            assert!(scene.polls < 300, "{scene:?}: does not end");
        }
        runtimes += 1;
    }
    println!("{scenes} scenes of {runtimes}");
}

/// Polls `work` as often as the scene says, each time when it is woken; what it came to if that was enough.
async fn poll_some<T>(scene: Scene, mut work: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    let mut left = scene.polls;
    std::future::poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Polls `work` as often as the scene says, then takes the step while it goes on, or drops it before: whether it came to its end
/// before the step, and what it came to if it went on.
async fn meets<T>(place: &Place, work: impl Future<Output = T>) -> (bool, Option<T>) {
    let mut work = pin!(work);
    let done = poll_some(place.scene, work.as_mut()).await;
    let finished = done.is_some();
    if !place.scene.goes_on {
        return (finished, None);
    }
    let rest = async {
        match done {
            Some(done) => done,
            None => work.await,
        }
    };
    let step = walk(&place.admin, place.scene.to);
    let (answer, ()) = soon("both", async { tokio::join!(rest, step) }).await;
    (finished, Some(answer))
}

/// Nobody else has it.
#[test]
fn a_step_meets_an_acquisition() {
    at_every_poll(async |scene| {
        let place = Place::open(scene).await;
        let locks = place.manager().await;
        let (finished, acquired) = Box::pin(meets(&place, locks.lock("a").unwrap().acquire())).await;
        let mut token = None;
        if let Some(guard) = acquired {
            let guard = guard.unwrap();
            token = Some(guard.token());
            guard.ensure_held().unwrap();
            guard.release().await.unwrap();
        }
        walk(&place.admin, scene.to).await;
        place.ends(vec![locks], token).await;
        finished
    });
}

/// Another process holds it, and lets go after the step.
#[test]
fn a_step_meets_a_waiter() {
    at_every_poll(async |scene| {
        let place = Place::open(scene).await;
        let (locks, rival) = (place.manager().await, place.manager().await);
        let held = hold(&rival).await;
        let mut token = Some(held.token());
        // It never finishes by itself: it is polled until nothing wakes it any more.
        let lock = locks.lock("a").unwrap();
        let mut work = Box::pin(lock.acquire());
        let polled = timeout(SOON, poll_some(scene, work.as_mut())).await;
        assert!(!matches!(polled, Ok(Some(_))), "two hold");
        walk(&place.admin, scene.to).await;
        held.ensure_held().unwrap();
        if scene.goes_on {
            let waits = timeout(SOON, work.as_mut()).await;
            assert!(waits.is_err(), "two hold");
            held.release().await.unwrap();
            let guard = soon("the waiter holds", work).await.unwrap();
            assert!(Some(guard.token()) > token);
            token = Some(guard.token());
            guard.release().await.unwrap();
        } else {
            drop(work);
            drop(held);
        }
        place.ends(vec![locks, rival], token).await;
        polled.is_err()
    });
}

/// A try never waits: not for a holder, nor for a step.
#[test]
fn a_step_meets_a_try() {
    at_every_poll(async |scene| {
        let place = Place::open(scene).await;
        let locks = place.manager().await;
        let (finished, tried) = Box::pin(meets(&place, locks.lock("a").unwrap().try_acquire())).await;
        let mut token = None;
        if let Some(guard) = tried.and_then(|tried| tried.unwrap()) {
            token = Some(guard.token());
            guard.release().await.unwrap();
        }
        walk(&place.admin, scene.to).await;
        place.ends(vec![locks], token).await;
        finished
    });
}

/// The lock is let go meanwhile; or whoever does that stops waiting for it.
#[test]
fn a_step_meets_a_release() {
    at_every_poll(async |scene| {
        let place = Place::open(scene).await;
        let locks = place.manager().await;
        let guard = hold(&locks).await;
        let token = Some(guard.token());
        let (finished, released) = meets(&place, guard.release()).await;
        if let Some(released) = released {
            released.unwrap();
        }
        walk(&place.admin, scene.to).await;
        place.ends(vec![locks], token).await;
        finished
    });
}
