//! Who holds what, and how many wait.

use futures_util::future::join;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use leasehold_core::backend::LockState;
use leasehold_core::{LockName, Result};
use zookeeper_client::Stat;

use crate::error::{Answered, Explain};
use crate::keys::{Note, decoded};
use crate::session::Session;

/// A contender that holds a lock.
pub(super) struct Holding {
    pub(super) path: String,
    pub(super) note: Note,
    pub(super) stat: Stat,
}

impl Session {
    /// Who holds `name` and how many wait.
    pub(crate) async fn inspect(&self, name: LockName) -> Result<LockState> {
        let (holding, waiting) = self.holding(&name).await.or_not("show a lock")?;
        let holder = |holding: Holding| self.holder(holding.note, &holding.stat);
        let holders: Vec<_> = holding.into_iter().map(holder).collect::<Result<_>>()?;
        Ok(LockState::new(name, holders, waiting))
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

    /// Those who hold `name`, in the order of arrival, as the leader knows them, and how many wait.
    pub(super) async fn holding(&self, name: &LockName) -> Answered<(Vec<Holding>, usize)> {
        let directory = self.site.namespace.directory(name);
        for _ in 0..LOOKS {
            let (_, listed) =
                join(self.connection.catch_up(&directory), self.connection.list(&directory)).await;
            let mut listing = listed.if_there()?.unwrap_or_default();
            for _ in 0..LOOKS {
                let names: Vec<_> = listing.holding().into_iter().map(str::to_owned).collect();
                let waiting = listing.contenders().len() - names.len();
                let reads = names.iter().cloned().map(|name| self.read_holding(&directory, name));
                let read: Vec<_> = stream::iter(reads).buffered(AT_ONCE).try_collect().await?;
                let holding: Vec<_> = read.into_iter().flatten().collect();
                // Whoever waits does so for any of those who hold.
                if names.is_empty() || !holding.is_empty() {
                    return Ok((holding, waiting));
                }
                // Where all have left between the two requests, the next ones have their place.
                listing = listing.without(&names);
            }
        }
        // Whoever has it leaves sooner than it takes to look.
        Ok((Vec::new(), 0))
    }

    async fn read_holding(&self, directory: &str, name: String) -> Answered<Option<Holding>> {
        let path = format!("{directory}/{name}");
        let read = self.connection.read_if_there(&path).await?;
        Ok(read.map(|(data, stat)| Holding { note: Note::decoded(&name, &data), path, stat }))
    }
}

/// How many listings, and how many contenders of each, are looked at for one that stays.
const LOOKS: usize = 3;
/// How many locks are looked at in one flight, or sessions asked.
pub(super) const AT_ONCE: usize = 64;
