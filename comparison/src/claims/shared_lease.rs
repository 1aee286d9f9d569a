//! etcd's own lock, asked for twice with one lease.

use std::time::Duration;

use etcd_client::{Client, LockOptions};
use futures_util::FutureExt;
use testbed::etcd::Etcd;
use tokio::time::timeout;

use super::{Experiment, Finding};
use crate::error::{Error, Result};

pub(super) fn experiments() -> Vec<Experiment<'static>> {
    vec![Experiment {
        claim: "etcd's Lock RPC grants a held lock again to the same lease",
        source: "reports by etcd's users",
        outcome: asked_twice().boxed(),
    }]
}

async fn asked_twice() -> Result<Finding> {
    const DOING: &str = "asking etcd";
    let etcd = Etcd::start().await.map_err(Error::during("starting an etcd"))?;
    let endpoint = etcd.url().replacen("etcd", "http", 1);
    let mut client = Client::connect([endpoint], None).await.map_err(Error::during(DOING))?;
    let lease = client.lease_grant(60, None).await.map_err(Error::during(DOING))?.id();
    let locks = client.lock_client();
    let lock = async || locks.clone().lock("shared", Some(LockOptions::new().with_lease(lease))).await;
    lock().await.map_err(Error::during(DOING))?;
    let (told, held) = match timeout(BOUND, lock()).await {
        Ok(again) => {
            again.map_err(Error::during(DOING))?;
            ("it was held twice at once", true)
        }
        Err(_elapsed) => ("the second had to wait", false),
    };
    Ok(Finding { measured: told.to_owned(), holds: held })
}

const BOUND: Duration = Duration::from_secs(5);
