//! What callers leave behind: releases under way, holds that stood against an acknowledgement, a closed session; and who asks
//! next.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_conformance::layer::{Below, Layer, shared};
use leasehold_conformance::network::{Fault, Operation};
use leasehold_core::backend::stage::{Phase, Side};
use leasehold_core::backend::{AcquireRequest, Grant, StoreConfig};
use leasehold_core::{Error, ErrorKind, LostReason, OwnerId, Result};
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use super::late::{POLL, Rig, TTL, name, request};
use super::{env, stands, store, write};
use crate::protocol::Pair;
use crate::session::acquire::Outcome;
use crate::session::{SIDES, Session};

/// A release whose caller leaves goes on at once, whatever became of its request; who asks again hears what it came to, and a
/// request that arrives late takes nothing from the next holder (B2).
#[tokio::test(start_paused = true)]
async fn a_release_that_is_left_goes_on() {
    for (phase, side) in [(Phase::Old, Side::Old), (Phase::New, Side::New)] {
        for fault in [Fault::LoseRequest, Fault::LoseReply, Fault::DelayRequest(2 * POLL)] {
            let rig = Rig::in_phase(phase).await;
            let grant = rig.take().await.unwrap();
            rig.lines[side].next(Operation::Release, fault);
            assert!(timeout(POLL, rig.session.release(&grant)).await.is_err(), "it is not answered");
            let again = timeout(POLL / 2, rig.session.release(&grant)).await;
            again.expect("it went on").unwrap_or_else(|error| panic!("{phase} {fault:?}: {error:#}"));
            assert!(rig.stores[side].store().is_empty());
            let next = timeout(POLL / 2, rig.take()).await.expect("it is free").unwrap();
            sleep(2 * POLL).await;
            assert!(!rig.stores[side].store().is_empty(), "{phase} {fault:?}: it was the next one's");
            rig.session.release(&next).await.unwrap();
            assert!(rig.stores[side].store().is_empty());
        }
    }
}

/// While a release that was left is not confirmed, whoever is next asks the store for nothing (session-1).
#[tokio::test(start_paused = true)]
async fn nobody_asks_beside_a_release_that_was_left() {
    for (phase, side) in [(Phase::Old, Side::Old), (Phase::New, Side::New)] {
        let rig = Rig::in_phase(phase).await;
        let grant = rig.take().await.unwrap();
        rig.lines[side].always(Operation::Release, Fault::LoseRequest);
        assert!(timeout(POLL, rig.session.release(&grant)).await.is_err(), "it is not answered");
        let mut waiting = Box::pin(rig.take());
        assert!(timeout(POLL, &mut waiting).await.is_err(), "two hold in {phase}");
        let state = rig.stranger(side).await.inspect(&name()).await.unwrap();
        assert_eq!((state.holder().is_some(), state.contenders), (true, 0), "{phase}");
        rig.lines[side].heal();
        let next = timeout(TTL, waiting).await.expect("it is released").unwrap();
        assert!(grant.counter < next.counter);
        rig.session.release(&next).await.unwrap();
    }
}

/// Who asks the stores, and how many places are lost there first.
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

/// Every request to a store has an owner id of its own, and the first one that of the acquisition (attempt-3).
#[tokio::test(start_paused = true)]
async fn no_two_requests_have_one_owner() {
    for (phase, requests) in [(Phase::Old, 1), (Phase::Both, 4), (Phase::Drain, 4), (Phase::New, 3)] {
        let stores = Pair { old: store(), new: store() };
        let owners = Arc::new(Mutex::new(Vec::new()));
        let stand = stands(phase);
        write(&stores.old, Side::Old, stand.0);
        write(&stores.new, Side::New, stand.1);
        let way = |side: Side, loses| -> Arc<dyn StoreConfig> {
            let asks = Asks { owners: Arc::clone(&owners), loses: AtomicUsize::new(loses) };
            Arc::from(shared(Arc::new(asks))(Box::new(stores[side].clone())))
        };
        let ways = Pair { old: way(Side::Old, 0), new: way(Side::New, 2) };
        let session = Session::open_both(&ways, POLL, env()).await.unwrap();
        let request = request();
        let asked = timeout(TTL, session.acquire(&request, true)).await.expect("it is free").unwrap();
        let Outcome::Granted(grant) = asked else { panic!("it is free") };
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
    let rig = Rig::in_phase(Phase::Shadow).await;
    let stranger = rig.stranger(Side::New).await;
    stranger.acquire(&request()).await.unwrap();
    let grant = rig.take().await.unwrap();
    let acknowledged = || rig.session.with(|book, _| book.knowledge().acknowledged(Side::Old));
    let before = acknowledged();
    rig.goes_to(Phase::Both).await;
    sleep(2 * POLL).await;
    assert_eq!(acknowledged(), before, "it rests on the old store alone");
    rig.session.release(&grant).await.unwrap();
    sleep(Duration::from_millis(1)).await;
    let book = rig.session.book.lock();
    let known = book.knowledge().known(Side::Old).map(|seen| seen.version);
    assert!(before < known && book.knowledge().acknowledged(Side::Old) == known, "{before:?} {known:?}");
    assert_eq!(book.entries.old.value.acknowledges.old, known, "it was said");
}

/// What was shown until now is not shown any more: whoever looks at the book then finds no view that rests on it (view-1).
#[tokio::test(start_paused = true)]
async fn a_view_ends_with_the_entry_that_it_rests_on() {
    let rig = Rig::in_phase(Phase::Shadow).await;
    rig.session.with(|book, now| {
        assert!(book.view().is_some());
        book.pass_to(now + 2 * TTL);
        assert_eq!(book.view(), None);
    });
}

/// Nothing begins once the session is closed, even if its stores are open.
#[tokio::test(start_paused = true)]
async fn nothing_begins_in_a_closed_session() {
    let rig = Rig::in_phase(Phase::Old).await;
    rig.session.stop();
    assert_eq!(*rig.take().await.unwrap_err().kind(), ErrorKind::Closed);
    assert!(rig.stores.old.store().is_empty());
}
