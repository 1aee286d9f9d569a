//! The number that the namespace adds to every counter, and raising it.

use std::sync::Arc;

use etcd_client::{Compare, CompareOp, GetOptions, KeyValue, Txn, TxnOp};
use leasehold_core::Result;
use leasehold_core::backend::TokenBase;

use crate::keys::{Keyspace, base};
use crate::session::{Sessions, gets, revision};

impl Sessions {
    /// The base, and the sessions that live, as of one moment.
    pub(crate) async fn read_base(self: &Arc<Self>) -> Result<TokenBase> {
        let (begin, end) = self.keys.sessions();
        let all = GetOptions::new().with_range(end);
        let reads = [TxnOp::get(self.keys.token_base(), None), TxnOp::get(begin, Some(all))];
        let answer = self.endpoints.txn(Txn::new().and_then(reads)).await?;
        let [stored, sessions] = gets(&answer)?;
        let own = self.own_lease();
        let adding = sessions.kvs().iter().filter(|kv| kv.value() != Keyspace::MOVES.as_bytes());
        let leases = adding.filter_map(|kv| self.keys.lease_of(kv.key()));
        // Every later grant has a later revision.
        let floor = revision(&answer)?.unsigned_abs();
        let others = leases.filter(|lease| Some(*lease) != own).count();
        let base = base(stored.kvs().first().map(KeyValue::value))?;
        Ok(TokenBase::new(base, floor, Some(others)))
    }

    /// Makes the base `at_least` that large.
    pub(crate) async fn raise_base(self: &Arc<Self>, at_least: u64) -> Result<()> {
        let key = self.keys.token_base();
        loop {
            let answer = self.endpoints.get(key.clone(), GetOptions::new()).await?;
            let there = answer.kvs().first();
            if at_least <= base(there.map(KeyValue::value))? {
                return Ok(());
            }
            let seen = there.map_or(0, KeyValue::mod_revision);
            let same = Compare::mod_revision(key.clone(), CompareOp::Equal, seen);
            let put = TxnOp::put(key.clone(), at_least.to_string(), None);
            if self.endpoints.txn(Txn::new().when([same]).and_then([put])).await?.succeeded() {
                return Ok(());
            }
            // RACE: another client has written it, or an earlier attempt of this call whose reply was lost.
        }
    }
}
