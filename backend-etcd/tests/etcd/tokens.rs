//! What a namespace keeps beside its locks: what it adds to counters, its format, and the record of a move.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::ledger::Written;
use leasehold_core::backend::{LockBackend, StoreConfig};
use leasehold_core::{Effect, Env, ErrorKind, LockManager, Timing};
use testbed::Mode;

use crate::rig::{BOUND, Beside, PREFIX, Rig, TTL, behind, eventually, hold, open_with_ttl, trials, within};

trials!(
    uncounted_session_grants_larger_tokens,
    participant_of_a_move_is_no_lock_and_no_session,
    malformed_number_is_refused_and_kept,
    another_format_is_refused_by_name,
);

/// The store, without the manager that computes what is raised to.
async fn store(rig: &Rig) -> Arc<dyn LockBackend> {
    rig.config().open(Env::new(Timing::for_ttl(TTL)).unwrap()).await.unwrap()
}

fn key() -> String {
    format!("{PREFIX}/%token_base")
}

async fn put(rig: &Rig, key: String, value: &str) {
    rig.store.client.kv_client().put(key, value, None).await.unwrap();
}

async fn value(rig: &Rig) -> String {
    let answer = rig.store.client.kv_client().get(key(), None).await.unwrap();
    answer.kvs()[0].value_str().unwrap().to_owned()
}

/// The base is raised while a session begins that is not counted yet: its tokens are larger all the same.
async fn uncounted_session_grants_larger_tokens() {
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

/// The record and the entries of participants are not listed as locks. An entry ends with its session. A request to a
/// session is not counted as a session, nor is a session of another namespace.
async fn participant_of_a_move_is_no_lock_and_no_session() {
    let rig = Rig::start().await;
    let env = Env::new(Timing::for_ttl(TTL)).unwrap();
    let ledger = rig.config().open(env.clone()).await.unwrap().ledger().unwrap();
    assert_eq!(
        ledger.write(None, b"1 old old").await.unwrap(),
        Written::Done(rig.store.keys(&format!("{PREFIX}/%move")).await[0].created.unsigned_abs())
    );
    let lease = ledger.sign(env.owner_id(), b"is here").await.unwrap();
    let (manager, _elsewhere) = (rig.manager().await, crate::rig::open(rig.config().prefix("locks2")).await);
    assert_eq!(manager.list("").await.unwrap(), []);
    for session in rig.store.keys(&format!("{PREFIX}/%session/")).await {
        put(&rig, format!("{}/7", session.key), "").await;
    }
    assert_eq!(manager.token_base().await.unwrap().sessions, Some(1));
    let entries = rig.store.keys(&format!("{PREFIX}/%members/")).await;
    assert_eq!(entries.iter().map(|entry| entry.lease.unsigned_abs()).collect::<Vec<_>>(), [lease.id.get()]);
    rig.store.revoke(entries[0].lease).await;
    assert_eq!(ledger.members().await.unwrap(), []);
}

async fn malformed_number_is_refused_and_kept() {
    let rig = Rig::start().await;
    let store = store(&rig).await;
    store.raise_token_base(7).await.unwrap();
    assert_eq!((value(&rig).await, rig.store.keys(&key()).await[0].lease), ("7".to_owned(), 0));
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

async fn another_format_is_refused_by_name() {
    let rig = Rig::start().await;
    let (manager, mut client) = (rig.manager().await, rig.store.client.kv_client());
    let format = format!("{PREFIX}/%format");
    client.put(format.as_str(), "1", None).await.unwrap();
    let other = rig.manager().await;
    let guard = hold(&other, "n").await;
    client.put(format.as_str(), "2", None).await.unwrap();
    let opening = LockManager::builder(rig.config()).ttl(TTL).connect_timeout(BOUND).build();
    let first = within(BOUND, "an answer", opening).await.unwrap_err();
    rig.store.revoke(rig.store.queue("n").await[0].lease).await;
    guard.lost().await;
    let next = within(BOUND, "an answer", other.lock("n").unwrap().acquire()).await.unwrap_err();
    for refused in [first, next] {
        assert_eq!(
            (refused.kind(), refused.effect()),
            (&ErrorKind::Unsupported, Effect::NotApplied),
            "{refused}"
        );
        let words = "the namespace has format \"2\", and this version understands format 1";
        assert!(refused.to_string().contains(words), "{refused}");
    }
    // A session that was there goes on.
    hold(&manager, "n").await.release().await.unwrap();
}
