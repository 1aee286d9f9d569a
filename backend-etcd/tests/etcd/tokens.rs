//! What a namespace keeps beside its locks: what it adds to counters, and the record of a move.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::ledger::Written;
use leasehold_core::backend::{LockBackend, StoreConfig};
use leasehold_core::{Env, Timing};
use testbed::Mode;

use crate::fixture::{Beside, Fixture, PREFIX, TTL, behind, eventually, hold, open_with_ttl, trials};

trials!(uncounted_session_grants_larger_tokens, participant_of_a_move_is_no_lock_and_no_session,);

/// The store, without the manager that computes what is raised to.
async fn store(fixture: &Fixture) -> Arc<dyn LockBackend> {
    fixture.config().open(Env::new(Timing::for_ttl(TTL)).unwrap()).await.unwrap()
}

/// The base is raised while a session begins that is not counted yet: its tokens are larger all the same.
async fn uncounted_session_grants_larger_tokens() {
    const BASE: u64 = 1 << 40;
    const SLOW: Duration = Duration::from_millis(400);
    let fixture = Fixture::start().await;
    let (store, proxy) = (store(&fixture).await, fixture.proxy(0));
    proxy.set_both(Mode::delay(SLOW)).await;
    let config = behind(&proxy);
    let opening = Beside::start(async move { open_with_ttl(config, 10 * TTL).await.unwrap() });
    eventually("its lease", async || fixture.store.leases().await == 2).await;
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
    let fixture = Fixture::start().await;
    let env = Env::new(Timing::for_ttl(TTL)).unwrap();
    let ledger = fixture.config().open(env.clone()).await.unwrap().ledger().unwrap();
    assert_eq!(
        ledger.write(None, b"1 old old").await.unwrap(),
        Written::Done(fixture.store.keys(&format!("{PREFIX}/%move")).await[0].created.unsigned_abs())
    );
    let lease = ledger.sign(env.owner_id(), b"is here").await.unwrap();
    let (manager, _elsewhere) =
        (fixture.manager().await, crate::fixture::open(fixture.config().prefix("locks2")).await);
    assert_eq!(manager.list("").await.unwrap(), []);
    for session in fixture.store.keys(&format!("{PREFIX}/%session/")).await {
        fixture.store.client.kv_client().put(format!("{}/7", session.key), "", None).await.unwrap();
    }
    assert_eq!(manager.token_base().await.unwrap().sessions, Some(1));
    let entries = fixture.store.keys(&format!("{PREFIX}/%members/")).await;
    assert_eq!(entries.iter().map(|entry| entry.lease.unsigned_abs()).collect::<Vec<_>>(), [lease.id.get()]);
    fixture.store.revoke(entries[0].lease).await;
    assert_eq!(ledger.members().await.unwrap(), []);
}
