//! Names that are prefixes of others, in etcd.

use std::path::Path;
use std::time::Duration;

use futures_util::FutureExt;
use testbed::etcd::Etcd;

use super::{Experiment, Finding};
use crate::driver::Worker;
use crate::error::{Error, Result};
use crate::implementation::Implementation;

pub(super) fn experiments(room: &Path, lock_rpc: Option<Implementation>) -> Vec<Experiment<'_>> {
    let mut experiments = vec![Experiment {
        claim: "Here, a holder of tenant/1 does not block tenant",
        source: "our guarantee G10",
        outcome: nested(room, Implementation::OURS, false).boxed(),
    }];
    if let Some(lock_rpc) = lock_rpc {
        experiments.push(Experiment {
            claim: "With etcd's own lock, a holder of tenant/1 blocks tenant",
            source: "reports by etcd's users",
            outcome: nested(room, lock_rpc, true).boxed(),
        });
    }
    experiments
}

async fn nested(room: &Path, who: Implementation, expected: bool) -> Result<Finding> {
    let etcd = Etcd::start().await.map_err(Error::during("starting an etcd"))?;
    let urls = [etcd.url()];
    let (mut inner, mut outer) =
        (Worker::start(&who, &urls, room).await?, Worker::start(&who, &urls, room).await?);
    inner.open(1, TTL).await?;
    outer.open(1, TTL).await?;
    inner.acquire("tenant/1", BOUND).await?;
    let asked = contender_protocol::now();
    let (told, blocked) = match outer.acquire("tenant", BOUND).await {
        Ok(held) => (format!("held after {:.1} ms", held.at.saturating_sub(asked) as f64 / 1e6), false),
        Err(_waits) => (format!("not held after {} s", BOUND.as_secs()), true),
    };
    Ok(Finding { measured: format!("{}: tenant was {told}", who.name()), holds: blocked == expected })
}

const TTL: Duration = Duration::from_secs(15);

const BOUND: Duration = Duration::from_secs(5);
