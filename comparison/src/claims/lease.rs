//! A lock without a lease, whose holder is gone.

use std::time::Duration;

use futures_util::FutureExt;
use testbed::redis::{Reply, Settings};

use super::{Experiment, Finding};
use crate::error::{Error, Result};

pub(super) fn experiments() -> Vec<Experiment<'static>> {
    vec![Experiment {
        claim: "Without a lease, the lock of a holder that was killed stays for ever",
        source: "common comparisons of lock stores",
        outcome: unleased().boxed(),
    }]
}

/// `SET … NX` without an expiry. What was measured with one is the scenario `crash`.
async fn unleased() -> Result<Finding> {
    const DOING: &str = "asking Redis";
    let server = Settings::new().start().await.map_err(Error::during("starting a Redis"))?;
    let mut holder = server.client().await.map_err(Error::during(DOING))?;
    holder.command(&["SET", "lock", "holder", "NX"]).await.map_err(Error::during(DOING))?;
    // To the server, a client that was killed is a connection that ends.
    drop(holder);
    tokio::time::sleep(LATER).await;
    let next = server.command(&["SET", "lock", "next", "NX"]).await.map_err(Error::during(DOING))?;
    let ttl = server.command(&["PTTL", "lock"]).await.map_err(Error::during(DOING))?;
    let holds = next == Reply::Nil && ttl.integer() == Some(-1);
    let told = if holds { "it was held still, and has no expiry" } else { "it was free" };
    Ok(Finding { measured: format!("{} s after the kill {told}", LATER.as_secs()), holds })
}

const LATER: Duration = Duration::from_secs(8);
