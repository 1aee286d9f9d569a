//! Reading and raising the token base.

use std::sync::Arc;

use leasehold_core::backend::{LockBackend, StoreConfig};
use leasehold_core::{Effect, Env, ErrorKind, Timing};
use leasehold_zk::ZkConfig;
use testbed::zookeeper::Op;

use crate::fixture::{Fixture, TTL, noted, proxy};

/// The store without the manager, which computes the new base.
async fn store(config: ZkConfig) -> Arc<dyn LockBackend> {
    config.open(Env::new(Timing::for_ttl(TTL)).unwrap()).await.unwrap()
}

/// A session reads the base only after it is counted, also if it creates the directories.
pub(crate) async fn a_base_is_read_by_a_session_that_is_counted(fixture: Arc<Fixture>) {
    let proxy = proxy(fixture.server().await);
    let (space, seen) = (fixture.space().await.by(proxy.addr()), noted(&proxy).await);
    let _store = store(space.config()).await;
    let seen = seen.lock();
    let made = seen.iter().rposition(|op| *op == Op::Create).expect("its nodes are made");
    let read = seen.iter().position(|op| *op == Op::Get).expect("the base is read");
    assert!(made < read, "{seen:?}");
}

pub(crate) async fn a_raise_where_the_namespace_is_gone_fails(fixture: Arc<Fixture>) {
    let space = fixture.space().await;
    // So long that its own node is not missed meanwhile.
    let store = space.config().open(Env::new(Timing::for_ttl(10 * TTL)).unwrap()).await.unwrap();
    store.raise_token_base(3).await.unwrap();
    let (outside, session) = (space.outside().await, space.session(fixture.server().await).await);
    let mut gone = outside.client.new_multi_writer();
    // In one transaction, so that nothing is made anew in between.
    for node in [
        format!("/%sessions/{session:016x}"),
        format!("/%inboxes/{session:016x}"),
        "/%sessions".to_owned(),
        "/%inboxes".to_owned(),
        "/%token_base".to_owned(),
        String::new(),
    ] {
        gone.add_delete(&format!("{}/leasehold{node}", space.chroot), None).unwrap();
    }
    gone.commit().await.unwrap();
    let refused = store.raise_token_base(9).await.unwrap_err();
    assert_eq!((refused.kind(), refused.effect()), (&ErrorKind::Protocol, Effect::NotApplied), "{refused}");
    assert!(refused.to_string().contains("cannot raise the token_base"), "{refused}");
}
