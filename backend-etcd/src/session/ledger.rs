//! The ledger of a namespace: the record of a move to another store, and its participants.
//!
//! The record is a key, and its version the revision that wrote it. A participant's entry is a key on its session's lease.
//! Reads are linearizable, and every write is sent once, so no copy of it contradicts the reply.

use async_trait::async_trait;
use etcd_client::{Compare, CompareOp, GetOptions, KeyValue, Txn, TxnOp};
use leasehold_core::backend::Lease;
use leasehold_core::backend::ledger::{Entry, MoveLedger, Participant, Written, fits, readable};
use leasehold_core::{OwnerId, Result};

use super::Open;
use super::requests::{put_on_lease, revision};

#[async_trait]
impl MoveLedger for Open {
    async fn read(&self) -> Result<Option<Entry>> {
        let sessions = self.unless_closed()?;
        let answer = sessions.endpoints.get(sessions.keys.record(), GetOptions::new()).await?;
        let entry =
            |kv: &KeyValue| Entry { version: kv.mod_revision().unsigned_abs(), value: kv.value().to_vec() };
        Ok(answer.kvs().first().map(entry))
    }

    async fn write(&self, expected: Option<u64>, value: &[u8]) -> Result<Written> {
        fits(value)?;
        // A key that does not exist has revision 0, and no other has.
        let there = |version| i64::try_from(version).ok().filter(|version| *version > 0);
        let Some(expected) = expected.map_or(Some(0), there) else {
            return Ok(Written::Conflict);
        };
        let sessions = self.unless_closed()?;
        let key = sessions.keys.record();
        let same = Compare::mod_revision(key.clone(), CompareOp::Equal, expected);
        let put = TxnOp::put(key, value, None);
        let answer = sessions.session().await?.txn(Txn::new().when([same]).and_then([put])).await?;
        if !answer.succeeded() {
            return Ok(Written::Conflict);
        }
        Ok(Written::Done(revision(&answer)?.unsigned_abs()))
    }

    async fn sign(&self, member: OwnerId, value: &[u8]) -> Result<Lease> {
        fits(value)?;
        let session = self.unless_closed()?.session().await?;
        let put = put_on_lease(session.lease, session.sessions.keys.member(member), value);
        session.txn(Txn::new().and_then([put])).await?;
        Ok(session.lease())
    }

    async fn unsign(&self, member: OwnerId) -> Result<()> {
        let sessions = self.unless_closed()?;
        let delete = TxnOp::delete(sessions.keys.member(member), None);
        sessions.session().await?.txn(Txn::new().and_then([delete])).await.map(drop)
    }

    async fn members(&self) -> Result<Vec<Participant>> {
        let sessions = self.unless_closed()?;
        let members = sessions.keys.members();
        let counting = GetOptions::new().with_prefix().with_count_only();
        let count = sessions.endpoints.get(members.clone(), counting).await?.count();
        readable(usize::try_from(count).unwrap_or(usize::MAX))?;
        let read = sessions.read_all(&members).await?;
        let member = |kv: &KeyValue| {
            let id = kv.key().strip_prefix(members.as_slice()).map(std::str::from_utf8)?;
            Some(Participant { id: OwnerId::from_hex(id.ok()?)?, value: kv.value().to_vec() })
        };
        Ok(read.iter().filter_map(member).collect())
    }
}
