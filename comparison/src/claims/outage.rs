//! Redis servers that are down: one of one, one of three, two of three.

use std::path::Path;
use std::time::Duration;

use futures_util::FutureExt;
use testbed::redis::{Server, Settings};

use super::{Experiment, Finding};
use crate::driver::Worker;
use crate::error::{Error, Result};
use crate::implementation::Implementation;

pub(super) fn experiments(room: &Path, redlock: Option<Implementation>) -> Vec<Experiment<'_>> {
    let mut experiments = vec![Experiment {
        claim: "A single Redis that is down stops everybody",
        source: "common comparisons of lock stores",
        outcome: single(room).boxed(),
    }];
    if let Some(redlock) = redlock {
        experiments.push(Experiment {
            claim: "Redlock needs three servers to survive the loss of one",
            source: "Redis's documentation of distributed locks",
            outcome: quorum(room, redlock).boxed(),
        });
    }
    experiments
}

async fn server() -> Result<Server> {
    Settings::new().start().await.map_err(Error::during("starting a Redis"))
}

async fn single(room: &Path) -> Result<Finding> {
    let mut server = server().await?;
    let mut worker = Worker::start(&Implementation::OURS, &[server.url()], room).await?;
    worker.open(1, TTL).await?;
    server.kill().await.map_err(Error::during("killing Redis"))?;

    let asked = contender_protocol::now();
    let refused = worker.acquire("outage", BOUND).await;
    let waited = seconds(contender_protocol::now() - asked);
    server.start_again().await.map_err(Error::during("starting Redis again"))?;
    let back = contender_protocol::now();
    let again = loop {
        if let Ok(held) = worker.acquire("outage", BOUND).await {
            break seconds(held.at.saturating_sub(back));
        }
        if contender_protocol::now() - back > 10_000_000_000 {
            return Err(Error::new("no lock ten seconds after the server was back"));
        }
    };
    let holds = refused.is_err();
    let told = refused.map_or_else(|error| format!("{error:#}"), |_held| "it was held".to_owned());
    Ok(Finding {
        measured: format!("after {waited}: {told}; {again} after it was back, the lock was held"),
        holds,
    })
}

async fn quorum(room: &Path, redlock: Implementation) -> Result<Finding> {
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(server().await?);
    }
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let mut worker = Worker::start(&redlock, &urls, room).await?;
    worker.open(1, TTL).await?;
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
    Ok(Finding {
        measured: format!("{}: {}", redlock.name(), told.join(", ")),
        holds: held == [true, true, false],
    })
}

fn seconds(nanos: u64) -> String {
    format!("{:.1} s", nanos as f64 / 1e9)
}

const TTL: Duration = Duration::from_secs(6);

/// Who has no lock after that gets none.
const BOUND: Duration = Duration::from_secs(6);
