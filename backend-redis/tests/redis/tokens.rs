//! What the namespace adds to its counters, raised.

use leasehold_core::ErrorKind;

use crate::fixture::{command, direct, eventually, ok, open, server, store, trials};

trials![others_that_listen_are_counted, token_base_of_another_type_is_refused];

pub(crate) const BASE: &str = "leasehold:token_base";

/// A session of the prefix is counted while it is connected, however idle it is. Without the right to count, the base is
/// shown without a number of sessions.
async fn others_that_listen_are_counted() {
    let server = server().await;
    let store = store(direct(&server)).await;
    let counted = async || store.token_base().await.unwrap().sessions;
    let _elsewhere = open(direct(&server).prefix("lease")).await;
    let _in_another_database = open(direct(&server).database(1)).await;
    assert_eq!(counted().await, None);
    let idle = open(direct(&server)).await;
    assert_eq!(counted().await, Some(1));
    let mut earlier = server.client().await.unwrap();
    earlier.command(&["SUBSCRIBE", &format!("leasehold:inbox:{:032x}-0", 1)]).await.unwrap();
    earlier.command(&["SUBSCRIBE", "leasehold:inbox:nobodys"]).await.unwrap();
    assert_eq!(counted().await, Some(2));

    let rights = ["on", ">secret", "~*", "&*", "+@all", "-pubsub"];
    ok(&server, &[&["ACL", "SETUSER", "app"], &rights[..]].concat()).await;
    let denied = open(direct(&server).credentials("app", "secret")).await;
    assert_eq!(denied.token_base().await.unwrap().sessions, None);
    assert_eq!(counted().await, Some(3));
    for locks in [idle, denied] {
        locks.shutdown().await.unwrap();
    }
    drop(earlier);
    eventually("nobody is left", async || counted().await.is_none()).await;
}

async fn token_base_of_another_type_is_refused() {
    let server = server().await;
    let store = store(direct(&server)).await;
    command(&server, &["RPUSH", BASE, "7"]).await;
    assert_eq!(*store.raise_token_base(9).await.unwrap_err().kind(), ErrorKind::Protocol);
    assert_eq!(*store.token_base().await.unwrap_err().kind(), ErrorKind::Protocol);
}
