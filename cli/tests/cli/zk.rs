//! On ZooKeeper: every command, a server that falls silent, and what `doctor` finds.

use std::time::Duration;

use testbed::zookeeper::{Server, Setup};

use crate::leased::{breaks, warns};
use crate::rig::Rig;

testbed::trials![doctor_finds_a_bound_below_the_ttl, doctor_finds_missing_rights,];

async fn start(setup: Setup) -> Server {
    setup.start().await.unwrap_or_else(|error| panic!("{error}"))
}

/// A server that grants shorter sessions than asked for makes holders lose locks earlier.
async fn doctor_finds_a_bound_below_the_ttl() {
    let server = start(Setup::new().longest_session(Duration::from_secs(4))).await;
    let rig = Rig::on(format!("{}/cli?op_timeout=6s&ttl=20s", server.url()));
    warns(&rig, "session", &["4s", "20s"]).await;
}

/// Users who may not enter the chroot: the nodes of one are closed to another, and to whoever is nobody.
async fn doctor_finds_missing_rights() {
    let server = start(Setup::new()).await;
    let on_behalf_of =
        |user| Rig::on(format!("zk://{user}:secret@{}/closed?op_timeout=10s&ttl=30s", server.addr()));
    assert_eq!(on_behalf_of("alice").done(["run", "a", "--", "true"]).await.code, 0);
    let denied = on_behalf_of("bob").done(["run", "a", "--", "true"]).await;
    assert_eq!(denied.code, 77, "{denied:?}");
    let diagnosis = on_behalf_of("bob").done(["doctor", "--json"]).await;
    assert_eq!((diagnosis.code, &diagnosis.json()["broken"]), (1, &true.into()), "{diagnosis:?}");
    breaks(&Rig::on(format!("zk://{}/closed?op_timeout=10s&ttl=30s", server.addr())), "access", &["right"])
        .await;
}
