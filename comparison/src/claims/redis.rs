//! What is said of locks in Redis: majorities of servers, and locks without a lease.

use std::path::Path;
use std::time::Duration;

use testbed::redis::{Reply, Server, Settings};

use super::finding::Finding;
use crate::driver::Worker;
use crate::error::{Error, Result};
use crate::implementation::Implementation;

async fn server() -> Result<Server> {
    Settings::new().start().await.map_err(Error::during("starting a Redis"))
}

/// Three servers, and one more of them down each time.
pub(super) async fn quorum(room: &Path, redlock: &Implementation) -> Result<Finding> {
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(server().await?);
    }
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let mut worker = Worker::start(redlock, &urls, room).await?;
    worker.open(1, BOUND).await?;
    let mut told = Vec::new();
    let mut held = Vec::new();
    for (down, server) in servers.iter_mut().enumerate() {
        // The first stays, so as many are down as have had their turn before.
        if down > 0 {
            server.kill().await.map_err(Error::during("killing a Redis"))?;
        }
        let got = worker.acquire(&format!("quorum-{down}"), BOUND).await.is_ok();
        told.push(format!("{down} of 3 down: {}", if got { "held" } else { "not held" }));
        held.push(got);
        if got {
            worker.release().await?;
        }
    }
    Ok(Finding::seen(format!("{}: {}", redlock.name(), told.join(", ")), held == [true, true, false]))
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

/// Who has no lock after that gets none; also how long a lease is.
const BOUND: Duration = Duration::from_secs(6);

const LATER: Duration = Duration::from_secs(8);
