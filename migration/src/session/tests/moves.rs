//! Locks in the hands of managers while the move goes on, and while stores are cut off.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::OptionFuture;
use leasehold_conformance::Network;
use leasehold_conformance::network::{Fault, Operation};
use leasehold_core::backend::stage::{Phase, Side};
use leasehold_core::backend::{AcquireRequest, Attempt, Grant, LockBackend, StoreConfig};
use leasehold_core::clock::{Clock as _, TokioClock};
use leasehold_core::memory::MemoryConfig;
use leasehold_core::{LockGuard, LockManager, LockName, Timing};
use tokio::time::{sleep, timeout};

use super::{Cron, clock, env, stands, store, write, write_as, write_counted};
use crate::protocol::Pair;
use crate::protocol::member::MemberEntry;
use crate::protocol::record::MoveRecord;
use crate::protocol::records::in_store;
use crate::{Admin, Migration, Steps};

const TTL: Duration = Timing::DEFAULT_TTL;
/// More than a few polls, and less than anything that leans on an expiry.
const SOON: Duration = Duration::from_secs(4);

/// Two stores, each beyond a network of every process's own.
struct Fixture {
    stores: Pair<MemoryConfig>,
}

struct Process {
    locks: LockManager,
    lines: Pair<Network>,
}

impl Fixture {
    fn in_phase(phase: Phase) -> Self {
        let stores = Pair { old: store(), new: store() };
        let (old, new) = stands(phase);
        write(&stores, Side::Old, old);
        write(&stores, Side::New, new);
        Self { stores }
    }

    async fn process(&self) -> Process {
        let lines = Pair { old: Network::new(Duration::ZERO), new: Network::new(Duration::ZERO) };
        let way = |side: Side| lines[side].wrap()(Cron::below(&self.stores[side]));
        let locks = manager(Migration::new(way(Side::Old), way(Side::New))).await.unwrap();
        Process { locks, lines }
    }

    async fn admin(&self) -> Admin {
        let way = |side: Side| Cron::below(&self.stores[side]);
        Migration::new(way(Side::Old), way(Side::New)).admin(env()).await.unwrap()
    }

    /// Whether `a` is held in each store.
    async fn holders(&self) -> [bool; 2] {
        [self.holds(Side::Old).await, self.holds(Side::New).await]
    }

    async fn holds(&self, side: Side) -> bool {
        let onlooker = self.stores[side].open(env().without_token_base()).await.unwrap();
        let state = onlooker.inspect(&LockName::new("a").unwrap()).await.unwrap();
        onlooker.close().await.unwrap();
        state.holder().is_some()
    }

    async fn members(&self, side: Side) -> Vec<MemberEntry> {
        let onlooker = self.stores[side].open(env().without_token_base()).await.unwrap();
        let members = onlooker.ledger().unwrap().members().await.unwrap();
        onlooker.close().await.unwrap();
        members.into_iter().map(|member| MemberEntry::decode(&member.value).unwrap()).collect()
    }
}

async fn manager(migration: Migration) -> leasehold_core::Result<LockManager> {
    LockManager::builder(migration).ttl(TTL).clock(clock()).build().await
}

impl Process {
    async fn hold(&self) -> LockGuard {
        let lock = self.locks.lock("a").unwrap();
        timeout(SOON, lock.acquire()).await.expect("soon").unwrap()
    }
}

async fn walk(admin: &Admin, to: Phase) {
    let steps = Steps::one().to(to).wait(SOON).quiet_for(Duration::ZERO);
    let told = &mut |_: &_| {};
    let phase = admin.status().await.unwrap().phase;
    let walked =
        if phase < Some(to) { admin.advance(&steps, told).await } else { admin.rollback(&steps, told).await };
    assert_eq!(walked.unwrap_or_else(|error| panic!("to {to}: {error:#}")).phase, Some(to));
}

/// In every phase a lock lies where that phase says, and the guard of the first one is still valid in the last.
#[tokio::test(start_paused = true)]
async fn a_hold_lies_where_the_phase_says() {
    let fixture = Fixture::in_phase(Phase::Old);
    let (process, admin) = (fixture.process().await, fixture.admin().await);
    let guard = process.hold().await;
    for (to, places) in [
        (Phase::Shadow, [true, false]),
        (Phase::Both, [true, true]),
        (Phase::Drain, [true, true]),
        (Phase::New, [false, true]),
        (Phase::Drain, [false, true]),
        (Phase::Both, [true, true]),
        (Phase::Shadow, [true, false]),
        (Phase::Old, [true, false]),
    ] {
        walk(&admin, to).await;
        sleep(SOON).await;
        assert_eq!(fixture.holders().await, places, "in {to}");
        let shown = process.locks.inspect("a").await.unwrap();
        let token = shown.holder().and_then(|holder| holder.token);
        assert_eq!(token, Some(guard.token()), "in {to}");
        sleep(2 * TTL).await;
        guard.ensure_held().unwrap();
        assert_eq!(fixture.holders().await, places, "two ttls later in {to}");
    }
    guard.release().await.unwrap();
    assert_eq!(fixture.holders().await, [false, false]);
}

/// A process starts while the store that does not decide cannot be reached, and where that was emptied.
#[tokio::test(start_paused = true)]
async fn a_process_starts_without_the_store_that_does_not_decide() {
    let cases = [
        (Phase::Old, Side::New, true),
        (Phase::Shadow, Side::New, true),
        (Phase::Both, Side::New, false),
        (Phase::Both, Side::Old, false),
        (Phase::Drain, Side::Old, true),
        (Phase::Drain, Side::New, false),
        (Phase::New, Side::Old, true),
        (Phase::Old, Side::Old, false),
    ];
    for ((phase, side, starts), is_empty) in cases.into_iter().flat_map(|case| [(case, false), (case, true)])
    {
        let fixture = Fixture::in_phase(phase);
        let lines = Pair { old: Network::new(Duration::ZERO), new: Network::new(Duration::ZERO) };
        let way = |side: Side| lines[side].wrap()(Box::new(fixture.stores[side].clone()));
        if is_empty {
            fixture.stores[side].store().forget(&*clock());
        } else {
            lines[side].cut();
        }
        let began = clock().now();
        let opened = manager(Migration::new(way(Side::Old), way(Side::New))).await;
        assert_eq!(opened.is_ok(), starts, "{phase} without {side:?}: {opened:?}");
        if let Some(error) = opened.as_ref().err().filter(|_| is_empty) {
            assert!(error.to_string().contains("no lock is granted until"), "{error}");
        }
        if phase == Phase::New && !is_empty {
            assert!(clock().now().since(began) < 2 * Migration::DEFAULT_POLL, "it decides nothing");
            let began = clock().now();
            let admin = Migration::new(way(Side::Old), way(Side::New)).admin(env()).await.unwrap();
            admin.status().await.unwrap();
            let once = env().timing().connect_timeout + env().timing().op_timeout;
            assert!(clock().now().since(began) <= once, "it is waited for once");
        }
        let Ok(locks) = opened else { continue };
        let process = Process { locks, lines };
        process.hold().await.release().await.unwrap();
        process.lines[side].heal();
        sleep(SOON).await;
        assert_eq!(
            fixture.members(side).await.len(),
            1,
            "{phase}: it is a member of {side:?} once that can be reached"
        );
    }
}

/// The old store comes back with the record of an earlier move, and is read first: it does not decide.
#[tokio::test(start_paused = true)]
async fn record_of_an_earlier_move_does_not_decide() {
    let fixture = Fixture::in_phase(Phase::New);
    fixture.stores[Side::Old].store().forget(&*clock());
    write_as(8, &fixture.stores, Side::Old, stands(Phase::Old).0, 1);
    let lines = Pair { old: Network::new(Duration::ZERO), new: Network::new(Duration::ZERO) };
    let way = |side: Side| lines[side].wrap()(Box::new(fixture.stores[side].clone()));
    lines.old.next(Operation::ReadRecord, Fault::LoseRequest);
    lines.new.next(Operation::ReadRecord, Fault::DelayRequest(Duration::ZERO));
    lines.new.next(Operation::ReadRecord, Fault::DelayRequest(SOON / 4));
    let locks = manager(Migration::new(way(Side::Old), way(Side::New))).await.unwrap();
    let process = Process { locks, lines };
    let _guard = process.hold().await;
    assert_eq!(fixture.holders().await, [false, true]);
}

/// A process that reads the records apart takes no half of a beginning for a whole one: it completes it (records-4).
#[tokio::test(start_paused = true)]
async fn half_a_beginning_is_completed() {
    let stores = Pair { old: store(), new: store() };
    let late = Network::new(Duration::ZERO);
    late.next(Operation::ReadRecord, Fault::DelayRequest(SOON / 4));
    late.next(Operation::ReadRecord, Fault::DelayRequest(SOON / 4));
    let way = late.wrap()(Box::new(stores.old.clone()));
    let mut opening = Box::pin(manager(Migration::new(way, stores.new.clone())));
    assert!(timeout(SOON / 8 * 3, &mut opening).await.is_err(), "it has read the new store's record twice");
    for side in [Side::New, Side::Old] {
        write_counted(&stores, side, stands(Phase::Old).0, 0);
    }
    let _locks = opening.await.unwrap();
    for side in [Side::New, Side::Old] {
        let reader = stores[side].open(env().without_token_base()).await.unwrap();
        let entry = reader.ledger().unwrap().read().await.unwrap().unwrap();
        assert_eq!(MoveRecord::decode(&entry.value).unwrap().restored, 1, "{side:?}");
    }
}

/// What an entry in both lists says, and that it goes.
#[tokio::test(start_paused = true)]
async fn a_member_says_what_it_holds_and_leaves_at_the_end() {
    let fixture = Fixture::in_phase(Phase::Both);
    let process = fixture.process().await;
    let _guard = process.hold().await;
    sleep(TTL).await;
    for side in [Side::Old, Side::New] {
        let members = fixture.members(side).await;
        let [member] = &members[..] else { panic!("{members:?}") };
        assert_eq!((member.view, member.holds.both), (Some(Phase::Both), 1), "{member:?}");
        let Pair { old, new } = member.acknowledges;
        assert_eq!([old, new].map(|version| version.map(in_store)), [Some(1); 2]);
    }
    process.locks.shutdown().await.unwrap();
    for side in [Side::Old, Side::New] {
        assert_eq!(fixture.members(side).await, []);
    }
}

/// In `drain` a record that the old store went back to bars no plain sessions: a process writes the later one again (records-3).
#[tokio::test(start_paused = true)]
async fn old_record_that_went_back_is_written_again() {
    for starts_later in [false, true] {
        let fixture = Fixture::in_phase(Phase::Drain);
        let first = (!starts_later).then(|| fixture.process());
        let _first = OptionFuture::from(first).await;
        fixture.stores.old.store().forget(&TokioClock::new());
        write(&fixture.stores, Side::Old, stands(Phase::Old).0);
        let _second = OptionFuture::from(starts_later.then(|| fixture.process())).await;
        sleep(SOON).await;
        let status = fixture.admin().await.status().await.unwrap();
        let phase = |store: crate::admin::StoreStatus| store.record.and_then(|record| record.phase);
        assert_eq!([phase(status.old), phase(status.new)], [Some(Phase::Drain); 2]);
        let process = fixture.process().await;
        process.hold().await.release().await.unwrap();
    }
}

/// A foreign client that holds `a` in the old store.
async fn cron(fixture: &Fixture) -> (Arc<dyn LockBackend>, Grant) {
    let old = fixture.stores.old.open(env().without_token_base()).await.unwrap();
    let mut request = AcquireRequest::new(LockName::new("a").unwrap(), env().owner_id(), 4 * QUIET);
    request.label = "cron".into();
    let Attempt::Granted(grant) = old.try_acquire(&request).await.unwrap() else { panic!("it is free") };
    (old, grant)
}

impl Fixture {
    /// When a foreign client was met last, by the record of the new store.
    async fn met(&self) -> Option<u64> {
        let onlooker = self.stores.new.open(env().without_token_base()).await.unwrap();
        let entry = onlooker.ledger().unwrap().read().await.unwrap().unwrap();
        MoveRecord::decode(&entry.value).unwrap().last_met().map(|met| met.at)
    }

    async fn refuses_new(&self) -> bool {
        let steps = Steps::default().to(Phase::New).quiet_for(QUIET);
        match self.admin().await.advance(&steps, &mut |_| {}).await {
            Ok(_) => false,
            Err(refused) => {
                assert!(refused.to_string().contains("a foreign client held `a`"), "{refused}");
                true
            }
        }
    }
}

/// How long no foreign client may have been met before the last step.
const QUIET: Duration = Duration::from_secs(600);

/// One that holds since before the old store is drained, while one of ours waits, is met again and again as long as it holds.
#[tokio::test(start_paused = true)]
async fn a_foreign_client_that_stays_is_met_again() {
    for phase in [Phase::Old, Phase::Shadow, Phase::Drain] {
        let fixture = Fixture::in_phase(phase);
        let process = fixture.process().await;
        let (old, grant) = cron(&fixture).await;
        let lock = process.locks.lock("a").unwrap();
        let mut waiting = Box::pin(lock.acquire());
        assert!((&mut waiting).now_or_never().is_none());
        sleep(SOON).await;
        assert_eq!(fixture.met().await.is_some(), phase == Phase::Drain);
        for (side, stand) in [(Side::Old, stands(Phase::Drain).0), (Side::New, stands(Phase::Drain).1)] {
            write(&fixture.stores, side, stand);
        }
        let mut last = None;
        for _ in 0..3 {
            assert!(timeout(SOON, &mut waiting).await.is_err(), "two hold");
            let met = fixture.met().await;
            assert!(last < met, "{phase}: {last:?} {met:?}");
            last = met;
        }
        old.release(&grant).await.unwrap();
        drop(timeout(TTL, waiting).await.expect("it is free").unwrap());
        sleep(SOON).await;
        let last = fixture.met().await;
        sleep(SOON).await;
        assert_eq!(fixture.met().await, last);
    }
}

/// Of many that wait, all are looked at by and by.
#[tokio::test(start_paused = true)]
async fn foreign_client_behind_many_waits_is_met() {
    let fixture = Fixture::in_phase(Phase::Old);
    let (process, holder) = (fixture.process().await, fixture.process().await);
    let (_old, _grant) = cron(&fixture).await;
    let mut held = Vec::new();
    for number in 0..50 {
        held.push(holder.locks.lock(format!("A{number}")).unwrap().acquire().await.unwrap());
    }
    let names = held.iter().map(|guard| guard.name().to_string()).chain(["a".to_owned()]);
    let locks: Vec<_> = names.map(|name| process.locks.lock(name).unwrap()).collect();
    let mut waiting: Vec<_> = locks.iter().map(|lock| Box::pin(lock.acquire())).collect();
    assert!(waiting.iter_mut().all(|wait| wait.now_or_never().is_none()));
    for (side, stand) in [(Side::Old, stands(Phase::Drain).0), (Side::New, stands(Phase::Drain).1)] {
        write(&fixture.stores, side, stand);
    }
    for _ in 0..8 {
        sleep(SOON / 4).await;
        assert!(waiting.iter_mut().all(|wait| wait.now_or_never().is_none()));
    }
    assert!(fixture.met().await.is_some());
}

/// The last step asks the old store itself, also when no process is there to meet a foreign client.
#[tokio::test(start_paused = true)]
async fn the_last_step_finds_a_foreign_client_itself() {
    let fixture = Fixture::in_phase(Phase::Drain);
    sleep(2 * QUIET).await;
    let (old, grant) = cron(&fixture).await;
    assert!(fixture.refuses_new().await);
    old.release(&grant).await.unwrap();
    sleep(2 * QUIET).await;
    assert!(!fixture.refuses_new().await);
}
