//! etcd's own lock, asked for twice with one lease.

use std::time::Duration;

use etcd_client::{Client, LockOptions};
use testbed::etcd::Etcd;
use tokio::time::timeout;

use super::finding::Finding;
use crate::error::{Error, Result};

pub(super) async fn asked_twice() -> Result<Finding> {
    const DOING: &str = "asking etcd";
    let etcd = Etcd::start().await.map_err(Error::during("starting an etcd"))?;
    let endpoint = etcd.url().replacen("etcd", "http", 1);
    let mut client = Client::connect([endpoint], None).await.map_err(Error::during(DOING))?;
    let lease = client.lease_grant(60, None).await.map_err(Error::during(DOING))?.id();
    let locks = client.lock_client();
    let lock = async || locks.clone().lock("shared", Some(LockOptions::new().with_lease(lease))).await;
    lock().await.map_err(Error::during(DOING))?;
    match timeout(BOUND, lock()).await {
        Ok(again) => {
            again.map_err(Error::during(DOING))?;
            Ok(Finding::seen("it was held twice at once", true))
        }
        Err(_elapsed) => Ok(Finding::seen("the second had to wait", false)),
    }
}

const BOUND: Duration = Duration::from_secs(5);
