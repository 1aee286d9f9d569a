//! To have a lock given up: its holders are asked, or it is taken away.

use std::time::Duration;

use futures_util::future::join;
use leasehold_core::backend::{Holder, Revoke};
use leasehold_core::{LockName, Result};
use zookeeper_client::Error as ZkError;

use super::inspect::Holding;
use crate::error::{Answered, Explain, Unanswered};
use crate::keys;
use crate::protocol::with_message;
use crate::session::Session;

impl Holding {
    /// Named as those of Curator's locks are and ours, and not written by us.
    fn is_curators(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        is_of_a_lock(name) && self.note.ttl.is_none()
    }
}

impl Session {
    /// Asks every holder of `name` to give it up, or takes it away from all; whom it found.
    pub(crate) async fn revoke(&self, name: &LockName, how: Revoke) -> Result<Vec<Holder>> {
        let (holding, _) = self.holding(name).await.or_not("revoke a lock")?;
        for holding in &holding {
            let done = match how {
                Revoke::Ask { grace } => self.ask(holding, grace).await,
                Revoke::Force => {
                    // Not told is no reason to leave it: that is what force is for.
                    let _ = self.ask(holding, Duration::ZERO).await;
                    self.connection.delete(&holding.path).await.if_there().map(drop)
                }
            };
            done.or_not("revoke a lock")?;
        }
        holding.into_iter().map(|holding| self.holder(holding)).collect()
    }

    /// Adds a message to the inbox of the session that made a node. Others than we have none; Curator's
    /// holders may look for the word of its `Revoker` in their nodes.
    async fn ask(&self, holder: &Holding, grace: Duration) -> Answered<()> {
        let session = holder.stat.ephemeral_owner;
        let (inbox, door) = (self.site.namespace.inbox(session), self.site.namespace.session(session));
        loop {
            let Some((data, stat)) = self.connection.read_if_there(&inbox).await? else {
                if holder.is_curators() {
                    self.connection.write(&holder.path, keys::REVOKE, None).await.if_there()?;
                }
                return Ok(());
            };
            let data = with_message(&data, holder.stat.czxid, grace);
            let written = self.connection.write(&inbox, &data, Some(stat.version));
            // The next renewal meets the second one, should nobody be told of the first.
            match join(written, self.connection.write(&door, &[], None)).await.0 {
                // Another administrator was faster: add to what they wrote.
                Err(Unanswered::Refused(ZkError::BadVersion)) => {}
                written => return written.if_there().map(drop),
            }
        }
    }
}

/// Whether a node is one of Curator's locks, plain or for readers and writers: what its other recipes keep
/// in their nodes is not ours to write over.
fn is_of_a_lock(name: &str) -> bool {
    let kinds = ["-lock-", "-__READ__", "-__WRIT__"];
    let named =
        name.strip_prefix("_c_").map(|name| name.trim_end_matches(|digit: char| digit.is_ascii_digit()));
    named.is_some_and(|named| kinds.iter().any(|kind| named.ends_with(kind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only nodes of Curator's locks are written into.
    #[test]
    fn locks_are_told_from_other_recipes() {
        for (name, is) in [
            ("_c_51e3f9c4-2c4c-4d0e-9c0e-8f3c1a5b7d21-lock-0000000007", true),
            ("_c_51e3f9c4-2c4c-4d0e-9c0e-8f3c1a5b7d21-__READ__0000000007", true),
            ("_c_51e3f9c4-2c4c-4d0e-9c0e-8f3c1a5b7d21-__WRIT__0000000007", true),
            ("_c_51e3f9c4-2c4c-4d0e-9c0e-8f3c1a5b7d21-latch-0000000007", false),
            ("_c_51e3f9c4-2c4c-4d0e-9c0e-8f3c1a5b7d21-lease-0000000007", false),
            ("_c_51e3f9c4-2c4c-4d0e-9c0e-8f3c1a5b7d21-lock-x-0000000007", false),
            ("51e3f9c42c4c4d0e9c0e8f3c1a5b7d21__lock__0000000007", false),
            ("lock-0000000007", false),
        ] {
            assert_eq!(is_of_a_lock(name), is, "{name}");
        }
    }
}
