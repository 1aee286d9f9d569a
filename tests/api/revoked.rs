//! A holder with a revocation request, and one with a `max_hold`.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};
use leasehold::backend::{AcquireRequest, Grant, Holder, LockState, StoreConfig, StoreEvent};
use leasehold::clock::{Clock, Deadline, ManualClock, TokioClock};
use leasehold::memory::MemoryConfig;
use leasehold::{
    Change, ErrorKind, GuardState, LockManager, LockName, LostReason, Revocation, Revoke, Timing,
};
use leasehold_conformance::layer::{Below, For, Layer, shared};
use testbed::{Beside, pass};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

const TTL: Duration = Duration::from_secs(15);
const GRACE: Duration = Duration::from_secs(60);

async fn open(store: &MemoryConfig, clock: impl Clock) -> LockManager {
    let builder = LockManager::builder(store.clone()).ttl(TTL).clock(Arc::new(clock));
    builder.build().await.expect("memory opens")
}

fn revoke(admin: &LockManager, grace: Duration) -> Beside<leasehold::Result<Revocation>> {
    let admin = admin.clone();
    Beside::start(async move { admin.revoke("a", Revoke::Ask { grace }).await })
}

/// The changes of a guard contain its states and the revocation request, the end last; a later stream shows the
/// same, and so does one that is read after the end.
#[tokio::test(start_paused = true)]
async fn a_guard_tells_that_it_is_asked() {
    let (store, clock) = (MemoryConfig::private(), TokioClock::new());
    let (locks, admin) = (open(&store, clock).await, open(&store, clock).await);
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    let (mut changes, unread) = (guard.changes(), guard.changes());
    assert_eq!(changes.next().await, Some(Change::State(GuardState::Held)));
    assert_eq!(guard.revocation_deadline(), None);
    let unasked = guard.revocation_requested();
    let asking = revoke(&admin, GRACE);
    let until = unasked.await.expect("it is asked");
    assert_eq!(until, Deadline::At(clock.now() + GRACE));
    assert_eq!(guard.revocation_deadline(), Some(until));
    assert_eq!(changes.next().await, Some(Change::RevocationRequested(until)));
    assert_eq!((guard.state(), guard.ensure_held().is_ok()), (GuardState::Held, true));
    let late: Vec<_> = guard.changes().take(2).collect().await;
    assert_eq!(late, [Change::State(GuardState::Held), Change::RevocationRequested(until)]);
    guard.release().await.unwrap();
    let ended = Change::State(GuardState::Lost(LostReason::Released));
    assert_eq!((changes.next().await, changes.next().await), (Some(ended), None));
    assert_eq!(unread.collect::<Vec<_>>().await, [Change::RevocationRequested(until), ended]);
    assert_eq!(asking.await.unwrap(), Revocation::Released);
}

#[tokio::test(start_paused = true)]
async fn nobody_asks_a_guard_that_has_ended() {
    let locks = open(&MemoryConfig::private(), TokioClock::new()).await;
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    let asked = guard.revocation_requested();
    guard.release().await.unwrap();
    assert_eq!(asked.await, None);
}

/// The clock alone ends the grace period, as with the deadline of a lease; a request with an earlier end
/// moves it, a later one does not.
#[tokio::test]
async fn a_grace_is_over_by_the_clock() {
    let (store, clock) = (MemoryConfig::private(), ManualClock::new());
    let (locks, admin) = (open(&store, clock.clone()).await, open(&store, clock.clone()).await);
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    let graces = [3, 2, 3].map(Duration::from_secs);
    let asking: Vec<_> = graces.iter().map(|grace| revoke(&admin, *grace)).collect();
    guard.revocation_requested().await;
    while guard.revocation_deadline() != Some(Deadline::At(clock.now() + graces[1])) {
        tokio::task::yield_now().await;
    }
    clock.suspend(graces[1] - Duration::from_nanos(1));
    assert_eq!(guard.remaining(), Duration::from_nanos(1));
    assert!(guard.ensure_held().is_ok());
    clock.suspend(Duration::from_nanos(1));
    assert_eq!(guard.ensure_held().unwrap_err().lost_reason(), Some(LostReason::Revoked));
    drop(asking);
}

/// For a holder that receives nothing the administrator waits for its grace and its ttl, and reads seldom.
#[tokio::test(start_paused = true)]
async fn a_deaf_holder_is_waited_for_in_time() {
    let (store, clock) = (MemoryConfig::private(), TokioClock::new());
    let deaf = Between { is_deaf: true, ..Between::default() };
    let holder = LockManager::builder(deaf.clone().wrap(&store)).ttl(2 * TTL).clock(Arc::new(clock));
    let _guard = holder.build().await.unwrap().lock("a").unwrap().acquire().await.unwrap();
    let between = Between::default();
    let admin = LockManager::builder(between.clone().wrap(&store)).ttl(TTL).clock(Arc::new(clock));
    let admin = admin.build().await.unwrap();
    let asked_at = clock.now();
    assert_eq!(admin.revoke("a", Revoke::Ask { grace: GRACE }).await.unwrap(), Revocation::Unanswered);
    assert_eq!(clock.now().since(asked_at), GRACE + 2 * TTL);
    let looks = between.looks.load(Relaxed);
    assert!((18..45).contains(&looks), "{looks} looks in six ttls");
}

#[tokio::test(start_paused = true)]
async fn revocation_ends_with_the_last_sharer() {
    let (store, clock) = (MemoryConfig::private(), TokioClock::new());
    let deaf = Between { is_deaf: true, ..Between::default() };
    let holder =
        LockManager::builder(deaf.wrap(&store)).ttl(TTL).clock(Arc::new(clock)).build().await.unwrap();
    let (other, admin) = (open(&store, clock).await, open(&store, clock).await);
    const SECOND: Duration = Duration::from_secs(1);
    // In time is: with the grace and what a request takes, or before a lease that was renewed can have ended.
    for (grace, in_time) in [(GRACE, GRACE + Timing::DEFAULT_OP_TIMEOUT), (SECOND, TTL * 2 / 3)] {
        for (held_for, answer) in
            [(in_time - SECOND, Revocation::Released), (in_time + SECOND, Revocation::Late)]
        {
            let first = other.lock("a").unwrap().shared().acquire().await.unwrap();
            let last = holder.lock("a").unwrap().shared().acquire().await.unwrap();
            let asking = revoke(&admin, grace);
            first.revocation_requested().await;
            first.release().await.unwrap();
            pass(held_for).await;
            assert!(!asking.is_finished(), "one shares it still");
            last.release().await.unwrap();
            assert_eq!(asking.end("nobody holds it").await.unwrap(), answer, "{grace:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn foreign_holder_is_not_waited_for() {
    let (store, clock) = (MemoryConfig::private(), TokioClock::new());
    let between = Between { is_foreign: true, ..Between::default() };
    let locks = LockManager::builder(between.wrap(&store)).clock(Arc::new(clock)).build().await.unwrap();
    let others = open(&store, clock).await;
    let theirs = locks.lock("a").unwrap().shared().acquire().await.unwrap();
    let beside = others.lock("a").unwrap().shared().acquire().await.unwrap();
    let asked_at = clock.now();
    assert_eq!(locks.revoke("a", Revoke::Ask { grace: GRACE }).await.unwrap(), Revocation::Foreign);
    assert_eq!(clock.now(), asked_at);
    assert_eq!(locks.revoke("a", Revoke::Force).await.unwrap(), Revocation::Released);
    drop((theirs, beside));
}

/// Requests for a grant that is still on its way to its owner: the earliest end counts.
#[tokio::test(start_paused = true)]
async fn revocation_before_the_grant_arrived_counts() {
    let (store, clock) = (MemoryConfig::private(), TokioClock::new());
    let between = Between { asks_early: true, ..Between::default() };
    let locks = LockManager::builder(between.wrap(&store)).ttl(TTL).clock(Arc::new(clock));
    let guard = locks.build().await.unwrap().lock("a").unwrap().acquire().await.unwrap();
    // Counted from the receipt of the request, not from the arrival of the grant.
    let until = clock.now() + (GRACE - BETWEEN);
    assert_eq!(guard.revocation_deadline(), Some(Deadline::At(until)));
    assert_eq!(guard.lost().await, LostReason::Revoked);
    assert_eq!(clock.now(), until);
}

/// A guard that is bounded is lost in time, with its reason; the next one of the process has its own bound,
/// and a bound delays no release.
#[tokio::test(start_paused = true)]
async fn a_guard_is_held_for_so_long() {
    let clock = TokioClock::new();
    let locks = open(&MemoryConfig::private(), clock).await;
    let began = clock.now();
    let bounded = locks.lock("a").unwrap().max_hold(GRACE);
    let guard = bounded.acquire().await.unwrap();
    let next = locks.lock("a").unwrap();
    let mut waits = Box::pin(next.acquire());
    assert!(waits.as_mut().now_or_never().is_none());
    assert_eq!(guard.lost().await, LostReason::MaxHold);
    assert_eq!(clock.now(), began + GRACE);
    assert_eq!(guard.release().await.unwrap_err().lost_reason(), Some(LostReason::MaxHold));
    let unbounded = waits.await.unwrap();

    let mut waits = Box::pin(bounded.acquire());
    assert!(waits.as_mut().now_or_never().is_none());
    unbounded.release().await.unwrap();
    let guard = waits.await.unwrap();
    pass(GRACE / 2).await;
    let mut waits = Box::pin(next.acquire());
    assert!(waits.as_mut().now_or_never().is_none());
    let mut changes = guard.changes();
    assert_eq!(changes.next().await, Some(Change::State(GuardState::Held)));
    guard.release().await.unwrap();
    assert_eq!(changes.next().await, Some(Change::State(GuardState::Lost(LostReason::Released))));
    assert_eq!(changes.next().await, None);
    let handed_on = waits.await.unwrap();
    pass(GRACE * 2).await;
    handed_on.ensure_held().unwrap();
    handed_on.release().await.unwrap();

    let stopped = bounded.with(async |_held| std::future::pending::<()>().await).await;
    assert_eq!(stopped.unwrap_err().lost_reason(), Some(LostReason::MaxHold));
    let guard = bounded.try_acquire().await.unwrap().expect("it is free");
    let left = clock.now();
    locks.shutdown().await.unwrap();
    assert_eq!(guard.lost().await, LostReason::Shutdown);
    assert_eq!(clock.now(), left, "the shutdown waited for the bound");
    let error = locks.lock("a").unwrap().max_hold(Duration::ZERO).acquire().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::InvalidOption);
}

#[tokio::test(start_paused = true)]
async fn bound_of_a_reader_ends_no_other_reader() {
    let locks = open(&MemoryConfig::private(), TokioClock::new()).await;
    let reader = locks.lock("a").unwrap().shared();
    let first = reader.acquire().await.unwrap();
    let bounded = reader.clone().max_hold(GRACE).acquire().await.unwrap();
    let last = reader.acquire().await.unwrap();
    assert_eq!(bounded.lost().await, LostReason::MaxHold);
    pass(GRACE).await;
    first.ensure_held().unwrap();
    last.ensure_held().unwrap();
}

/// A hold whose time ends in a suspend is lost within a third of a ttl after it, though timers stood still.
#[tokio::test]
async fn hold_ends_soon_after_a_suspend() {
    let (span, step) = (TTL * 3 / 4, TTL / 100);
    for reason in [LostReason::MaxHold, LostReason::Revoked] {
        let (store, clock) = (MemoryConfig::private(), ManualClock::new());
        let (locks, admin) = (open(&store, clock.clone()).await, open(&store, clock.clone()).await);
        let lock = locks.lock("a").unwrap();
        let is_revoked = reason == LostReason::Revoked;
        let lock = if is_revoked { lock } else { lock.max_hold(span) };
        let guard = lock.acquire().await.unwrap();
        let mut lost = Box::pin(guard.lost());
        let revoked = is_revoked.then(|| revoke(&admin, span));
        run().await;
        clock.suspend(TTL / 2);
        let ends = span - TTL / 2;
        let mut passed = Duration::ZERO;
        while passed < ends + TTL / 3 {
            assert!(passed >= ends || guard.ensure_held().is_ok(), "it ends early, after {passed:?}");
            clock.advance(step);
            passed += step;
            run().await;
        }
        assert_eq!(lost.as_mut().now_or_never(), Some(reason));
        drop(revoked);
    }
    // Its own end and the lease's pass in one step: the earlier one is the reason.
    let clock = ManualClock::new();
    let locks = open(&MemoryConfig::private(), clock.clone()).await;
    let guard = locks.lock("a").unwrap().max_hold(span).acquire().await.unwrap();
    let lost = guard.lost();
    run().await;
    clock.advance(2 * TTL);
    run().await;
    assert_eq!(lost.now_or_never(), Some(LostReason::MaxHold));
}

/// Lets all tasks run.
async fn run() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn bounded_holds_start_no_task() {
    let clock = TokioClock::new();
    let locks = open(&MemoryConfig::private(), clock).await;
    let began = clock.now();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let mut guards = Vec::new();
    for n in 0..10_000 {
        let lock = locks.lock(format!("{n}")).unwrap().max_hold(GRACE);
        guards.push(lock.acquire().await.unwrap());
    }
    assert_eq!(tasks(), before);
    for guard in guards {
        assert_eq!(guard.lost().await, LostReason::MaxHold);
    }
    assert_eq!(clock.now(), began + GRACE);
}

/// How long an early grant takes to arrive.
const BETWEEN: Duration = Duration::from_secs(2);

/// What lies between a manager and the store.
#[derive(Clone, Debug, Default)]
struct Between {
    looks: Arc<AtomicUsize>,
    /// It receives no request.
    is_deaf: bool,
    /// The first of its holders is of another library.
    is_foreign: bool,
    /// The revocation of its grants is requested before they arrive.
    asks_early: bool,
    asks: Arc<Mutex<Option<mpsc::UnboundedSender<StoreEvent>>>>,
}

impl Between {
    fn wrap(self, store: &MemoryConfig) -> Box<dyn StoreConfig> {
        shared(Arc::new(self))(Box::new(store.clone()))
    }
}

#[async_trait]
impl Layer for Between {
    async fn acquire(&self, below: &Below, request: &AcquireRequest) -> leasehold::Result<Grant> {
        let grant = below.backend.acquire(request).await?;
        if self.asks_early {
            // By then there is a receiver.
            below.env.sleep(BETWEEN).await;
            let asks = self.asks.lock().expect("nobody panics").clone().expect("somebody listens");
            for within in [2 * GRACE, GRACE, 3 * GRACE] {
                let (name, counter) = (grant.name.clone(), grant.counter);
                asks.send(StoreEvent::RevocationRequested { name, counter, within }).expect("it listens");
            }
            below.env.sleep(BETWEEN).await;
        }
        Ok(grant)
    }

    async fn revoke(&self, below: &Below, name: &LockName, how: Revoke) -> leasehold::Result<Vec<Holder>> {
        let mut holders = below.backend.revoke(name, how).await?;
        holders.first_mut().into_iter().for_each(|first| first.foreign = self.is_foreign);
        Ok(holders)
    }

    async fn inspect(&self, below: &Below, name: &LockName, whom: For) -> leasehold::Result<LockState> {
        self.looks.fetch_add(1, Relaxed);
        whom.inspect(&*below.backend, name).await
    }

    fn events(&self, below: &Below) -> BoxStream<'static, StoreEvent> {
        let (sender, asks) = mpsc::unbounded_channel();
        *self.asks.lock().expect("nobody panics") = Some(sender);
        let is_deaf = self.is_deaf;
        let heard =
            move |event: &StoreEvent| !(is_deaf && matches!(event, StoreEvent::RevocationRequested { .. }));
        let told = below.backend.events().filter(move |event| std::future::ready(heard(event)));
        stream::select(told, UnboundedReceiverStream::new(asks)).boxed()
    }
}
