//! On etcd: every command, a server that falls silent, and what `doctor` finds.

use std::cell::RefCell;
use std::time::Duration;

use testbed::Port;
use testbed::etcd::{Etcd, Setup, current};

use crate::leased::{self, breaks, warns};
use crate::rig::Rig;

async fn start(setup: Setup) -> Etcd {
    setup.start().await.unwrap_or_else(|error| panic!("{error}"))
}

fn rig(etcd: &Etcd) -> Rig {
    Rig::on(format!("{}/cli?ttl=3s", etcd.url()))
}

/// With more time between a renewal that is overdue and the deadline.
fn patient(etcd: &Etcd) -> Rig {
    Rig::on(format!("{}/cli?ttl=6s&op_timeout=1s", etcd.url()))
}

const PATIENT_TTL: Duration = Duration::from_secs(6);

/// With all the time there is for questions.
fn asking(etcd: &Etcd) -> Rig {
    Rig::on(format!("{}/cli?op_timeout=10s&ttl=30s", etcd.url()))
}

/// The same as on every store.
#[tokio::test]
async fn the_commands_work() {
    let etcd = start(Setup::new()).await;
    leased::the_commands_work(&rig(&etcd)).await;
}

/// The same as on every store.
#[tokio::test]
async fn a_grace_is_told_whole() {
    let etcd = start(Setup::new()).await;
    leased::a_grace_is_told_whole_and_lengthens_nothing(&rig(&etcd)).await;
}

/// The same as on every store with leases.
#[tokio::test]
async fn a_command_ends_before_its_lease() {
    let mut etcd = start(Setup::new()).await;
    let rig = patient(&etcd);
    let silence = async || etcd.stop(0).await.unwrap();
    leased::a_command_ends_before_its_lease(&rig, PATIENT_TTL, silence).await;
}

/// The same as on every store with leases.
#[tokio::test]
async fn risk_and_loss_are_told() {
    let etcd = start(Setup::new()).await;
    let rig = rig(&etcd);
    let etcd = RefCell::new(etcd);
    #[expect(clippy::await_holding_refcell_ref, reason = "one step at a time")]
    let silence = async || etcd.borrow_mut().stop(0).await.unwrap();
    let back = async || etcd.borrow_mut().cont(0).unwrap();
    leased::risk_and_loss_are_told(&rig, silence, back).await;
}

/// The same as on every store with leases.
#[tokio::test]
async fn a_stopped_holder_ends_its_command() {
    let etcd = start(Setup::new()).await;
    leased::a_stopped_holder_ends_its_command(&rig(&etcd)).await;
}

/// The same as on every store with leases.
#[tokio::test]
async fn a_wait_says_that_the_store_is_silent() {
    let mut etcd = start(Setup::new()).await;
    let (rig, addr) = (rig(&etcd), etcd.addr(0));
    let silence = async || etcd.stop(0).await.unwrap();
    leased::a_wait_says_that_the_store_is_silent(&rig, addr, silence).await;
}

/// Nobody listens.
#[tokio::test]
async fn a_server_that_is_down() {
    let port = Port::reserve().unwrap();
    let rig = Rig::on(format!("etcd://{}/cli?connect_timeout=500ms", port.addr()));
    leased::a_store_that_is_down_is_unavailable(&rig, port.addr(), "cannot connect").await;
}

/// The installed version ends leases early; a current one does not, and passes.
#[tokio::test]
async fn doctor_finds_a_version_with_known_bugs() {
    let etcd = start(Setup::new()).await;
    breaks(&asking(&etcd), "version", &["3.4.23", "15247"]).await;
    let Some(program) = current() else {
        return testbed::peers::skip("doctor on etcd 3.6", "it is not there; run: make tools");
    };
    let etcd = start(Setup::new().program(program)).await;
    let diagnosis = asking(&etcd).done(["doctor"]).await;
    assert_eq!(diagnosis.code, 0, "{diagnosis:?}");
}

/// A full server takes no lock.
#[tokio::test]
async fn doctor_finds_a_full_server() {
    let etcd = start(Setup::new().quota(1 << 20)).await;
    let junk = "x".repeat(100_000);
    let mut written = 0;
    while etcd.ctl(["put", &format!("junk/{written}"), &junk]).await.is_ok() {
        written += 1;
        assert!(written < 100, "the server is never full");
    }
    breaks(&asking(&etcd), "alarms", &["NOSPACE"]).await;
}

/// With users and roles, keys are protected, and leases are not.
#[tokio::test]
async fn doctor_finds_leases_that_are_open() {
    let mut etcd = start(Setup::new()).await;
    etcd.enable_auth("alice", "secret", "cli/").await.unwrap();
    let rig = Rig::on(format!("etcd://alice:secret@{}/cli?op_timeout=10s&ttl=30s", etcd.endpoints()[0]));
    warns(&rig, "leases", &["protect keys but not leases"]).await;
}

/// A user whose role is for something else, and a wrong password.
#[tokio::test]
async fn doctor_finds_missing_rights() {
    let mut etcd = start(Setup::new()).await;
    etcd.enable_auth("alice", "secret", "elsewhere/").await.unwrap();
    for password in ["secret", "guessed"] {
        let rig =
            Rig::on(format!("etcd://alice:{password}@{}/cli?op_timeout=10s&ttl=30s", etcd.endpoints()[0]));
        breaks(&rig, "access", &[]).await;
        assert_eq!(rig.done(["run", "a", "--", "true"]).await.code, 77);
    }
}
