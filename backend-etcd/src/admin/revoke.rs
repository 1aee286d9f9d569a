//! Asking a holder to let go, and taking its entry away.

use std::time::Duration;

use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp};
use leasehold_core::backend::{Holder, Revoke};
use leasehold_core::{LockName, Result};

use crate::keys::{Record, message};
use crate::protocol::Revision;
use crate::session::Sessions;

/// A holder's entry, as a stranger sees it.
struct Held {
    key: Vec<u8>,
    create: Revision,
    lease: i64,
    /// Whether it is one of ours, which hears what it is asked.
    listens: bool,
    shown: Holder,
}

impl Sessions {
    /// Asks the holder to let go, or deletes its entry; whom it found.
    ///
    /// # Cancel safety
    ///
    /// What was asked stays asked.
    pub(crate) async fn revoke(&self, name: &LockName, how: Revoke) -> Result<Option<Holder>> {
        let Some(held) = self.held(name).await? else {
            return Ok(None);
        };
        match how {
            Revoke::Ask { grace } => self.ask_to_let_go(&held, grace).await?,
            Revoke::Force => self.take_away(name, &held).await?,
        }
        Ok(Some(held.shown))
    }

    async fn held(&self, name: &LockName) -> Result<Option<Held>> {
        let (first, _) = self.first(name).await?;
        Ok(first.map(|kv| Held {
            key: kv.key().to_vec(),
            create: kv.create_revision(),
            lease: kv.lease(),
            listens: Record::from_bytes(kv.value()).is_some(),
            shown: self.holder(&kv),
        }))
    }

    /// Deletes the holder's entry, and says so to the holder.
    async fn take_away(&self, name: &LockName, held: &Held) -> Result<()> {
        let same = Compare::create_revision(held.key.clone(), CompareOp::Equal, held.create);
        let delete = TxnOp::delete(held.key.clone(), None);
        self.endpoints.txn(Txn::new().when([same]).and_then([delete])).await?;
        if let Err(error) = self.ask_to_let_go(held, Duration::ZERO).await {
            tracing::warn!(lock = %name, %error, "taken away by force, and its holder could not be told");
        }
        Ok(())
    }

    /// Leaves a message in the holder's inbox, on the holder's lease: it ends with the session.
    async fn ask_to_let_go(&self, held: &Held, grace: Duration) -> Result<()> {
        if !held.listens || held.lease == 0 {
            return Ok(());
        }
        let on_lease = PutOptions::new().with_lease(held.lease);
        let put = TxnOp::put(self.keys.inbox(held.lease, held.create), message(grace), Some(on_lease));
        match self.endpoints.txn(Txn::new().and_then([put])).await {
            // Its session is over, and the hold with it.
            Err(error) if error.lost_reason().is_some() => Ok(()),
            other => other.map(drop),
        }
    }
}
