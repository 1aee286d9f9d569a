//! Events that come at an unexpected time: before a grant, after a loss, while something else is not over.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{FutureExt, StreamExt};
use leasehold_conformance::Network;
use leasehold_conformance::layer::{Below, Layer, shared};
use leasehold_conformance::network::{Fault, Operation};
use leasehold_core::backend::stage::{Phase, Side};
use leasehold_core::backend::{
    AcquireRequest, Attempt, Grant, Holder, Lease, LeaseId, LeaseScope, LockBackend, Renewal, StoreConfig,
    StoreEvent,
};
use leasehold_core::clock::{Deadline, TokioClock};
use leasehold_core::memory::MemoryConfig;
use leasehold_core::{Effect, Error, ErrorKind, LockManager, LockName, LostReason, Result, Timing};
use tokio::time::{sleep, timeout};

use super::{env, stands, store, write};
use crate::protocol::Pair;
use crate::protocol::tokens::WIDTH;
use crate::session::book::Book;
use crate::session::claim::{Claim, Stage};
use crate::session::{SIDES, Session};
use crate::{Migration, protocol};

pub(super) const TTL: Duration = Timing::DEFAULT_TTL;
pub(super) const POLL: Duration = Duration::from_secs(1);

/// A session of a move, beyond networks.
pub(super) struct Fixture {
    pub(super) stores: Pair<MemoryConfig>,
    pub(super) lines: Pair<Network>,
    pub(super) session: Arc<Session>,
}

impl Fixture {
    pub(super) async fn in_phase(phase: Phase) -> Self {
        let stores = Pair { old: store(), new: store() };
        let (old, new) = stands(phase);
        write(&stores, Side::Old, old);
        write(&stores, Side::New, new);
        let lines = Pair { old: Network::new(Duration::ZERO), new: Network::new(Duration::ZERO) };
        let way = |side: Side| -> Arc<dyn StoreConfig> {
            Arc::from(lines[side].wrap()(Box::new(stores[side].clone())))
        };
        let ways = Pair { old: way(Side::Old), new: way(Side::New) };
        let session = Session::open_both(&ways, POLL, env()).await.unwrap();
        Self { stores, lines, session }
    }

    /// A session that knows one store alone.
    pub(super) async fn foreign(&self, side: Side) -> Arc<dyn LockBackend> {
        self.stores[side].open(env().without_token_base()).await.unwrap()
    }

    pub(super) async fn take(&self) -> Result<Grant> {
        match self.session.acquire(&request(), true).await? {
            Attempt::Granted(grant) => Ok(grant),
            Attempt::Held { .. } => unreachable!("it waits"),
        }
    }

    /// The move is in another phase, as everybody knows by now.
    pub(super) async fn goes_to(&self, phase: Phase) {
        write(&self.stores, Side::Old, stands(phase).0);
        sleep(2 * POLL).await;
    }
}

pub(super) fn name() -> LockName {
    LockName::new("a").unwrap()
}

pub(super) fn request() -> AcquireRequest {
    AcquireRequest::new(name(), env().owner_id(), TTL)
}

/// The grant of an acquisition that waits for the lock of another session, and gets the event `early` before it.
async fn granted_after(fixture: &Fixture, early: impl FnOnce(LeaseId) -> StoreEvent) -> Grant {
    let foreign = fixture.foreign(Side::Old).await;
    let held = foreign.acquire(&request()).await.unwrap();
    let mut waiting = Box::pin(fixture.take());
    assert!(timeout(POLL, &mut waiting).await.is_err());
    let place = fixture.session.with(|book, _| {
        let ids = (1..100).filter_map(|id| book.leases.passed(LeaseId::new(id)));
        ids.filter(|(side, _)| *side == Side::Old).map(|(_, inner)| inner).next_back().unwrap()
    });
    fixture.lines.old.emit(&early(place));
    assert!(timeout(POLL, &mut waiting).await.is_err());
    foreign.release(&held).await.unwrap();
    timeout(TTL, waiting).await.expect("it is free").unwrap()
}

/// A grant is no hold if its end, or that of its lease, was reported before it arrived: it is given back, as by the core
/// (leases-2).
#[tokio::test(start_paused = true)]
async fn grant_that_is_over_before_it_arrives_is_no_hold() {
    let of_lease = |lease| StoreEvent::LeaseLost { lease, reason: LostReason::Gone };
    let of_grant = |_| StoreEvent::GrantLost { name: name(), counter: 2, reason: LostReason::Revoked };
    let cases: [(Phase, &dyn Fn(LeaseId) -> StoreEvent); 3] =
        [(Phase::Old, &of_lease), (Phase::Shadow, &of_lease), (Phase::Shadow, &of_grant)];
    for (phase, over) in cases {
        let fixture = Fixture::in_phase(phase).await;
        let grant = granted_after(&fixture, over).await;
        assert_eq!(grant.counter, 3, "2 was over");
        fixture.session.release(&grant).await.unwrap();
        assert!(fixture.stores.old.store().is_empty());
    }
}

/// A revocation request counts, although the grant has not arrived, or is not a hold yet; of two requests, the one that
/// wants it sooner.
#[tokio::test(start_paused = true)]
async fn a_grant_that_is_asked_for_before_it_arrives_is_asked_for() {
    for [first, second] in [[TTL, 2 * TTL], [2 * TTL, TTL]] {
        let fixture = Fixture::in_phase(Phase::Shadow).await;
        let mut events = fixture.session.inbox.stream();
        let asked = |within| StoreEvent::RevocationRequested { name: name(), counter: 2, within };
        let early = |_| {
            fixture.lines.old.emit(&asked(first));
            asked(second)
        };
        let grant = granted_after(&fixture, early).await;
        assert_eq!(grant.counter, 2);
        let mut heard = Vec::new();
        while let Some(Some(event)) = events.next().now_or_never() {
            heard.push(event);
        }
        let asked = |event: &&StoreEvent| matches!(event, StoreEvent::RevocationRequested { counter: 2, within, .. } if *within <= TTL - POLL);
        assert_eq!(heard.iter().filter(asked).count(), 1, "{heard:?}");
    }
}

/// A holder is shown with the number that its grant has for everybody, or with none.
#[tokio::test(start_paused = true)]
async fn a_holder_is_shown_with_the_number_of_the_move() {
    let fixture = Fixture::in_phase(Phase::Both).await;
    let shown = |side, raw| {
        let holder = Holder::new("somebody").with_counter(raw);
        fixture
            .session
            .with(|book, _| book.known_to_all(side, &name(), holder))
            .token
            .map(|token| token.counter())
    };
    assert_eq!(shown(Side::New, 5), Some(WIDTH + 5));
    assert_eq!(shown(Side::New, 2 * WIDTH), None, "no grant of this epoch has it");
    assert_eq!(shown(Side::Old, 5), None, "the new store's number counts");
}

/// A signature in a session that was lost while it was on its way is none (session-3).
#[tokio::test(start_paused = true)]
async fn a_signature_in_a_lost_session_is_none() {
    let fixture = Fixture::in_phase(Phase::Old).await;
    fixture.session.with(|book, now| {
        let lease = Lease::new(LeaseId::new(77), LeaseScope::Session, TTL, Deadline::At(now + TTL));
        book.told(Side::Old, StoreEvent::LeaseOpened(lease));
        book.told(Side::Old, StoreEvent::LeaseLost { lease: lease.id, reason: LostReason::SessionLost });
        book.lapse(Side::Old);
        book.signed(Side::Old, lease, now);
        assert!(!book.knowledge().is_signed(Side::Old));
        let next = Lease::new(LeaseId::new(78), LeaseScope::Session, TTL, Deadline::At(now + TTL));
        book.signed(Side::Old, next, now);
        assert!(book.knowledge().is_signed(Side::Old));
    });
}

/// An entry that hangs on a session is signed again when there is something new to say, and then no more often than others.
#[tokio::test(start_paused = true)]
async fn an_entry_of_a_session_says_what_is_new() {
    let fixture = Fixture::in_phase(Phase::Old).await;
    let every = TTL / 4;
    fixture.session.with(|book, now| {
        book.lapse(Side::Old);
        let lease = Lease::new(LeaseId::new(77), LeaseScope::Session, TTL, Deadline::At(now + TTL));
        book.signed(Side::Old, lease, now);
        (book.entries.old.said, book.entries.old.value) = (book.entries.old.news, book.member());
        assert!(!book.must_sign(Side::Old, now + 2 * every, every), "nothing is new");
        book.label = "somebody".into();
        assert!(!book.must_sign(Side::Old, now, every));
        assert!(book.must_sign(Side::Old, now + every, every));
    });
}

/// While a grant is released, nothing is asked for its name there, whatever else was asked and given up meanwhile (session-1).
#[tokio::test(start_paused = true)]
async fn an_earlier_release_is_not_forgotten_for_a_later_request() {
    let fixture = Fixture::in_phase(Phase::Both).await;
    let first = fixture.take().await.unwrap();
    fixture.lines.new.cut();
    drop(fixture.session.release(&first).now_or_never());
    fixture.goes_to(Phase::Shadow).await;
    let second = fixture.take().await.unwrap();
    fixture.goes_to(Phase::Both).await;
    // It asks for the other store's too by now, behind what is released there.
    drop(fixture.session.release(&second).now_or_never());
    sleep(Duration::from_millis(1)).await;
    let pending = fixture
        .session
        .with(|book, _| book.slots.get(&name()).is_some_and(|slot| slot.cleanups.new.is_some()));
    assert!(pending, "the first grant is not released yet");
    fixture.lines.new.heal();
    sleep(TTL).await;
    assert!(fixture.session.with(|book, _| book.slots.values().all(|slot| slot.is_empty())));
    sleep(2 * POLL).await;
    assert!(fixture.session.with(|book, _| book.slots.is_empty()), "nobody needs its slot any more");
    assert!(SIDES.iter().all(|side| fixture.stores[*side].store().is_empty()));
}

/// Refuses its next releases.
#[derive(Debug)]
struct Refuses(AtomicUsize);

#[async_trait]
impl Layer for Refuses {
    async fn release(&self, below: &Below, grant: &Grant) -> Result<()> {
        if self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            return Err(Error::not_applied(ErrorKind::Unavailable, "not now"));
        }
        below.backend.release(grant).await
    }
}

/// A release goes on behind an error, so its effect is unknown.
#[tokio::test(start_paused = true)]
async fn a_release_that_goes_on_may_have_been_carried_out() {
    let (old, new) = (store(), store());
    let refuses = shared(Arc::new(Refuses(AtomicUsize::new(1))));
    let ways =
        Pair { old: Arc::from(refuses(Box::new(old.clone()))), new: Arc::new(new) as Arc<dyn StoreConfig> };
    let session = Session::open_both(&ways, POLL, env()).await.unwrap();
    let Attempt::Granted(grant) = session.acquire(&request(), true).await.unwrap() else {
        panic!("it is free")
    };
    let error = session.release(&grant).await.unwrap_err();
    assert_eq!(error.effect(), Effect::Unknown, "{error}");
    sleep(POLL).await;
    assert!(old.store().is_empty());
    assert_eq!(session.release(&grant).await.unwrap_err().lost_reason(), Some(LostReason::Gone));
}

/// A release that is asked for again waits for what it waited for at first, and for nothing else.
#[tokio::test(start_paused = true)]
async fn a_release_asked_again_waits_for_what_the_hold_needed() {
    let fixture = Fixture::in_phase(Phase::Drain).await;
    let grant = fixture.take().await.unwrap();
    fixture.lines.old.cut();
    fixture.lines.new.cut();
    fixture.session.release(&grant).await.unwrap_err();
    fixture.lines.new.heal();
    sleep(POLL).await;
    assert!(fixture.stores.new.store().is_empty());
    let again = timeout(Duration::from_millis(1), fixture.session.release(&grant)).await;
    again.expect("at once").unwrap();
}

/// In `drain` a try is granted the lock, too, while the old store is silent.
#[tokio::test(start_paused = true)]
async fn a_try_goes_on_without_the_store_that_is_left() {
    let fixture = Fixture::in_phase(Phase::Drain).await;
    let (line, far) = (Network::new(Duration::ZERO), Network::new(Duration::from_millis(1)));
    let old = line.wrap()(Box::new(fixture.stores.old.clone()));
    let new = far.wrap()(Box::new(fixture.stores.new.clone()));
    let locks = LockManager::builder(Migration::new(old, new)).ttl(TTL);
    let locks = locks.clock(Arc::new(TokioClock::new())).build().await.unwrap();
    line.cut();
    sleep(TTL).await;
    for _ in 0..3 {
        let guard = locks.lock("b").unwrap().try_acquire().await.unwrap().expect("it is free");
        guard.release().await.unwrap();
    }
}

/// What a hold was granted after a wait is renewed with the hold, and not besides.
#[tokio::test(start_paused = true)]
async fn entries_of_a_waiting_hold_are_renewed_with_it() {
    let fixture = Fixture::in_phase(Phase::Shadow).await;
    let mut events = fixture.session.inbox.stream();
    let foreign = fixture.foreign(Side::New).await;
    let held = foreign.acquire(&request()).await.unwrap();
    let grant = fixture.take().await.unwrap();
    fixture.goes_to(Phase::Both).await;
    foreign.release(&held).await.unwrap();
    sleep(POLL).await;
    let (mut opened, mut over) = (Vec::new(), Vec::new());
    while let Some(Some(event)) = events.next().now_or_never() {
        match event {
            StoreEvent::LeaseOpened(lease) => opened.push(lease.id),
            StoreEvent::LeaseLost { lease, reason: LostReason::Released } => over.push(lease),
            _ => {}
        }
    }
    assert!(!opened.is_empty() && opened == over, "{opened:?} {over:?}");
    let both = fixture.session.with(|book, _| book.holds());
    assert_eq!(both, protocol::member::Holds { both: 1, ..Default::default() });
    fixture.session.release(&grant).await.unwrap();
}

/// What a hold has in the old store becomes needed again in a rollback; it is not given back to a waiter
/// there, though the entry there is older than what the guard believes.
#[tokio::test(start_paused = true)]
async fn entry_that_is_needed_again_is_kept() {
    let fixture = Fixture::in_phase(Phase::Drain).await;
    let grant = fixture.take().await.unwrap();
    let rival = fixture.foreign(Side::Old).await;
    let rivals = request();
    let mut waiting = rival.acquire(&rivals);
    assert!((&mut waiting).now_or_never().is_none());
    fixture.lines.old.always(Operation::Sign, Fault::LoseRequest);
    sleep(TTL / 3).await;
    fixture.session.renew(&[grant.lease.id]).await;
    write(&fixture.stores, Side::New, stands(Phase::Both).1);
    sleep(2 * POLL).await;
    let holds = || fixture.session.with(|book, _| book.holds());
    let there = protocol::member::Holds { new: 1, ..Default::default() };
    assert_eq!(holds(), there, "the guard believes in more than the entry has");
    fixture.lines.old.heal();
    sleep(TTL / 3).await;
    assert!((&mut waiting).now_or_never().is_none(), "it was given back");
    assert_eq!(holds(), protocol::member::Holds { both: 1, ..Default::default() });
    drop(waiting);
    fixture.session.release(&grant).await.unwrap();
}

/// A diagnosis reports a store that cannot be reached, and the other one.
#[tokio::test(start_paused = true)]
async fn a_diagnosis_goes_on_without_a_store() {
    let fixture = Fixture::in_phase(Phase::Drain).await;
    fixture.lines.old.cut();
    sleep(TTL / 3).await;
    timeout(Duration::from_millis(1), fixture.session.inspect(&name())).await.expect("at once").unwrap();
    let findings = timeout(TTL, fixture.session.diagnose()).await.expect("bounded").unwrap();
    let of = |word: &str| findings.iter().any(|finding| finding.detail.contains(word));
    assert!(of("in the new store") && of("the old store: "), "{findings:?}");
    assert!(!of("has lost its data"), "{findings:?}");
    fixture.lines.old.heal();
    fixture.stores.old.store().forget(&TokioClock::new());
    sleep(TTL / 3).await;
    let findings = fixture.session.diagnose().await.unwrap();
    let is_said =
        findings.iter().any(|finding| finding.detail.contains("has lost its data (times so far: 1)"));
    assert!(is_said, "{findings:?}");
}

/// What a hold has gained and cannot count on holds it back no longer once its store is silent: it goes on with what it needs.
#[tokio::test(start_paused = true)]
async fn unexpected_reply_ends_no_hold() {
    let fixture = Fixture::in_phase(Phase::Shadow).await;
    let grant = fixture.take().await.unwrap();
    fixture.lines.new.always(Operation::Sign, Fault::LoseRequest);
    sleep(TTL / 3).await;
    fixture.session.renew(&[grant.lease.id]).await;
    fixture.goes_to(Phase::Both).await;
    assert!(!fixture.stores.new.store().is_empty());
    assert_eq!(
        fixture.session.with(|book, _| book.holds().old),
        1,
        "the entry there does not last long enough"
    );
    fixture.lines.new.cut();
    sleep(TTL / 3).await;
    let renewed = fixture.session.renew(&[grant.lease.id]).await;
    let [Renewal::Until(until)] = renewed[..] else { panic!("{renewed:?}") };
    assert!(TTL / 2 < until.remaining(fixture.session.env.now()), "{until:?}");
}

/// A renewal is not confirmed once the entry that the hold rests on is overdue (session-3).
#[tokio::test(start_paused = true)]
async fn renewal_beside_an_overdue_entry_is_unknown() {
    let fixture = Fixture::in_phase(Phase::Old).await;
    let grant = fixture.take().await.unwrap();
    fixture.lines.old.always(Operation::Sign, Fault::LoseRequest);
    for (pause, is_confirmed) in [(TTL / 2, true), (TTL / 4, false)] {
        sleep(pause).await;
        let renewed = fixture.session.renew(&[grant.lease.id]).await;
        let [Renewal::Until(_) | Renewal::Unknown(_)] = renewed[..] else { panic!("{renewed:?}") };
        assert_eq!(matches!(renewed[0], Renewal::Until(_)), is_confirmed, "{renewed:?}");
    }
}

/// A foreign client that many wait for is written down once a second; one of ours, or at the other store, never.
#[tokio::test(start_paused = true)]
async fn a_holder_who_is_met_often_is_written_down_once() {
    let fixture = Fixture::in_phase(Phase::Drain).await;
    let ours = Holder::new("somebody");
    let foreign = ours.clone().of_foreign_client();
    let met = |side, holder: &Holder| {
        fixture.session.with(|book, _| (0..10).filter(|_| book.meet(side, &name(), holder)).count())
    };
    assert_eq!((met(Side::Old, &ours), met(Side::New, &foreign)), (0, 0));
    assert_eq!(met(Side::Old, &foreign), 1);
    sleep(POLL).await;
    assert_eq!(met(Side::Old, &foreign), 1, "it is still there");
}

/// Only a store that cannot be reached is left out while it is drained; one that refuses us is not.
#[tokio::test(start_paused = true)]
async fn a_store_that_denies_is_not_shunned() {
    let fixture = Fixture::in_phase(Phase::Drain).await;
    for (kind, shunned) in [(ErrorKind::Denied, false), (ErrorKind::Unavailable, true)] {
        let is_shunned = fixture.session.with(|book, now| {
            book.trouble.old = Some(Error::not_applied(kind.clone(), "not followed"));
            book.shuns_old(now)
        });
        assert_eq!(is_shunned, shunned, "{kind:?}");
    }
}

/// What was not renewed until its deadline is given up by the core, and not released: it may hang on a session that
/// lives on.
#[tokio::test(start_paused = true)]
async fn unreferenced_name_is_forgotten() {
    let fixture = Fixture::in_phase(Phase::Both).await;
    fixture.take().await.unwrap();
    sleep(TTL - POLL).await;
    assert!(
        !fixture.session.with(|book, _| book.slots.values().all(|slot| slot.is_empty())),
        "it may be renewed"
    );
    sleep(POLL * 3).await;
    assert!(
        fixture.session.with(|book, _| book.slots.values().all(|slot| slot.is_empty())),
        "its deadline has passed"
    );
}

/// What a store calls gone is asked to be released all the same, before the name is asked for there again (B1): as the core
/// does.
#[tokio::test(start_paused = true)]
async fn a_part_that_is_gone_is_released() {
    let fixture = Fixture::in_phase(Phase::Drain).await;
    let grant = fixture.take().await.unwrap();
    assert!(fixture.stores.old.store().evict(&name(), &TokioClock::new(), false));
    fixture.lines.old.always(Operation::Release, Fault::LoseReply);
    let renewed = fixture.session.renew(&[grant.lease.id]).await;
    assert!(matches!(renewed[..], [Renewal::Until(_)]), "the other store decides: {renewed:?}");
    sleep(POLL).await;
    assert_eq!(fixture.lines.old.injected(), 1, "it was asked for");
}

/// The hold rests on `session`, and the core trusts it until then.
fn hangs_on(book: &mut Book, session: Lease, trusted_until: Deadline) {
    let Some(Claim { parts, stage: Stage::Holding { told, .. }, .. }) = book.claim(&name()) else {
        panic!("it is held")
    };
    (parts.new.as_mut().unwrap().lease, *told) = (session, trusted_until);
}

/// A session that its store names again, with a later deadline, lasts longer for the core, and so do the holds in it; no
/// hold is reported to last less than before.
#[tokio::test(start_paused = true)]
async fn a_session_that_is_named_again_extends_its_holds() {
    let fixture = Fixture::in_phase(Phase::New).await;
    let mut events = fixture.session.inbox.stream();
    let grant = fixture.take().await.unwrap();
    let later = fixture.session.with(|book, now| {
        let session = |span| Lease::new(LeaseId::new(77), LeaseScope::Session, TTL, Deadline::At(now + span));
        let (soon, later) = (session(TTL / 3), session(TTL / 2));
        book.told(Side::New, StoreEvent::LeaseOpened(soon));
        hangs_on(book, soon, soon.deadline);
        book.told(Side::New, StoreEvent::LeaseOpened(later));
        hangs_on(book, later, Deadline::At(now + TTL));
        book.told(Side::New, StoreEvent::LeaseOpened(later));
        later.deadline
    });
    let mut heard = Vec::new();
    while let Some(Some(event)) = events.next().now_or_never() {
        if let StoreEvent::LeaseOpened(lease) = event
            && lease.deadline == later
        {
            heard.push((lease.scope, lease.id));
        }
    }
    let [(LeaseScope::Session, _), (LeaseScope::Entry, hold), (LeaseScope::Session, _)] = heard[..] else {
        panic!("{heard:?}")
    };
    assert_eq!(hold, grant.lease.id);
}

/// A wait ends at once when the session is closed, whatever its stores do.
#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_its_session() {
    let fixture = Fixture::in_phase(Phase::Old).await;
    let foreign = fixture.foreign(Side::Old).await;
    foreign.acquire(&request()).await.unwrap();
    let mut waiting = Box::pin(fixture.take());
    assert!(timeout(POLL, &mut waiting).await.is_err());
    fixture.session.stop();
    let ended = waiting.now_or_never().expect("at once").unwrap_err();
    assert_eq!(*ended.kind(), ErrorKind::Closed);
    assert_eq!(*fixture.take().await.unwrap_err().kind(), ErrorKind::Closed, "and none begins");
}
