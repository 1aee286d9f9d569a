//! Requesting that a holder releases, and deleting its entry.

use std::time::Duration;

use etcd_client::{Compare, CompareOp, KeyValue, Txn, TxnOp};
use futures_util::stream::{self, StreamExt};
use leasehold_core::backend::{Holder, Revoke};
use leasehold_core::{LockName, Result};

use crate::keys::{HolderNote, grace_of, message};
use crate::session::{Sessions, gets, put_on_lease};

impl Sessions {
    /// Sends every holder the request to release, or deletes their entries; returns the holders. A request that cannot be
    /// sent stops no other.
    ///
    /// # Cancel safety
    ///
    /// A request that was sent stays.
    pub(crate) async fn revoke(&self, name: &LockName, how: Revoke) -> Result<Vec<Holder>> {
        let (held, _) = self.holders(name).await?;
        let revoke = async |held: &KeyValue| match how {
            Revoke::Ask { grace } => self.ask_to_let_go(held, grace).await,
            Revoke::Force => self.take_away(name, held).await,
        };
        let revocations: Vec<_> = held.iter().map(revoke).collect();
        let revoked: Vec<_> = stream::iter(revocations).buffered(AT_ONCE).collect().await;
        revoked.into_iter().collect::<Result<()>>()?;
        Ok(held.iter().map(|held| self.holder(held)).collect())
    }

    /// Deletes the holder's entry, and notifies the holder.
    async fn take_away(&self, name: &LockName, held: &KeyValue) -> Result<()> {
        let same = Compare::create_revision(held.key(), CompareOp::Equal, held.create_revision());
        let delete = TxnOp::delete(held.key(), None);
        self.endpoints.txn(Txn::new().when([same]).and_then([delete])).await?;
        if let Err(error) = self.ask_to_let_go(held, Duration::ZERO).await {
            let error = format!("{error:#}");
            tracing::warn!(lock = %name, ?error, "holder not notified of its forced revocation");
        }
        Ok(())
    }

    /// Puts a message into the holder's inbox, on the holder's lease: it ends with the session. A message that is there
    /// stays if its grace is no longer.
    async fn ask_to_let_go(&self, held: &KeyValue, grace: Duration) -> Result<()> {
        // Foreign clients read no messages.
        if held.lease() == 0 || HolderNote::from_bytes(held.value()).is_none() {
            return Ok(());
        }
        let inbox = self.keys.inbox(held.lease(), held.create_revision());
        let mut seen = 0;
        loop {
            let same = Compare::mod_revision(inbox.clone(), CompareOp::Equal, seen);
            let put = put_on_lease(held.lease(), inbox.clone(), message(grace));
            let txn = Txn::new().when([same]).and_then([put]).or_else([TxnOp::get(inbox.clone(), None)]);
            let answer = match self.endpoints.txn(txn).await {
                // Its session has ended, and the hold with it.
                Err(error) if error.lost_reason().is_some() => return Ok(()),
                answer => answer?,
            };
            if answer.succeeded() {
                return Ok(());
            }
            let [there] = gets(&answer)?;
            let there = there.kvs().first();
            if there.is_some_and(|there| grace_of(there.value()) <= grace) {
                return Ok(());
            }
            seen = there.map_or(0, KeyValue::mod_revision);
        }
    }
}

/// So many requests are sent at the same time.
const AT_ONCE: usize = 64;
