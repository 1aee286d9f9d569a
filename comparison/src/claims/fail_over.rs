//! A Redis primary is lost before its replica has heard of a grant: two clients hold the same lock, and
//! only the fence tells them apart.

use std::path::Path;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold::{FenceGate, FencingToken};
use testbed::redis::{Server, Settings};
use testbed::{Mode, Proxy};

use super::{Experiment, Finding};
use crate::driver::{Held, Worker};
use crate::error::{Error, Result};
use crate::implementation::Implementation;

pub(super) fn experiments(room: &Path) -> Vec<Experiment<'_>> {
    const SOURCE: &str = "Redis's documentation of distributed locks";
    vec![
        Experiment {
            claim: "A fail-over to a Redis replica can lose a lock",
            source: SOURCE,
            outcome: lost(room).boxed(),
        },
        Experiment {
            claim: "After a fail-over the fence refuses the old holder",
            source: "fencing tokens",
            outcome: refused(room).boxed(),
        },
        Experiment {
            claim: "A lock that waits for its replica is not granted while the replica is cut off",
            source: SOURCE,
            outcome: waited(room).boxed(),
        },
    ]
}

/// A primary whose replica hears nothing any more.
struct Pair {
    primary: Server,
    replica: Server,
    _cut: Proxy,
}

impl Pair {
    async fn start() -> Result<Self> {
        const DOING: &str = "starting a Redis with a replica";
        let primary = Settings::new().start().await.map_err(Error::during(DOING))?;
        let cut = Proxy::start(primary.addr()).map_err(Error::during(DOING))?;
        let replica = Settings::new().replica_of(cut.addr()).start().await.map_err(Error::during(DOING))?;
        replica.follows().await.map_err(Error::during(DOING))?;
        cut.set_both(Mode::Blackhole).await;
        Ok(Self { primary, replica, _cut: cut })
    }

    async fn fail_over(&mut self) -> Result<()> {
        const DOING: &str = "failing over";
        self.primary.kill().await.map_err(Error::during(DOING))?;
        self.replica.command(&["REPLICAOF", "NO", "ONE"]).await.map_err(Error::during(DOING))?;
        Ok(())
    }
}

async fn client(room: &Path, url: String) -> Result<Worker> {
    let mut worker = Worker::start(&Implementation::OURS, &[url], room).await?;
    worker.open(1, TTL).await?;
    Ok(worker)
}

/// Who held before the fail-over, and who after.
async fn both(room: &Path) -> Result<(Held, Held)> {
    let mut pair = Pair::start().await?;
    let mut before = client(room, pair.primary.url()).await?;
    let first = before.acquire("fail-over", BOUND).await?;
    pair.fail_over().await?;
    let mut after = client(room, pair.replica.url()).await?;
    let second = after.acquire("fail-over", BOUND).await?;
    Ok((first, second))
}

async fn lost(room: &Path) -> Result<Finding> {
    let (first, second) = both(room).await?;
    let between = Duration::from_nanos(second.at.saturating_sub(first.at));
    let told = format!("the second held {between:.1?} after the first, whose ttl is {TTL:?}");
    Ok(Finding { measured: told, holds: between < TTL })
}

async fn refused(room: &Path) -> Result<Finding> {
    let (first, second) = both(room).await?;
    let token = |held: Held| {
        let token = held.token.and_then(|token| FencingToken::new(token >> FencingToken::INDEX_BITS, 0));
        token.ok_or_else(|| Error::new("a grant came without a token"))
    };
    let (old, new) = (token(first)?, token(second)?);
    let gate = FenceGate::new();
    let admitted = gate.admit(new).is_ok();
    let told = match gate.admit(old) {
        Ok(()) => format!("token {old} was admitted after {new}"),
        Err(refused) => refused.to_string(),
    };
    Ok(Finding { holds: admitted && gate.admit(old).is_err(), measured: told })
}

async fn waited(room: &Path) -> Result<Finding> {
    let pair = Pair::start().await?;
    let mut worker = client(room, format!("{}?wait_replicas=1", pair.primary.url())).await?;
    let granted = worker.acquire("fail-over", BOUND).await;
    let holds = granted.is_err();
    Ok(Finding {
        measured: granted.map_or_else(|error| format!("{error:#}"), |_held| "it was held".to_owned()),
        holds,
    })
}

const TTL: Duration = Duration::from_secs(12);

const BOUND: Duration = Duration::from_secs(10);
