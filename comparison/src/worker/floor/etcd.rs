//! etcd: one transaction that puts a key with a lease if it is not there, and one that deletes it if it
//! is ours.

use std::time::Duration;

use contender_protocol::{Failure, Implementation, Session};
use etcd_client::{Client, Compare, CompareOp, GetOptions, PutOptions, Txn, TxnOp};

pub(in crate::worker) struct Etcd {
    endpoint: String,
}

impl Etcd {
    pub(super) fn new(address: &str) -> Self {
        Self { endpoint: format!("http://{}", address.split(',').next().unwrap_or_default()) }
    }
}

impl Implementation for Etcd {
    type Session = Leased;

    fn version(&self) -> String {
        "etcd-client 0.21".to_owned()
    }

    async fn open(&self, _ttl: Duration) -> Result<Leased, Failure> {
        let mut client = Client::connect([&self.endpoint], None).await?;
        let lease = client.lease_grant(LEASE_SECONDS, None).await?.id();
        Ok(Leased { client, lease })
    }
}

pub(in crate::worker) struct Leased {
    client: Client,
    lease: i64,
}

pub(in crate::worker) struct Held {
    key: String,
    revision: i64,
}

impl Session for Leased {
    type Lock = String;
    type Held = Held;

    async fn lock(&self, name: &str) -> Result<String, Failure> {
        Ok(format!("floor/{name}/"))
    }

    async fn acquire(&self, prefix: &String) -> Result<Held, Failure> {
        let key = format!("{prefix}{:x}", self.lease);
        let put =
            TxnOp::put(key.as_str(), "0123456789abcdef", Some(PutOptions::new().with_lease(self.lease)));
        let count = TxnOp::get(prefix.as_str(), Some(GetOptions::new().with_prefix().with_count_only()));
        let txn = Txn::new().when([Compare::create_revision(key.as_str(), CompareOp::Equal, 0)]);
        let answer = self.client.kv_client().txn(txn.and_then([put, count])).await?;
        let revision = answer.header().map(etcd_client::ResponseHeader::revision);
        match revision {
            Some(revision) if answer.succeeded() => Ok(Held { key, revision }),
            _ => Err(Failure::new("a floor does not wait")),
        }
    }

    fn token(held: &Held) -> Option<u64> {
        Some(held.revision.cast_unsigned())
    }

    async fn release(&self, held: Held) -> Result<(), Failure> {
        let mine = Compare::create_revision(held.key.as_str(), CompareOp::Equal, held.revision);
        let txn = Txn::new().when([mine]).and_then([TxnOp::delete(held.key, None)]);
        let answer = self.client.kv_client().txn(txn).await?;
        if answer.succeeded() { Ok(()) } else { Err(Failure::new("the key was not ours")) }
    }
}

/// Longer than a comparison, as a floor renews nothing.
const LEASE_SECONDS: i64 = 3600;
