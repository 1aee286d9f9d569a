//! What the namespace adds to its counters, raised.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::backend::ledger::Written;
use leasehold_core::backend::{LockBackend, StoreConfig};
use leasehold_core::{Env, ErrorKind, FencingToken, Timing};
use leasehold_etcd::EtcdConfig;
use testbed::Mode;
use testbed::etcd::Setup;

use crate::rig::{
    BOUND, Beside, PREFIX, Rig, TTL, behind, eventually, hold, managers, open_with_ttl, trials, until, within,
};

trials!(
    a_base_is_raised_and_never_lowered,
    of_raises_at_once_the_highest_stays,
    later_sessions_grant_larger_tokens,
    whoever_is_not_counted_grants_larger_tokens,
    sessions_that_live_are_counted,
    who_takes_part_in_a_move_is_no_lock_and_no_session,
    what_is_no_number_is_refused_and_stays,
    the_rights_to_lock_are_enough,
);

/// The store, without the manager that computes what is raised to.
async fn store(rig: &Rig) -> Arc<dyn LockBackend> {
    rig.config().open(Env::new(Timing::for_ttl(TTL)).unwrap()).await.unwrap()
}

fn key() -> String {
    format!("{PREFIX}/%token_base")
}

async fn put(rig: &Rig, key: String, value: &str) -> i64 {
    let answer = rig.store.client.kv_client().put(key, value, None).await.unwrap();
    answer.header().unwrap().revision()
}

async fn value(rig: &Rig) -> String {
    let answer = rig.store.client.kv_client().get(key(), None).await.unwrap();
    answer.kvs()[0].value_str().unwrap().to_owned()
}

/// The base goes up only, and stands there as a plain number without a lease; the floor is the newest
/// revision.
async fn a_base_is_raised_and_never_lowered() {
    let rig = Rig::start().await;
    let store = store(&rig).await;
    assert_eq!(store.token_base().await.unwrap().base, 0);
    for (at_least, base) in [(9, 9), (7, 9), (10, 10), (0, 10), (FencingToken::MAX_COUNTER, (1 << 53) - 1)] {
        store.raise_token_base(at_least).await.unwrap();
        let written = put(&rig, "beside".to_owned(), "").await;
        let raised = store.token_base().await.unwrap();
        assert_eq!((raised.base, raised.floor), (base, written.unsigned_abs()));
        assert_eq!(value(&rig).await, base.to_string());
    }
    let lease = rig.store.keys(&key()).await[0].lease;
    assert_eq!(lease, 0);
}

/// Many raises, from two sessions: none takes another's back.
async fn of_raises_at_once_the_highest_stays() {
    let rig = Rig::start().await;
    let stores = [store(&rig).await, store(&rig).await];
    let raises = (1..=32).map(|base| stores[base % 2].raise_token_base((base * 37 % 32) as u64));
    join_all(raises).await.into_iter().collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!(stores[0].token_base().await.unwrap().base, 31);
}

/// Whoever begins after the raise grants tokens above the one it was measured by; whoever was there before
/// goes on with the base that was.
async fn later_sessions_grant_larger_tokens() {
    let rig = Rig::start().await;
    let earlier = rig.manager().await;
    let seen = FencingToken::new(1 << 50, 7).unwrap();
    earlier.raise_token_base(seen).await.unwrap();
    let guard = hold(&earlier, "n").await;
    assert!(guard.token() < seen);
    guard.release().await.unwrap();
    let later = rig.manager().await;
    assert!(hold(&later, "n").await.token() > seen);
}

/// The base is raised while a session begins that is not counted yet: its tokens are larger all the same.
async fn whoever_is_not_counted_grants_larger_tokens() {
    const BASE: u64 = 1 << 40;
    const SLOW: Duration = Duration::from_millis(400);
    let rig = Rig::start().await;
    let (store, proxy) = (store(&rig).await, rig.proxy(0));
    proxy.set_both(Mode::delay(SLOW)).await;
    let config = behind(&proxy);
    let opening = Beside::start(async move { open_with_ttl(config, 10 * TTL).await.unwrap() });
    eventually("its lease", async || rig.store.leases().await == 2).await;
    // The answer is on its way still, and stays there.
    proxy.set_both(Mode::Blackhole).await;
    assert_eq!(store.token_base().await.unwrap().sessions, Some(0), "it is counted already");
    store.raise_token_base(BASE).await.unwrap();
    proxy.set_both(Mode::Pass).await;

    let manager = opening.end("it is opened").await;
    let token = hold(&manager, "n").await.token();
    assert!(token.counter() > BASE, "{token}");
}

/// Others are counted while they live: not this one, not what somebody is asked, not other namespaces.
async fn sessions_that_live_are_counted() {
    let rig = Rig::start().await;
    let [a, b, c] = managers(&rig, 3, TTL).await.try_into().unwrap();
    let _elsewhere = crate::rig::open(rig.config().prefix("locks2")).await;
    let sessions = async || a.token_base().await.unwrap().sessions;
    assert_eq!(sessions().await, Some(2));
    for session in rig.store.keys(&format!("{PREFIX}/%session/")).await {
        put(&rig, format!("{}/7", session.key), "").await;
    }
    assert_eq!(sessions().await, Some(2));
    b.shutdown().await.unwrap();
    assert_eq!(sessions().await, Some(1));
    // Its lease ends it, as that of a process that died.
    drop(c);
    within(2 * TTL + BOUND, "the dead session is over", until(async || sessions().await == Some(0))).await;
}

/// The record and the entries of members lie beside the locks, and are none of them; an entry goes with its
/// session, and whoever gave up the way to its ledger for the ledger keeps that.
async fn who_takes_part_in_a_move_is_no_lock_and_no_session() {
    let rig = Rig::start().await;
    let env = Env::new(Timing::for_ttl(TTL)).unwrap();
    let ledger = rig.config().open(env.clone()).await.unwrap().ledger().unwrap();
    assert_eq!(
        ledger.write(None, b"1 old old").await.unwrap(),
        Written::Done(rig.store.keys(&format!("{PREFIX}/%move")).await[0].created.unsigned_abs())
    );
    let lease = ledger.sign(env.owner_id(), b"is here").await.unwrap();
    let manager = rig.manager().await;
    assert_eq!(manager.list("").await.unwrap(), []);
    assert_eq!(manager.token_base().await.unwrap().sessions, Some(1));
    let entries = rig.store.keys(&format!("{PREFIX}/%members/")).await;
    assert_eq!(entries.iter().map(|entry| entry.lease.unsigned_abs()).collect::<Vec<_>>(), [lease.id.get()]);
    rig.store.revoke(entries[0].lease).await;
    assert_eq!(ledger.members().await.unwrap(), []);
}

/// What somebody else has written there is not written over.
async fn what_is_no_number_is_refused_and_stays() {
    let rig = Rig::start().await;
    let store = store(&rig).await;
    for no_number in ["seven", "", "-3", "1e3", "99999999999999999999"] {
        put(&rig, key(), no_number).await;
        for refused in
            [store.token_base().await.map(drop).unwrap_err(), store.raise_token_base(9).await.unwrap_err()]
        {
            assert_eq!(*refused.kind(), ErrorKind::InvalidOption, "{no_number:?}: {refused}");
            assert!(refused.to_string().contains(&format!("{no_number:?}")), "{refused}");
        }
        assert_eq!(value(&rig).await, no_number);
    }
}

/// A role for the prefix shows and raises its base.
async fn the_rights_to_lock_are_enough() {
    let mut etcd = Setup::new().start().await.unwrap();
    etcd.enable_auth("alice", "secret", "locks/").await.unwrap();
    let config = EtcdConfig::new(etcd.endpoints()).prefix(PREFIX).credentials("alice", "secret");
    let locks = crate::rig::open(config.clone()).await;
    let seen = FencingToken::new(1 << 50, 0).unwrap();
    locks.raise_token_base(seen).await.unwrap();
    assert_eq!(locks.token_base().await.unwrap().sessions, Some(0));
    assert!(hold(&crate::rig::open(config).await, "n").await.token() > seen);
}
