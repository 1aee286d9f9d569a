//! What is said of locks in Redis without a lease.

use std::time::Duration;

use testbed::redis::{Reply, Server, Settings};

use super::finding::Finding;
use crate::error::{Error, Result};

pub(super) async fn server() -> Result<Server> {
    Settings::new().start().await.map_err(Error::during("starting a Redis"))
}

/// `SET … NX` without an expiry. What was measured with one is the scenario `crash`.
pub(super) async fn unleased() -> Result<Finding> {
    const DOING: &str = "asking Redis";
    let server = server().await?;
    let mut holder = server.client().await.map_err(Error::during(DOING))?;
    holder.command(&["SET", "lock", "holder", "NX"]).await.map_err(Error::during(DOING))?;
    // To the server, a client that was killed is a connection that ends.
    drop(holder);
    tokio::time::sleep(LATER).await;
    let next = server.command(&["SET", "lock", "next", "NX"]).await.map_err(Error::during(DOING))?;
    let ttl = server.command(&["PTTL", "lock"]).await.map_err(Error::during(DOING))?;
    let holds = next == Reply::Nil && ttl.integer() == Some(-1);
    let told = if holds { "it was held still, and has no expiry" } else { "it was free" };
    Ok(Finding::seen(format!("{} s after the kill {told}", LATER.as_secs()), holds))
}

const LATER: Duration = Duration::from_secs(8);
