//! What callers leave behind: releases under way, and holds that stood against an acknowledgement; and the next acquisition.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_conformance::layer::{Below, Layer, shared};
use leasehold_conformance::network::{Fault, Operation};
use leasehold_core::backend::stage::{Phase, Side};
use leasehold_core::backend::{
    AcquireRequest, Attempt, Grant, Holder, LeaseId, LockBackend, StoreConfig, StoreEvent,
};
use leasehold_core::clock::Clock as _;
use leasehold_core::{Env, Error, ErrorKind, LostReason, OwnerId, Result};
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use super::late::{Fixture, POLL, TTL, name, request};
use super::{clock, env, stands, store, write, write_as};
use crate::protocol::Pair;
use crate::protocol::record::Stand;
use crate::protocol::records::in_store;
use crate::protocol::tokens::{WIDTH, Window};
use crate::session::{SIDES, Session};

/// A release whose caller leaves goes on at once, whatever became of its request. A second call returns its result, and a
/// request that arrives late takes nothing from the next holder (B2).
#[tokio::test(start_paused = true)]
async fn a_release_that_is_left_goes_on() {
    for (phase, side) in [(Phase::Old, Side::Old), (Phase::New, Side::New)] {
        for fault in [Fault::LoseRequest, Fault::LoseReply, Fault::DelayRequest(2 * POLL)] {
            let fixture = Fixture::in_phase(phase).await;
            let grant = fixture.take().await.unwrap();
            fixture.lines[side].next(Operation::Release, fault);
            assert!(timeout(POLL, fixture.session.release(&grant)).await.is_err(), "it is not answered");
            let again = timeout(POLL / 2, fixture.session.release(&grant)).await;
            again.expect("it went on").unwrap_or_else(|error| panic!("{phase} {fault:?}: {error:#}"));
            assert!(fixture.stores[side].store().is_empty());
            let next = timeout(POLL / 2, fixture.take()).await.expect("it is free").unwrap();
            sleep(2 * POLL).await;
            assert!(!fixture.stores[side].store().is_empty(), "{phase} {fault:?}: it was the next one's");
            fixture.session.release(&next).await.unwrap();
            assert!(fixture.stores[side].store().is_empty());
        }
    }
}

/// While a release that was left is not confirmed, the next acquisition sends the store nothing (session-1).
#[tokio::test(start_paused = true)]
async fn nobody_asks_beside_a_release_that_was_left() {
    for (phase, side) in [(Phase::Old, Side::Old), (Phase::New, Side::New)] {
        let fixture = Fixture::in_phase(phase).await;
        let grant = fixture.take().await.unwrap();
        fixture.lines[side].always(Operation::Release, Fault::LoseRequest);
        assert!(timeout(POLL, fixture.session.release(&grant)).await.is_err(), "it is not answered");
        let mut waiting = Box::pin(fixture.take());
        assert!(timeout(POLL, &mut waiting).await.is_err(), "two hold in {phase}");
        let state = fixture.foreign(side).await.inspect(&name()).await.unwrap();
        assert_eq!((state.holder().is_some(), state.contenders), (true, 0), "{phase}");
        fixture.lines[side].heal();
        let next = timeout(TTL, waiting).await.expect("it is released").unwrap();
        assert!(grant.counter < next.counter);
        fixture.session.release(&next).await.unwrap();
    }
}

/// The owners that ask the stores, and how many places are lost there first.
#[derive(Debug)]
struct Asks {
    owners: Arc<Mutex<Vec<OwnerId>>>,
    loses: AtomicUsize,
}

#[async_trait]
impl Layer for Asks {
    async fn acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Grant> {
        self.owners.lock().push(request.owner);
        if self.loses.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            return Err(Error::lost(LostReason::Gone));
        }
        below.backend.acquire(request).await
    }
}

/// Every request to a store has an owner id of its own, and the first one that of the acquisition (attempt-3). Where place after
/// place is lost, the pauses between the requests grow.
#[tokio::test(start_paused = true)]
async fn no_two_requests_have_one_owner() {
    for (phase, lost, requests) in
        [(Phase::Old, 0, 1), (Phase::Both, 0, 4), (Phase::Drain, 6, 10), (Phase::New, 0, 3)]
    {
        let stores = Pair { old: store(), new: store() };
        let owners = Arc::new(Mutex::new(Vec::new()));
        let stand = stands(phase);
        write(&stores, Side::Old, stand.0);
        write(&stores, Side::New, stand.1);
        let way = |side: Side, loses| -> Arc<dyn StoreConfig> {
            let asks = Asks { owners: Arc::clone(&owners), loses: AtomicUsize::new(loses) };
            Arc::from(shared(Arc::new(asks))(Box::new(stores[side].clone())))
        };
        let ways = Pair { old: way(Side::Old, lost), new: way(Side::New, 2) };
        let session = Session::open_both(&ways, POLL, env()).await.unwrap();
        let (request, began) = (request(), clock().now());
        let asked = timeout(TTL, session.acquire(&request, true)).await.expect("it is free").unwrap();
        assert!(lost == 0 || clock().now().since(began) > env().timing().op_timeout / 2, "{phase}");
        let Attempt::Granted(grant) = asked else { panic!("it is free") };
        assert_eq!(grant.owner, request.owner);
        session.release(&grant).await.unwrap();
        assert!(SIDES.iter().all(|side| stores[*side].store().is_empty()));
        let mut owners = owners.lock().clone();
        assert_eq!((owners.len(), owners[0]), (requests, request.owner), "{phase}");
        owners.sort();
        owners.dedup();
        assert_eq!(owners.len(), requests, "{phase}: one asked twice");
    }
}

/// What a hold stood against is acknowledged, and said, as soon as that is released (view-3): not at the next look.
#[tokio::test(start_paused = true)]
async fn a_release_acknowledges_what_its_hold_stood_against() {
    let fixture = Fixture::in_phase(Phase::Shadow).await;
    let foreign = fixture.foreign(Side::New).await;
    foreign.acquire(&request()).await.unwrap();
    let grant = fixture.take().await.unwrap();
    let acknowledged = || fixture.session.with(|book, _| book.knowledge().acknowledged(Side::Old));
    let before = acknowledged();
    fixture.goes_to(Phase::Both).await;
    sleep(2 * POLL).await;
    assert_eq!(acknowledged(), before, "it rests on the old store alone");
    fixture.session.release(&grant).await.unwrap();
    sleep(Duration::from_millis(1)).await;
    let book = fixture.session.book.lock();
    let known = book.knowledge().known(Side::Old).map(|seen| seen.version);
    assert!(before < known && book.knowledge().acknowledged(Side::Old) == known, "{before:?} {known:?}");
    assert_eq!(book.entries.old.value.acknowledges.old, known, "it was said");
}

/// What was shown until now is not shown any more: the book has no view then that rests on it (view-1).
#[tokio::test(start_paused = true)]
async fn a_view_ends_with_the_entry_that_it_rests_on() {
    let fixture = Fixture::in_phase(Phase::Shadow).await;
    fixture.session.with(|book, now| {
        assert!(book.view().is_some());
        book.pass_to(now + 2 * TTL);
        assert_eq!(book.view(), None);
    });
}

/// A hold that is over, and was not released, leaves nothing that blocks the next acquisition.
#[tokio::test(start_paused = true)]
async fn a_hold_that_is_over_is_let_go_by_who_asks_next() {
    let fixture = Fixture::in_phase(Phase::Both).await;
    let over = fixture.take().await.unwrap();
    let lease =
        fixture.session.with(|book, _| book.claim(&name()).unwrap().parts.new.as_ref().unwrap().lease.id);
    fixture.lines.new.emit(&StoreEvent::LeaseLost { lease, reason: LostReason::Gone });
    sleep(POLL / 10).await;
    let next = timeout(TTL / 2, fixture.take()).await.expect("what was left is released").unwrap();
    assert!(over.counter < next.counter);
    fixture.session.release(&next).await.unwrap();
    assert!(SIDES.iter().all(|side| fixture.stores[*side].store().is_empty()));
}

/// What is held in the one store while the other is waited for is announced, so that the core renews it.
#[tokio::test(start_paused = true)]
async fn a_part_that_waits_for_the_other_is_announced() {
    let fixture = Fixture::in_phase(Phase::Both).await;
    let foreign = fixture.foreign(Side::New).await;
    foreign.acquire(&request()).await.unwrap();
    let mut waiting = Box::pin(fixture.take());
    assert!(timeout(POLL, &mut waiting).await.is_err());
    let announced = fixture.session.with(|book, _| {
        let part = book.claim(&name()).unwrap().parts.old.as_ref().unwrap().lease.id;
        (1..100)
            .filter_map(|id| book.leases.passed(LeaseId::new(id)))
            .any(|passed| passed == (Side::Old, part))
    });
    assert!(announced);
}

/// What is granted in the new store, and not needed by the time of the take, is given back with that: not when the process
/// signs again, or the hold is renewed.
#[tokio::test(start_paused = true)]
async fn unneeded_entry_is_released_with_the_take() {
    let fixture = Fixture::in_phase(Phase::Both).await;
    fixture.lines.old.next(Operation::ReadRecord, Fault::DelayRequest(POLL / 10));
    let mut waiting = Box::pin(fixture.take());
    assert!(timeout(POLL / 20, &mut waiting).await.is_err(), "the record is not read yet");
    assert!(SIDES.iter().all(|side| !fixture.stores[*side].store().is_empty()), "both have granted");
    for side in SIDES {
        fixture.lines[side].always(Operation::Sign, Fault::LoseRequest);
    }
    write(&fixture.stores, Side::Old, stands(Phase::Shadow).0);
    let grant = timeout(POLL / 10, waiting).await.expect("the old store's lock is enough").unwrap();
    sleep(POLL / 10).await;
    assert!(fixture.stores.new.store().is_empty(), "nothing needs it");
    assert!(!fixture.stores.old.store().is_empty());
    fixture.session.release(&grant).await.unwrap();
    assert!(fixture.stores.old.store().is_empty());
}

/// A waiter follows a rollback of two steps that it sees as one: it needs the old store's lock alone.
#[tokio::test(start_paused = true)]
async fn waiter_follows_two_steps_back() {
    let fixture = Fixture::in_phase(Phase::Drain).await;
    let foreign = fixture.foreign(Side::New).await;
    foreign.acquire(&request()).await.unwrap();
    let mut waiting = Box::pin(fixture.take());
    assert!(timeout(POLL / 10, &mut waiting).await.is_err());
    let window = Window { offset: 2 * WIDTH, low: 2 * WIDTH, high: 3 * WIDTH };
    write(&fixture.stores, Side::New, stands(Phase::Both).1);
    write(&fixture.stores, Side::Old, Stand { phase: Phase::Shadow, epoch: 2, window });
    let grant = timeout(2 * POLL, waiting).await.expect("the old store's lock is enough").unwrap();
    assert!(window.low < grant.counter);
    sleep(POLL / 10).await;
    assert_eq!(foreign.inspect(&name()).await.unwrap().contenders, 0, "it left that queue");
    fixture.session.release(&grant).await.unwrap();
    assert!(fixture.stores.old.store().is_empty());
}

/// After a pause of the process beyond its leases, an acquisition in `drain` goes on without a store that cannot be reached,
/// although the process does not know by then that the move drains.
#[tokio::test(start_paused = true)]
async fn in_drain_a_pause_ends_no_wait_for_a_store_that_is_silent() {
    let fixture = Fixture::in_phase(Phase::Drain).await;
    fixture.lines.old.always(Operation::Acquire, Fault::LoseRequest);
    let mut waiting = Box::pin(fixture.take());
    assert!(timeout(POLL / 10, &mut waiting).await.is_err(), "it is not answered");
    fixture.lines.new.always(Operation::Sign, Fault::DelayRequest(POLL / 10));
    tokio::time::advance(2 * TTL).await;
    let grant = timeout(TTL, waiting).await.expect("the other store is enough").unwrap();
    fixture.session.release(&grant).await.unwrap();
    assert!(SIDES.iter().all(|side| fixture.stores[*side].store().is_empty()));
}

/// An acquisition that is dropped while it waits for the other store leaves nothing in the one that has granted;
/// and no lease is kept of a hold that is released (attempt-1).
#[tokio::test(start_paused = true)]
async fn leaving_caller_keeps_no_part_and_no_lease() {
    let fixture = Fixture::in_phase(Phase::Both).await;
    let grant = fixture.take().await.unwrap();
    fixture.session.release(&grant).await.unwrap();
    assert!(fixture.session.with(|book, _| book.leases.composites.is_empty()));
    fixture.foreign(Side::New).await.acquire(&request()).await.unwrap();
    assert!(timeout(POLL / 10, fixture.take()).await.is_err(), "somebody else has it");
    sleep(POLL / 10).await;
    assert!(fixture.stores.old.store().is_empty());
}

/// A release waits for the stores that the hold needs, and for no other one; nor for an old store that cannot be reached, once that
/// is drained.
#[tokio::test(start_paused = true)]
async fn release_waits_for_needed_parts() {
    use Phase::{Both, Drain};
    for (phase, side, is_released) in [
        (Both, Side::Old, false),
        (Both, Side::New, false),
        (Drain, Side::Old, true),
        (Drain, Side::New, false),
    ] {
        let fixture = Fixture::in_phase(phase).await;
        let grant = fixture.take().await.unwrap();
        fixture.lines[side].cut();
        let released = fixture.session.release(&grant).await;
        assert_eq!(released.is_ok(), is_released, "{phase} without {side:?}: {released:?}");
    }
    let fixture = Fixture::in_phase(Phase::Shadow).await;
    fixture.foreign(Side::New).await.acquire(&request()).await.unwrap();
    let grant = fixture.take().await.unwrap();
    for (side, stand) in [(Side::Old, stands(Drain).0), (Side::New, stands(Drain).1)] {
        write(&fixture.stores, side, stand);
    }
    sleep(2 * POLL).await;
    fixture.lines.old.cut();
    fixture.session.with(|book, now| {
        assert!(book.drains() && book.slots[&name()].rests_on(Side::Old));
        book.shunned_until = Some(now + TTL);
    });
    fixture.session.release(&grant).await.unwrap();
}

/// What was granted before the entry lapsed is given back, and asked for anew: an administrator has not counted it (view-1).
#[tokio::test(start_paused = true)]
async fn part_from_before_a_lapse_is_given_back() {
    let fixture = Fixture::in_phase(Phase::Both).await;
    fixture.foreign(Side::New).await.acquire(&request()).await.unwrap();
    let mut waiting = Box::pin(fixture.take());
    let inspector = fixture.foreign(Side::Old).await;
    let part = async || inspector.inspect(&name()).await.unwrap().holder().and_then(|holder| holder.token);
    assert!(timeout(POLL, &mut waiting).await.is_err());
    let before = part().await;
    fixture.session.with(|book, _| book.lapse(Side::Old));
    assert!(timeout(POLL, &mut waiting).await.is_err());
    assert!(before.is_some() && before < part().await);
}

/// A read that was sent before the entry was signed says nothing (view-1), one that is answered late nothing new, and a version
/// from before that what is known was lost (view-2).
#[tokio::test(start_paused = true)]
async fn late_and_older_reads_are_not_known() {
    let late = Fault::DelayReply(POLL / 10);
    for lapses in [true, false] {
        let fixture = Fixture::in_phase(Phase::Shadow).await;
        let known = || {
            fixture
                .session
                .with(|book, _| book.knowledge().known(Side::Old).map(|seen| in_store(seen.version)))
        };
        fixture.lines.old.next(Operation::ReadRecord, late);
        let mut reading = Box::pin(fixture.session.read(Side::Old));
        assert!(timeout(POLL / 20, &mut reading).await.is_err());
        if lapses {
            fixture.lines.old.always(Operation::ReadRecord, Fault::LoseRequest);
            fixture.session.with(|book, _| book.lapse(Side::Old));
        } else {
            write(&fixture.stores, Side::Old, stands(Phase::Both).0);
            fixture.session.read(Side::Old).await.unwrap();
        }
        reading.await.unwrap();
        assert!(fixture.session.with(|book, _| book.knowledge().is_signed(Side::Old)));
        assert_eq!(known(), (!lapses).then_some(2));
        fixture.lines.old.heal();
        fixture.session.read(Side::Old).await.unwrap();
        fixture.stores.old.store().forget(&*clock());
        write(&fixture.stores, Side::Old, stands(Phase::Shadow).0);
        if !lapses {
            fixture.session.read(Side::Old).await.expect_err("it has lost its data");
            assert_eq!(known(), None);
        }
    }
}

/// A store that refuses every acquisition.
#[derive(Debug)]
struct Refuses(Error);

/// A store that refuses to be opened.
#[derive(Debug)]
struct Shut {
    store: Box<dyn StoreConfig>,
    error: Error,
}

#[async_trait]
impl StoreConfig for Shut {
    fn min_ttl(&self) -> Duration {
        self.store.min_ttl()
    }

    fn namespace(&self) -> Option<String> {
        self.store.namespace()
    }

    async fn open(&self, _: Env) -> Result<Arc<dyn LockBackend>> {
        Err(self.error.clone())
    }
}

#[async_trait]
impl Layer for Refuses {
    async fn acquire(&self, _: &Below, _: &AcquireRequest) -> Result<Grant> {
        Err(self.0.clone())
    }

    async fn try_acquire(&self, _: &Below, _: &AcquireRequest) -> Result<Attempt> {
        Err(self.0.clone())
    }
}

/// In `drain` only a store that cannot be reached is done without: in one that refuses, a foreign client may hold.
#[tokio::test(start_paused = true)]
async fn drain_goes_on_without_an_unreachable_store_only() {
    use ErrorKind::{Denied, Protocol, Unavailable};
    for (kind, goes_on) in [(Unavailable, true), (Denied, false), (Protocol, false)] {
        for waits in [true, false] {
            let stores = Pair { old: store(), new: store() };
            write(&stores, Side::Old, stands(Phase::Drain).0);
            write(&stores, Side::New, stands(Phase::Drain).1);
            let refuses = Refuses(Error::not_applied(kind.clone(), "refused"));
            let old: Arc<dyn StoreConfig> =
                Arc::from(shared(Arc::new(refuses))(Box::new(stores.old.clone())));
            let ways = Pair { old, new: Arc::new(stores.new.clone()) as Arc<dyn StoreConfig> };
            let session = Session::open_both(&ways, POLL, env()).await.unwrap();
            let answer = session.acquire(&request(), waits).await;
            assert_eq!(answer.is_ok(), goes_on, "{kind:?}: {answer:?}");
            let error = Error::not_applied(kind.clone(), "refused");
            let old: Arc<dyn StoreConfig> = Arc::new(Shut { store: Box::new(stores.old.clone()), error });
            let opened = Session::open_both(&Pair { old, ..ways }, POLL, env()).await;
            assert_eq!(opened.is_ok(), goes_on, "{kind:?}: opening");
        }
    }
}

/// A try that is refused ends when the meeting is written down that the store had reported before it answered.
#[tokio::test(start_paused = true)]
async fn refused_try_waits_for_the_note() {
    let fixture = Fixture::in_phase(Phase::Drain).await;
    fixture.foreign(Side::Old).await.acquire(&request()).await.unwrap();
    fixture.lines.new.next(Operation::WriteRecord, Fault::DelayRequest(POLL / 10));
    let holder = Holder::new("cron").of_foreign_client();
    fixture.session.with(|book, _| book.meet(Side::Old, &name(), &holder));
    fixture.session.acquire(&request(), false).await.unwrap();
    assert_eq!(fixture.session.noting.read(|noting| *noting), 0);
}

/// A first record that arrives after its store has lost its data is shown as that loss, with what to do.
#[tokio::test(start_paused = true)]
async fn late_first_record_is_reported_as_a_loss() {
    for (side, said) in [(Side::New, "still grants locks"), (Side::Old, "stop every process")] {
        let fixture = Fixture::in_phase(Phase::Shadow).await;
        write_as(8, &fixture.stores, side, stands(Phase::Old).0, 0);
        sleep(2 * POLL).await;
        let trouble = fixture.session.with(|book, _| book.trouble[side].clone()).unwrap().to_string();
        assert!(trouble.contains("lost its data") && trouble.contains(said), "{trouble}");
    }
}
