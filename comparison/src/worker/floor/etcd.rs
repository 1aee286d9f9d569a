//! etcd: one transaction that puts a key with a lease if it is not there, and one that deletes it if it
//! is ours.

use std::time::Duration;

use contender_protocol::{Failure, Session};
use etcd_client::{Client, Compare, CompareOp, PutOptions, Txn, TxnOp};

pub(super) struct Leased {
    client: Client,
    lease: i64,
}

pub(super) struct Held {
    key: String,
    revision: i64,
}

impl Session for Leased {
    type Lock = String;
    type Held = Held;

    const VERSION: &'static str = "etcd-client 0.21";

    async fn open(urls: &[String], _ttl: Duration) -> Result<Self, Failure> {
        let (client, lease) = leased(urls).await?;
        Ok(Self { client, lease })
    }

    async fn lock(&self, name: &str) -> Result<String, Failure> {
        Ok(format!("floor/{name}"))
    }

    async fn acquire(&self, key: &String) -> Result<Held, Failure> {
        let put =
            TxnOp::put(key.as_str(), "0123456789abcdef", Some(PutOptions::new().with_lease(self.lease)));
        let free = Compare::create_revision(key.as_str(), CompareOp::Equal, 0);
        let answer = self.client.kv_client().txn(Txn::new().when([free]).and_then([put])).await?;
        match answer.header() {
            Some(header) if answer.succeeded() => Ok(Held { key: key.clone(), revision: header.revision() }),
            _ => Err(super::taken()),
        }
    }

    fn token(held: &Held) -> Option<u64> {
        Some(held.revision.cast_unsigned())
    }

    async fn release(&self, held: Held) -> Result<(), Failure> {
        leave(&self.client, held.key, held.revision).await
    }
}

/// A connection and a lease.
pub(super) async fn leased(urls: &[String]) -> Result<(Client, i64), Failure> {
    let endpoint = super::address(urls).split(',').next().unwrap_or_default();
    let mut client = Client::connect([format!("http://{endpoint}")], None).await?;
    let lease = client.lease_grant(LEASE_SECONDS, None).await?.id();
    Ok((client, lease))
}

/// Deletes the key, if it is the one of that revision.
pub(super) async fn leave(client: &Client, key: String, revision: i64) -> Result<(), Failure> {
    let mine = Compare::create_revision(key.as_str(), CompareOp::Equal, revision);
    let txn = Txn::new().when([mine]).and_then([TxnOp::delete(key, None)]);
    let answer = client.kv_client().txn(txn).await?;
    if answer.succeeded() { Ok(()) } else { Err(Failure::new("the key was not ours")) }
}

/// Longer than a comparison, as a floor renews nothing.
const LEASE_SECONDS: i64 = 3600;
