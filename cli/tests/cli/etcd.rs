//! On etcd: every command, a server that falls silent, and what `doctor` finds.

use testbed::etcd::{Etcd, Setup};

use crate::fixture::Fixture;
use crate::leased::{asking, breaks, warns};

testbed::trials![doctor_finds_a_full_server, doctor_finds_leases_that_are_open, doctor_finds_missing_rights,];

async fn start(setup: Setup) -> Etcd {
    setup.start().await.unwrap_or_else(|error| panic!("{error}"))
}

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
async fn doctor_finds_leases_that_are_open() {
    let mut etcd = start(Setup::new()).await;
    etcd.enable_auth("alice", "secret", "cli/").await.unwrap();
    let fixture =
        Fixture::on(format!("etcd://alice:secret@{}/cli?op_timeout=10s&ttl=30s", etcd.endpoints()[0]));
    warns(&fixture, "leases", &["protect keys but not leases"]).await;
}

async fn doctor_finds_missing_rights() {
    let mut etcd = start(Setup::new()).await;
    etcd.enable_auth("alice", "secret", "elsewhere/").await.unwrap();
    for password in ["secret", "guessed"] {
        let fixture = Fixture::on(format!(
            "etcd://alice:{password}@{}/cli?op_timeout=10s&ttl=30s",
            etcd.endpoints()[0]
        ));
        breaks(&fixture, "access", &[]).await;
        assert_eq!(fixture.done(["run", "a", "--", "true"]).await.code, 77);
    }
}
