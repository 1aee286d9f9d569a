//! What an administrator asks: who holds what, to have it given up, and how the ensemble stands.

mod diagnosis;
mod ensemble;

use std::time::Duration;

use futures_util::future::{join, join_all};
use lockcore::backend::{Holder, LockState, Revoke};
use lockcore::{LockName, Result};
use zookeeper_client::{Error as ZkError, Stat};

use crate::error::Unanswered;
use crate::keys::{Listing, Note, decoded};
use crate::protocol::with_message;
use crate::session::Session;
use crate::znode::Answered;

/// The first contender of a lock.
struct First {
    path: String,
    note: Note,
    stat: Stat,
    behind: usize,
}

impl First {
    /// Named as those of Curator's locks are and ours, and not written by us.
    fn is_curators(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        is_of_a_lock(name) && self.note.ttl.is_none()
    }
}

impl Session {
    /// Who holds `name` and how many wait.
    pub(crate) async fn inspect(&self, name: &LockName) -> Result<LockState> {
        let first = self.first(name).await.map_err(|unanswered| unanswered.into_error("show a lock"))?;
        let behind = first.as_ref().map_or(0, |first| first.behind);
        let holder = first.map(|first| self.holder(first)).transpose()?;
        Ok(LockState::new(name.clone(), holder, behind))
    }

    /// The locks that begin with `prefix` and have contenders, in order.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        let root = self.namespace.root();
        let root = if root.is_empty() { "/" } else { root };
        let (_, listed) = join(self.connection.catch_up(root), self.connection.list(root)).await;
        let listing = listed.map_err(|unanswered| unanswered.into_error("list the locks"))?;
        let names = listing.children().filter_map(decoded).filter(|name| name.as_str().starts_with(prefix));
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        let mut states = Vec::new();
        for some in names.chunks(AT_ONCE) {
            for state in join_all(some.iter().map(|name| self.inspect(name))).await {
                states.push(state?);
            }
        }
        states.retain(|state| state.holder.is_some());
        Ok(states)
    }

    /// Asks the holder of `name` to give it up, or takes it away; whom it found.
    pub(crate) async fn revoke(&self, name: &LockName, how: Revoke) -> Result<Option<Holder>> {
        let failed = |unanswered: Unanswered| unanswered.into_error("revoke a lock");
        let Some(first) = self.first(name).await.map_err(failed)? else {
            return Ok(None);
        };
        match how {
            Revoke::Ask { grace } => self.ask(&first, grace).await.map_err(failed)?,
            Revoke::Force => {
                // Not told is no reason to leave it: that is what force is for.
                let _ = self.ask(&first, Duration::ZERO).await;
                match self.connection.delete(&first.path).await {
                    Err(unanswered) if !unanswered.is_absent() => return Err(failed(unanswered)),
                    _ => {}
                }
            }
        }
        self.holder(first).map(Some)
    }

    /// Adds a message to the inbox of the session that made a node. Others than we have none; Curator's
    /// holders may look for the word of its `Revoker` in their nodes.
    async fn ask(&self, holder: &First, grace: Duration) -> Answered<()> {
        let session = holder.stat.ephemeral_owner;
        let (inbox, door) = (self.namespace.inbox(session), self.namespace.session(session));
        loop {
            let (data, stat) = match self.connection.read(&inbox).await {
                Ok(read) => read,
                Err(missing) if missing.is_absent() && holder.is_curators() => {
                    return match self.connection.write(&holder.path, REVOKE, None).await {
                        Err(unanswered) if !unanswered.is_absent() => Err(unanswered),
                        _ => Ok(()),
                    };
                }
                Err(missing) if missing.is_absent() => return Ok(()),
                Err(unanswered) => return Err(unanswered),
            };
            let data = with_message(&data, holder.stat.czxid, grace);
            let written = self.connection.write(&inbox, &data, Some(stat.version));
            // The next renewal meets the second one, should nobody be told of the first.
            match join(written, self.connection.write(&door, &[], None)).await.0 {
                Ok(_) => return Ok(()),
                // Another administrator was faster: add to what they wrote.
                Err(Unanswered::Refused(ZkError::BadVersion)) => {}
                Err(missing) if missing.is_absent() => return Ok(()),
                Err(unanswered) => return Err(unanswered),
            }
        }
    }

    fn holder(&self, first: First) -> Result<Holder> {
        Ok(first.note.into_holder(self.counter(first.stat.czxid)?, first.stat.ctime))
    }

    /// The first contender of `name`, as the leader knows it.
    async fn first(&self, name: &LockName) -> Answered<Option<First>> {
        let directory = self.namespace.directory(name);
        for _ in 0..LOOKS {
            let (_, listed) =
                join(self.connection.catch_up(&directory), self.connection.list(&directory)).await;
            let listing: Listing = match listed {
                Ok(listing) => listing,
                Err(missing) if missing.is_absent() => return Ok(None),
                Err(unanswered) => return Err(unanswered),
            };
            let contenders = listing.contenders();
            if contenders.is_empty() {
                return Ok(None);
            }
            for (before, first) in contenders.iter().enumerate().take(LOOKS) {
                let path = format!("{directory}/{first}");
                match self.connection.read(&path).await {
                    Ok((data, stat)) => {
                        let (note, behind) = (Note::decoded(&data), contenders.len() - 1 - before);
                        return Ok(Some(First { path, note, stat, behind }));
                    }
                    // It left between the two requests: the next one has its place.
                    Err(gone) if gone.is_absent() => {}
                    Err(unanswered) => return Err(unanswered),
                }
            }
        }
        // Whoever has it leaves sooner than it takes to look.
        Ok(None)
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

/// What Curator's `Revoker` writes into the node of a holder.
const REVOKE: &[u8] = b"__REVOKE__";
/// How many listings, and how many contenders of each, are looked at for one that stays.
const LOOKS: usize = 3;
/// How many locks are looked at in one flight.
const AT_ONCE: usize = 64;

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
