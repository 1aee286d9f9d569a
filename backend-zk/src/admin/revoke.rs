//! Revocation: requests the release of a lock from its holders, or deletes their nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join;
use futures_util::stream::{self, StreamExt};
use leasehold_core::backend::{Holder, Revoke};
use leasehold_core::{LockName, Result};
use zookeeper_client::Error as ZkError;

use super::inspect::{AT_ONCE, Holding};
use crate::error::{Answered, Explain, Unanswered};
use crate::keys;
use crate::protocol::with_message;
use crate::session::Session;

impl Holding {
    /// Named like the nodes of Curator and of this crate, and not written by this crate.
    fn is_curators(&self) -> bool {
        is_of_a_lock(self.child()) && self.note.holder.ttl.is_none()
    }
}

impl Session {
    /// Requests the release of `name` from every holder, or deletes all their nodes, and returns the holders. A failed request
    /// does not prevent the others.
    pub(crate) async fn revoke(&self, name: &LockName, how: Revoke) -> Result<Vec<Holder>> {
        let (holding, _) = self.holding(name).await.or_not("revoke a lock")?;
        let mut sessions = BTreeMap::<i64, Vec<&Holding>>::new();
        for holder in &holding {
            sessions.entry(holder.stat.ephemeral_owner).or_default().push(holder);
        }
        let grace = if let Revoke::Ask { grace } = how { grace } else { Duration::ZERO };
        let asks = sessions.iter().map(|(session, holders)| self.ask(*session, holders, grace)).collect();
        let asked = all(asks).await;
        let done = match how {
            Revoke::Ask { .. } => asked,
            // Force also deletes the node of a holder whose request failed.
            Revoke::Force => all(holding.iter().map(|holder| self.take_away(holder)).collect()).await,
        };
        done.or_not("revoke a lock")?;
        let found = holding.into_iter().map(|holding| {
            let was_asked = holding.is_curators();
            let mut holder = self.holder(holding.note, &holding.stat)?;
            holder.foreign &= !was_asked;
            Ok(holder)
        });
        found.collect()
    }

    async fn take_away(&self, holder: &Holding) -> Answered<()> {
        self.connection.delete(&holder.path).await.if_there().map(drop)
    }

    /// Adds messages to the inbox of the session that made these nodes, all at once. Foreign clients have no inbox, but
    /// Curator's holders may watch for the word of its `Revoker` in their nodes.
    async fn ask(&self, session: i64, holders: &[&Holding], grace: Duration) -> Answered<()> {
        let (inbox, door) = (self.site.namespace.inbox(session), self.site.namespace.session(session));
        loop {
            let Some((data, stat)) = self.connection.read_if_there(&inbox).await? else {
                for holder in holders.iter().filter(|holder| holder.is_curators()) {
                    self.connection.write(&holder.path, keys::REVOKE, None).await.if_there()?;
                }
                return Ok(());
            };
            let add = |data: Vec<u8>, holder: &&Holding| with_message(&data, holder.stat.czxid, grace);
            let data = holders.iter().fold(data, add);
            let written = self.connection.write(&inbox, &data, Some(stat.version));
            // The next renewal notices the second write if the watch on the first was lost.
            match join(written, self.connection.write(&door, &[], None)).await.0 {
                // Another administrator was faster: add to its requests.
                Err(Unanswered::Refused(ZkError::BadVersion)) => {}
                written => return written.if_there().map(drop),
            }
        }
    }
}

/// Carries out all of them, also if some fail, and returns the first failure.
async fn all(of_many: Vec<impl Future<Output = Answered<()>>>) -> Answered<()> {
    let done: Vec<_> = stream::iter(of_many).buffered(AT_ONCE).collect().await;
    done.into_iter().collect()
}

/// Whether a node is one of Curator's locks, plain or for readers and writers. The data of its other recipes is not
/// overwritten.
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
