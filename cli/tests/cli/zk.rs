//! On ZooKeeper: every command, a server that falls silent, and what `doctor` finds.

use std::time::Duration;

use testbed::Port;
use testbed::zookeeper::{Server, Setup};

use crate::leased::{self, breaks, warns};
use crate::rig::Rig;

async fn start(setup: Setup) -> Server {
    setup.start().await.unwrap_or_else(|error| panic!("{error}"))
}

fn rig(server: &Server) -> Rig {
    Rig::on(format!("{}/cli?ttl=3s", server.url()))
}

/// With more time between a renewal that is overdue and the deadline.
fn patient(server: &Server) -> Rig {
    Rig::on(format!("{}/cli?ttl=6s&op_timeout=500ms", server.url()))
}

const PATIENT_TTL: Duration = Duration::from_secs(6);

/// The same as on every store, and then a stopped holder and missing rights on the same server: the
/// nodes of one user are closed to another.
#[tokio::test]
async fn the_commands_work() {
    let server = start(Setup::new()).await;
    leased::the_commands_work(&rig(&server)).await;
    leased::a_stopped_holder_ends_its_command(&rig(&server)).await;
    let on_behalf_of = |user| Rig::on(format!("zk://{user}:secret@{}/closed?ttl=3s", server.addr()));
    assert_eq!(on_behalf_of("alice").done(["run", "a", "--", "true"]).await.code, 0);
    let denied = on_behalf_of("bob").done(["run", "a", "--", "true"]).await;
    assert_eq!(denied.code, 77, "{denied:?}");
    let diagnosis = on_behalf_of("bob").done(["doctor", "--json"]).await;
    assert_eq!((diagnosis.code, &diagnosis.json()["broken"]), (1, &true.into()), "{diagnosis:?}");
}

/// The same as on every store with leases.
#[tokio::test]
async fn a_command_ends_before_its_lease() {
    let server = start(Setup::new()).await;
    let silence = async || server.stop().await.unwrap();
    leased::a_command_ends_before_its_lease(&patient(&server), PATIENT_TTL, silence).await;
}

/// The same as on every store with leases.
#[tokio::test]
async fn risk_and_loss_are_told() {
    let server = start(Setup::new()).await;
    let silence = async || server.stop().await.unwrap();
    let back = async || server.cont().unwrap();
    leased::risk_and_loss_are_told(&patient(&server), silence, back).await;
}

/// The same as on every store with leases.
#[tokio::test]
async fn a_wait_says_that_the_store_is_silent() {
    let server = start(Setup::new()).await;
    let silence = async || server.stop().await.unwrap();
    leased::a_wait_says_that_the_store_is_silent(&rig(&server), server.addr(), silence).await;
}

/// Nobody listens.
#[tokio::test]
async fn a_server_that_is_down() {
    let port = Port::reserve().unwrap();
    let rig = Rig::on(format!("zk://{}/cli?connect_timeout=500ms", port.addr()));
    leased::a_store_that_is_down_is_unavailable(&rig, port.addr(), "no session was opened within 500ms")
        .await;
}

/// A server that grants shorter sessions than asked for makes holders lose locks earlier.
#[tokio::test]
async fn doctor_finds_a_bound_below_the_ttl() {
    let server = start(Setup::new().longest_session(Duration::from_secs(4))).await;
    let rig = Rig::on(format!("{}/cli?ttl=20s", server.url()));
    warns(&rig, "session", &["4s", "20s"]).await;
}

/// A user who may not enter the chroot.
#[tokio::test]
async fn doctor_finds_missing_rights() {
    let server = start(Setup::new()).await;
    let owner = Rig::on(format!("zk://alice:secret@{}/closed?op_timeout=10s&ttl=30s", server.addr()));
    assert_eq!(owner.done(["run", "a", "--", "true"]).await.code, 0);
    breaks(&Rig::on(format!("zk://{}/closed?op_timeout=10s&ttl=30s", server.addr())), "access", &["right"])
        .await;
}
