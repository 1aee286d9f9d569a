//! What the namespace adds to its counters, raised.

use std::sync::Arc;

use futures_util::future::join_all;
use leasehold_core::backend::{LockBackend, StoreConfig};
use leasehold_core::{Effect, Env, ErrorKind, FencingToken, Timing};
use leasehold_zk::ZkConfig;
use testbed::Direction;
use testbed::zookeeper::Op;
use zookeeper_client::{Acls, CreateMode, Error as ZkError};

use crate::rig::{Rig, Space, TTL, eventually, noting, proxy};

/// The store, without the manager that computes what is raised to.
async fn store(config: ZkConfig) -> Arc<dyn LockBackend> {
    config.open(Env::new(Timing::for_ttl(TTL)).unwrap()).await.unwrap()
}

fn node(space: &Space) -> String {
    format!("{}/leasehold/%token_base", space.chroot)
}

/// The base goes up only, and stands there as a plain number that outlives its session; the floor is below
/// the next transaction.
pub(crate) async fn a_base_is_raised_and_never_lowered(rig: Arc<Rig>) {
    let space = rig.space().await;
    let (store, outside) = (store(space.config()).await, space.outside().await);
    assert_eq!(store.token_base().await.unwrap().base, 0);
    let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    let mut zxid = 0;
    for (at, (at_least, base)) in
        [(9, 9), (7, 9), (10, 10), (0, 10), (FencingToken::MAX_COUNTER, (1 << 53) - 1)]
            .into_iter()
            .enumerate()
    {
        store.raise_token_base(at_least).await.unwrap();
        let raised = store.token_base().await.unwrap();
        assert_eq!(raised.base, base);
        assert!(zxid < raised.floor, "no earlier than what was written before");
        let beside = format!("{}/beside{at}", space.chroot);
        zxid = outside.client.create(&beside, b"", &options).await.unwrap().0.czxid.unsigned_abs();
        assert!(raised.floor < zxid, "not above what is granted later");
        let (data, stat) = outside.client.get_data(&node(&space)).await.unwrap();
        assert_eq!((data, stat.ephemeral_owner), (base.to_string().into_bytes(), 0));
    }
}

/// Whoever raises the base counts the sessions then; one that is not counted yet has not read it yet either,
/// also where it makes the directories first.
pub(crate) async fn a_base_is_read_by_a_session_that_is_counted(rig: Arc<Rig>) {
    let (proxy, seen) = (proxy(rig.server().await), Arc::default());
    let space = rig.space().await.by(proxy.addr());
    proxy.set(Direction::ClientToServer, noting(&seen)).await;
    let _store = store(space.config()).await;
    let seen = seen.lock();
    let made = seen.iter().rposition(|op| *op == Op::Create).expect("its nodes are made");
    let read = seen.iter().position(|op| *op == Op::Get).expect("the base is read");
    assert!(made < read, "{seen:?}");
}

/// Many raises, from two sessions, and from nothing: none takes another's back.
pub(crate) async fn of_raises_at_once_the_highest_stays(rig: Arc<Rig>) {
    let space = rig.space().await;
    let stores = [store(space.config()).await, store(space.config()).await];
    let raises = (1..=32).map(|base| stores[base % 2].raise_token_base((base * 37 % 32) as u64));
    join_all(raises).await.into_iter().collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!(stores[0].token_base().await.unwrap().base, 31);
}

/// Where the namespace was deleted, a raise fails at once, and not with its session.
pub(crate) async fn a_raise_where_the_namespace_is_gone_fails(rig: Arc<Rig>) {
    let space = rig.space().await;
    // So long that its own node is not missed meanwhile.
    let store = space.config().open(Env::new(Timing::for_ttl(10 * TTL)).unwrap()).await.unwrap();
    store.raise_token_base(3).await.unwrap();
    let (outside, session) = (space.outside().await, space.session(rig.server().await).await);
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
    assert!(refused.to_string().contains("did not raise the token_base"), "{refused}");
}

/// Whoever begins after the raise grants tokens above the one it was measured by; whoever was there before
/// goes on with the base that was.
pub(crate) async fn later_sessions_grant_larger_tokens(rig: Arc<Rig>) {
    let space = rig.space().await;
    let earlier = space.manager().await;
    let seen = FencingToken::new(1 << 50, 7).unwrap();
    earlier.raise_token_base(seen).await.unwrap();
    let guard = earlier.lock("a").unwrap().acquire().await.unwrap();
    assert!(guard.token() < seen);
    guard.release().await.unwrap();
    let later = space.manager().await;
    assert!(later.lock("a").unwrap().acquire().await.unwrap().token() > seen);
}

/// Others are counted while they live: not this one, and not those of other places.
pub(crate) async fn sessions_that_live_are_counted(rig: Arc<Rig>) {
    let (space, elsewhere) = (rig.space().await, rig.space().await);
    let (a, b, c) = (space.manager().await, space.manager().await, space.manager().await);
    let _elsewhere = elsewhere.manager().await;
    let sessions = async || a.token_base().await.unwrap().sessions;
    assert_eq!(sessions().await, Some(2));
    b.shutdown().await.unwrap();
    assert_eq!(sessions().await, Some(1));
    drop(c);
    eventually("the dropped session is over", async || sessions().await == Some(0)).await;
}

/// What somebody else has written there is not written over.
pub(crate) async fn what_is_no_number_is_refused_and_stays(rig: Arc<Rig>) {
    let space = rig.space().await;
    let (store, outside) = (store(space.config()).await, space.outside().await);
    store.raise_token_base(3).await.unwrap();
    for value in ["seven", "", "-3", "1e3", "99999999999999999999"] {
        outside.client.set_data(&node(&space), value.as_bytes(), None).await.unwrap();
        for refused in
            [store.token_base().await.map(drop).unwrap_err(), store.raise_token_base(9).await.unwrap_err()]
        {
            assert_eq!(*refused.kind(), ErrorKind::Protocol, "{value:?}: {refused}");
            assert!(refused.to_string().contains("%token_base"), "{refused}");
        }
        assert_eq!(outside.client.get_data(&node(&space)).await.unwrap().0, value.as_bytes());
    }
}

/// With credentials the base is for their owner, as every node is.
pub(crate) async fn the_base_belongs_to_its_creator(rig: Arc<Rig>) {
    let space = rig.space().await;
    let config = space.config().credentials("me", "secret");
    store(config.clone()).await.raise_token_base(3).await.unwrap();
    let outside = space.outside().await;
    assert_eq!(outside.client.get_data(&node(&space)).await.unwrap_err(), ZkError::NoAuth);
    let written = outside.client.set_data(&node(&space), b"9", None).await;
    assert_eq!(written.unwrap_err(), ZkError::NoAuth);
    let same = store(config).await;
    same.raise_token_base(4).await.unwrap();
    assert_eq!(same.token_base().await.unwrap().base, 4);
}
