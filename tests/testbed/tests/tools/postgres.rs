//! A server that has processes of its own.

use std::path::Path;

use testbed::postgres::Setup;
use testbed::{BOUND, eventually, within};

/// Its processes are stopped with it, and must not outlive it.
#[tokio::test]
async fn stopped_server_leaves_no_process_when_dropped() {
    let server = within(BOUND, "it serves", Setup::new().start()).await.unwrap();
    server.stop().await.unwrap();
    let pids = server.pids().unwrap();
    assert!(pids.len() > 1, "it has processes of its own");
    drop(server);
    let lives = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
    eventually("all have ended", async || !pids.iter().any(lives)).await;
}
