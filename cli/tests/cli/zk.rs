//! On ZooKeeper: every command, a server that falls silent, and what `doctor` finds.

use std::time::Duration;

use testbed::zookeeper::{Server, Setup};

use crate::fixture::Fixture;
use crate::leased::warns;

testbed::trials![doctor_finds_a_bound_below_the_ttl];

async fn start(setup: Setup) -> Server {
    setup.start().await.unwrap_or_else(|error| panic!("{error}"))
}

/// A server that grants shorter sessions than asked for makes holders lose locks earlier.
async fn doctor_finds_a_bound_below_the_ttl() {
    let server = start(Setup::new().longest_session(Duration::from_secs(4))).await;
    let fixture = Fixture::on(format!("{}/cli?op_timeout=6s&ttl=20s", server.url()));
    warns(&fixture, "session", &["4s", "20s"]).await;
}
