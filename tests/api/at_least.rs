//! A name that stays held after its guard is done, for as long as `hold_at_least` says.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use leasehold::clock::{Clock, TokioClock};
use leasehold::memory::MemoryConfig;
use leasehold::{ErrorKind, Lock, LockManager, LostReason, Revocation, Revoke, all};
use leasehold_conformance::Network;
use testbed::{Beside, pass, within};
use tokio::runtime::Runtime;

const TTL: Duration = Duration::from_secs(15);
const AT_LEAST: Duration = Duration::from_secs(60);
const MOMENT: Duration = Duration::from_millis(1);

/// A process that holds the name, another one that wants it, and the time.
struct Scene {
    store: MemoryConfig,
    clock: TokioClock,
    host: LockManager,
    /// For as long as any part of `host` lives.
    parts: Weak<TokioClock>,
    other: Lock,
}

impl Scene {
    async fn new() -> Self {
        let (store, clock) = (MemoryConfig::private(), TokioClock::new());
        let parts = Arc::new(clock);
        let open = async |clock: &Arc<TokioClock>| {
            let builder = LockManager::builder(store.clone()).ttl(TTL).clock(Arc::<TokioClock>::clone(clock));
            builder.build().await.expect("memory opens")
        };
        let (host, other) = (open(&parts).await, open(&Arc::new(clock)).await.lock("job").expect("a name"));
        Self { store, clock, host, parts: Arc::downgrade(&parts), other }
    }

    fn job(&self) -> Lock {
        self.host.lock("job").expect("a name").hold_at_least(AT_LEAST)
    }

    /// How long the other process waits for the name.
    async fn free_after(&self) -> Duration {
        let since = self.clock.now();
        self.other.acquire().await.expect("memory grants").release().await.expect("memory releases");
        self.clock.now().since(since)
    }
}

/// Released or dropped, the guard is done at once, and the name held for several leases more; then for nobody.
#[tokio::test(start_paused = true)]
async fn early_release_is_put_off() {
    for dropped in [false, true] {
        let scene = Scene::new().await;
        let guard = scene.job().acquire().await.unwrap();
        let (lost, began) = (guard.lost(), scene.clock.now());
        pass(MOMENT).await;
        if dropped {
            drop(guard);
        } else {
            guard.release().now_or_never().expect("it answers at once").unwrap();
        }
        assert_eq!(lost.now_or_never(), Some(LostReason::Released));
        assert!(!scene.host.holds("job"));
        assert!(scene.job().try_acquire().await.unwrap().is_none());
        let local = Beside::start({
            let job = scene.host.lock("job").unwrap();
            async move { job.acquire().await.unwrap().release().await }
        });
        assert_eq!(scene.free_after().await, AT_LEAST - MOMENT);
        local.await.unwrap();
        assert!(scene.clock.now().since(began) < AT_LEAST + MOMENT && scene.store.store().is_empty());
        // A guard that is held for longer is released as ever.
        let guard = scene.job().acquire().await.unwrap();
        pass(AT_LEAST).await;
        guard.release().await.unwrap();
        assert_eq!(scene.free_after().await, Duration::ZERO);
    }
}

/// A shutdown loses the guard, refuses new callers, and waits for the name.
#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_the_shortest_hold() {
    for released in [false, true] {
        let scene = Scene::new().await;
        let guard = scene.job().acquire().await.unwrap();
        let (lost, job, began) = (guard.lost(), scene.job(), scene.clock.now());
        let guard = if released { guard.release().await.map(|()| None).unwrap() } else { Some(guard) };
        let host = scene.host.clone();
        let down = Beside::start(async move { host.shutdown().await });
        pass(3 * TTL).await;
        assert_eq!(*job.acquire().await.unwrap_err().kind(), ErrorKind::Closed);
        if let Some(guard) = guard {
            assert_eq!(guard.ensure_held().unwrap_err().lost_reason(), Some(LostReason::Shutdown));
            assert_eq!(lost.await, LostReason::Shutdown);
        }
        assert!(!down.is_finished() && scene.other.try_acquire().await.unwrap().is_none());
        down.await.unwrap();
        assert_eq!(scene.clock.now().since(began), AT_LEAST);
        assert_eq!(scene.free_after().await, Duration::ZERO);
    }
}

/// Without waiting, the name is left to its lease, also when a shutdown waits already, polled or not.
#[tokio::test(start_paused = true)]
async fn hasty_shutdown_leaves_the_name_to_its_lease() {
    for (waits, is_polled) in [(false, false), (true, false), (true, true)] {
        let Scene { store, clock, host, parts, other } = Scene::new().await;
        host.lock("job").unwrap().hold_at_least(AT_LEAST).acquire().await.unwrap().release().await.unwrap();
        host.lock("else").unwrap().acquire().await.unwrap().release().await.unwrap();
        let waiting = host.clone();
        let mut down = Box::pin(async move { if waits { waiting.shutdown().await } else { Ok(()) } });
        assert_eq!((&mut down).now_or_never().is_none(), waits);
        let (polled, unpolled) =
            if is_polled { (Some(Beside::start(down)), None) } else { (None, Some(down)) };
        pass(MOMENT).await;
        let began = clock.now();
        within(MOMENT, "the shutdown", host.shutdown_now()).await.unwrap();
        if let Some(polled) = polled {
            polled.await.unwrap();
        }
        assert_eq!(clock.now(), began);
        let scene = Scene { store, clock, host, parts, other };
        let free_after = scene.free_after().await;
        assert!(TTL / 2 < free_after && free_after <= TTL, "{free_after:?}");
        let Scene { host, parts, .. } = scene;
        drop((host, unpolled));
        pass(2 * TTL).await;
        assert_eq!(parts.strong_count(), 0);
    }

    let (Scene { store, clock, .. }, network) = (Scene::new().await, Network::new(Duration::ZERO));
    let far = LockManager::builder(network.wrap()(Box::new(store))).ttl(TTL);
    let far = far.clock(Arc::new(clock)).build().await.unwrap();
    far.lock("job").unwrap().hold_at_least(AT_LEAST).acquire().await.unwrap().release().await.unwrap();
    // A release is repeated for as long as the lease lasts.
    let _else = far.lock("else").unwrap().ttl(2 * TTL).acquire().await.unwrap();
    network.cut();
    let unconfirmed = far.shutdown_now().await.unwrap_err();
    assert_eq!(*unconfirmed.kind(), ErrorKind::Unavailable);
}

/// Nothing is left behind once the runtime has ended (core-1), after a shutdown that was given up or did not wait, either.
#[test]
fn shortest_hold_ends_with_its_runtime() {
    for hasty in [false, true] {
        let runtime = Runtime::new().unwrap();
        let Scene { store, host, parts, other, .. } = runtime.block_on(async {
            let scene = Scene::new().await;
            scene.job().acquire().await.unwrap().release().await.unwrap();
            if hasty {
                scene.host.shutdown_now().await.unwrap();
            } else {
                assert!(scene.host.shutdown().now_or_never().is_none());
            }
            scene
        });
        assert!(!store.store().is_empty());
        drop(runtime);
        assert!(store.store().is_empty());
        drop((host, other));
        assert_eq!(parts.strong_count(), 0);
    }
}

/// The name outlives the manager's handles; a revocation and a lost lease end it.
#[tokio::test(start_paused = true)]
async fn shortest_hold_ends_early_by_the_store_only() {
    let Scene { clock, host, other, .. } = Scene::new().await;
    drop(host.lock("job").unwrap().hold_at_least(AT_LEAST).acquire().await.unwrap());
    let began = clock.now();
    drop(host);
    other.acquire().await.unwrap().release().await.unwrap();
    assert_eq!(clock.now().since(began), AT_LEAST);

    let scene = Scene::new().await;
    for how in [Revoke::Ask { grace: TTL }, Revoke::AT_ONCE] {
        scene.job().acquire().await.unwrap().release().await.unwrap();
        let began = scene.clock.now();
        assert_eq!(scene.host.revoke("job", how).await.unwrap(), Revocation::Released);
        assert!(scene.clock.now().since(began) < TTL);
        assert_eq!(scene.free_after().await, Duration::ZERO);
    }

    let network = Network::new(Duration::ZERO);
    let far = LockManager::builder(network.wrap()(Box::new(scene.store.clone()))).ttl(TTL);
    let far = far.clock(Arc::new(scene.clock)).build().await.unwrap();
    far.lock("job").unwrap().hold_at_least(AT_LEAST).acquire().await.unwrap().release().await.unwrap();
    network.cut();
    assert!(scene.free_after().await <= TTL);
    network.heal();
    // Nothing is left to wait for.
    let began = scene.clock.now();
    far.shutdown().await.unwrap();
    assert!(scene.clock.now().since(began) < TTL);
}

/// A release that meets a revocation puts nothing off, whichever comes first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revocation_that_meets_a_release_frees_the_name() {
    let store = MemoryConfig::private();
    let open = async || LockManager::builder(store.clone()).ttl(TTL).build().await.unwrap();
    let (host, admin) = (open().await, open().await);
    let job = host.lock("job").unwrap().hold_at_least(24 * AT_LEAST);
    for _ in 0..16 {
        let guard = job.acquire().await.unwrap();
        let revoked = Beside::start({
            let admin = admin.clone();
            async move { admin.revoke("job", Revoke::Ask { grace: AT_LEAST }).await }
        });
        let released = Beside::start(async move { guard.release().await });
        released.await.unwrap();
        // Free long before the grace has passed.
        let free = admin.lock("job").unwrap().wait(TTL).acquire().await.unwrap();
        free.release().await.unwrap();
        let answer = revoked.await.unwrap();
        assert!(matches!(answer, Revocation::Released | Revocation::NotHeld), "{answer:?}");
    }
}

/// The span is that of each guard: it passes on with no hand-off.
#[tokio::test(start_paused = true)]
async fn hand_off_begins_a_shortest_hold_of_its_own() {
    let scene = Scene::new().await;
    let first = scene.host.lock("job").unwrap().acquire().await.unwrap();
    let counter = first.token().counter();
    let waiting = [scene.job(), scene.host.lock("job").unwrap()];
    let [next, last] = waiting.map(|lock| Beside::start(async move { lock.acquire().await }));
    pass(MOMENT).await;
    first.release().await.unwrap();
    let next = next.await.unwrap();
    assert_eq!(next.token().counter(), counter, "passed on within the process");
    let began = scene.clock.now();
    next.release().await.unwrap();
    let last = last.await.unwrap();
    assert_eq!(scene.clock.now().since(began), AT_LEAST);
    last.release().await.unwrap();
    assert_eq!(scene.free_after().await, Duration::ZERO);
}

/// Of several locks that are not all free, none stays held; spans that contradict each other are refused.
#[tokio::test(start_paused = true)]
async fn failed_attempt_keeps_no_name() {
    let scene = Scene::new().await;
    let held = scene.host.lock("z").unwrap().acquire().await.unwrap();
    let both = all([scene.job(), scene.host.lock("z").unwrap()]);
    assert!(both.try_acquire().await.unwrap().is_none());
    both.clone().wait(MOMENT).acquire().await.unwrap_err();
    assert_eq!(scene.free_after().await, Duration::ZERO);
    held.release().await.unwrap();
    both.acquire().await.unwrap().release().await.unwrap();
    assert_eq!(scene.free_after().await, AT_LEAST);
    let refused = scene.job().max_hold(AT_LEAST - MOMENT).acquire().await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::InvalidOption);
    assert!(
        refused.to_string().contains("`hold_at_least` 60s is longer than `max_hold` 59.999s"),
        "{refused}"
    );
}
