//! The record of a move and its participants, as nodes.

use std::sync::Arc;

use leasehold_core::backend::StoreConfig;
use leasehold_core::backend::ledger::{MoveLedger, Participant};
use leasehold_core::{Env, OwnerId, Timing};
use zookeeper_client::{Acls, CreateMode};

use crate::fixture::{Fixture, Space, TTL};

async fn ledger(space: &Space) -> Arc<dyn MoveLedger> {
    let env = Env::new(Timing::for_ttl(TTL)).unwrap().without_token_base();
    space.config().open(env).await.unwrap().ledger().expect("a store that has one")
}

/// A participant that signs in a new session has an entry of that session, while the server keeps the old one, too.
/// Other nodes among the members are ignored.
pub(crate) async fn an_entry_is_of_the_session_that_signed_last(fixture: Arc<Fixture>) {
    let space = fixture.space().await;
    let (ledger, outside) = (ledger(&space).await, space.outside().await);
    let (here, other) = (OwnerId::from_random([1; 16]), OwnerId::from_random([2; 16]));
    ledger.sign(other, b"beside").await.unwrap();
    let path = format!("{}/leasehold/%members/{}", space.chroot, here.to_hex());
    let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    for path in [&path, &format!("{}/leasehold/%members/somebody", space.chroot)] {
        outside.client.create(path, b"before", &options).await.unwrap();
    }
    ledger.sign(here, b"again").await.unwrap();
    let (data, stat) = outside.client.get_data(&path).await.unwrap();
    assert_eq!(data, b"again");
    assert!(![0, outside.client.session_id().0].contains(&stat.ephemeral_owner));
    let mut members = ledger.members().await.unwrap();
    members.sort_by_key(|member| member.id.to_hex());
    let member = |id, value: &[u8]| Participant { id, value: value.to_vec() };
    assert_eq!(members, [member(here, b"again"), member(other, b"beside")]);
}

pub(crate) async fn signatures_may_overlap(fixture: Arc<Fixture>) {
    let space = fixture.space().await;
    let ledger = ledger(&space).await;
    for member in 1..20 {
        let id = OwnerId::from_random([member; 16]);
        let (one, other) = futures_util::future::join(ledger.sign(id, b"one"), ledger.sign(id, b"one")).await;
        one.and(other).unwrap();
    }
    assert_eq!(ledger.members().await.unwrap().len(), 19);
}
