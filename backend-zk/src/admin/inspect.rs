//! Who holds what, and how many wait.

use futures_util::future::join;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use leasehold_core::backend::{Holder, LockState};
use leasehold_core::{LockName, Result};
use zookeeper_client::Stat;

use crate::error::{Answered, Explain};
use crate::keys::{Note, decoded};
use crate::session::Session;

/// The first contender of a lock.
pub(super) struct First {
    pub(super) path: String,
    pub(super) note: Note,
    pub(super) stat: Stat,
    behind: usize,
}

impl Session {
    /// Who holds `name` and how many wait.
    pub(crate) async fn inspect(&self, name: LockName) -> Result<LockState> {
        let first = self.first(&name).await.or_not("show a lock")?;
        let behind = first.as_ref().map_or(0, |first| first.behind);
        let holder = first.map(|first| self.holder(first)).transpose()?;
        Ok(LockState::new(name, holder, behind))
    }

    /// The locks that begin with `prefix` and have contenders, in order.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        let root = self.site.namespace.root();
        let root = if root.is_empty() { "/" } else { root };
        let (_, listed) = join(self.connection.catch_up(root), self.connection.list(root)).await;
        let listing = listed.or_not("list the locks")?;
        let names = listing.children().filter_map(decoded).filter(|name| name.as_str().starts_with(prefix));
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        let states = stream::iter(names.into_iter().map(|name| self.inspect(name))).buffered(AT_ONCE);
        let mut states: Vec<_> = states.try_collect().await?;
        states.retain(|state| state.holder().is_some());
        Ok(states)
    }

    pub(super) fn holder(&self, first: First) -> Result<Holder> {
        Ok(first.note.into_holder(self.counter(first.stat.czxid)?, first.stat.ctime))
    }

    /// The first contender of `name`, as the leader knows it.
    pub(super) async fn first(&self, name: &LockName) -> Answered<Option<First>> {
        let directory = self.site.namespace.directory(name);
        for _ in 0..LOOKS {
            let (_, listed) =
                join(self.connection.catch_up(&directory), self.connection.list(&directory)).await;
            let listing = listed.if_there()?.unwrap_or_default();
            let contenders = listing.contenders();
            if contenders.is_empty() {
                return Ok(None);
            }
            for (before, first) in contenders.iter().enumerate().take(LOOKS) {
                let path = format!("{directory}/{first}");
                // Where it left between the two requests, the next one has its place.
                if let Some((data, stat)) = self.connection.read_if_there(&path).await? {
                    let (note, behind) = (Note::decoded(first, &data), contenders.len() - 1 - before);
                    return Ok(Some(First { path, note, stat, behind }));
                }
            }
        }
        // Whoever has it leaves sooner than it takes to look.
        Ok(None)
    }
}

/// How many listings, and how many contenders of each, are looked at for one that stays.
const LOOKS: usize = 3;
/// How many locks are looked at in one flight.
const AT_ONCE: usize = 64;
