//! The holders of locks, and how many wait.

use futures_util::future::{OptionFuture, join};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use leasehold_core::backend::LockState;
use leasehold_core::{LockName, Result};
use zookeeper_client::Stat;

use crate::error::{Answered, Explain};
use crate::keys::{Note, decoded};
use crate::session::{Directory, Session};

/// A contender that holds a lock.
#[derive(Clone, Debug)]
pub(crate) struct Holding {
    pub(super) path: String,
    pub(crate) note: Note,
    pub(crate) stat: Stat,
}

impl Holding {
    pub(crate) fn child(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

impl Session {
    /// The holders of `name`, and how many wait.
    pub(crate) async fn inspect(&self, name: LockName) -> Result<LockState> {
        let (holding, waiting) = self.holding(&name).await.or_not("show a lock")?;
        self.state(name, holding, waiting)
    }

    /// The same for a watch: one request, and one for each holder that it has not read yet. The state of the session's server
    /// never goes back, so only a new stream needs the leader.
    pub(crate) async fn inspect_for_watch(&self, name: LockName, is_new: bool) -> Result<LockState> {
        let seen = self.seen.of(&name);
        let catches_up = is_new || seen.changed.is_none();
        let (directory, waiting) = self.read(&name, &seen, catches_up).await.or_not("show a lock")?;
        self.seen.keep(&name, directory.clone());
        self.state(name, directory.holding, waiting)
    }

    fn state(&self, name: LockName, holding: Vec<Holding>, waiting: usize) -> Result<LockState> {
        let holder = |holding: Holding| self.holder(holding.note, &holding.stat);
        let holders: Vec<_> = holding.into_iter().map(holder).collect::<Result<_>>()?;
        Ok(LockState::new(name, holders, waiting))
    }

    /// The locks that begin with `prefix` and have contenders, in order.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        let root = self.site.namespace.node();
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

    /// The holders of `name` in the order of arrival, as the leader knows them, and how many wait.
    pub(super) async fn holding(&self, name: &LockName) -> Answered<(Vec<Holding>, usize)> {
        let (directory, waiting) = self.read(name, &Directory::default(), true).await?;
        Ok((directory.holding, waiting))
    }

    /// The same; as the leader knows them if it `catches_up`, and without reading the `seen` ones again.
    async fn read(
        &self,
        name: &LockName,
        seen: &Directory,
        catches_up: bool,
    ) -> Answered<(Directory, usize)> {
        let directory = self.site.namespace.directory(name);
        for _ in 0..LOOKS {
            let caught_up = OptionFuture::from(catches_up.then(|| self.connection.catch_up(&directory)));
            let (_, listed) = join(caught_up, self.connection.list_at(&directory)).await;
            // A missing directory equals an earlier missing one.
            let (mut listing, changed) = listed.if_there()?.unwrap_or_default();
            for _ in 0..LOOKS {
                let names: Vec<_> = listing.holding().into_iter().map(str::to_owned).collect();
                let waiting = listing.contenders().len() - names.len();
                let known = |child: &String| seen.find(child, Some(changed)).cloned();
                let known: Vec<_> = names.iter().map(|child| (known(child), child.clone())).collect();
                let reads =
                    known.into_iter().map(|(known, child)| self.known_or_read(known, &directory, child));
                let read: Vec<_> = stream::iter(reads).buffered(AT_ONCE).try_collect().await?;
                let holding: Vec<_> = read.into_iter().flatten().collect();
                // One holder that is still there is enough: the others have waited for any of them.
                if names.is_empty() || !holding.is_empty() {
                    return Ok((Directory { changed: Some(changed), holding, tried: None }, waiting));
                }
                // If all have left between the two requests, the next contenders hold.
                listing = listing.without(&names);
            }
        }
        // The holders change faster than they can be read.
        Ok((Directory::default(), 0))
    }

    async fn known_or_read(
        &self,
        known: Option<Holding>,
        directory: &str,
        child: String,
    ) -> Answered<Option<Holding>> {
        if known.is_some() { Ok(known) } else { self.read_holding(directory, child).await }
    }

    pub(crate) async fn read_holding(&self, directory: &str, name: String) -> Answered<Option<Holding>> {
        let path = format!("{directory}/{name}");
        let read = self.connection.read_if_there(&path).await?;
        Ok(read.map(|(data, stat)| Holding { note: Note::decoded(&name, &data), path, stat }))
    }
}

/// How many listings, and how many sets of holders of each, are tried for one that stays.
const LOOKS: usize = 3;
/// How many locks or sessions are read in one flight.
pub(super) const AT_ONCE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::KnownHolders;

    fn holding(child: &str) -> Holding {
        let stat = Stat {
            czxid: 1,
            mzxid: 1,
            pzxid: 1,
            ctime: 0,
            mtime: 0,
            version: 0,
            cversion: 0,
            aversion: 0,
            ephemeral_owner: 1,
            data_length: 0,
            num_children: 0,
        };
        Holding { path: format!("/a/{child}"), note: Note::decoded(child, b""), stat }
    }

    #[test]
    fn a_try_keeps_what_a_watch_has_read() {
        let (seen, name) = (KnownHolders::default(), LockName::new("a").unwrap());
        let read = Directory { changed: Some(7), holding: vec![holding("lock-1")], tried: None };
        seen.keep(&name, read);
        seen.keep_tried(&name, holding("lock-2"));
        let known = seen.of(&name);
        assert!(known.find("lock-1", Some(7)).is_some() && known.find("lock-2", Some(7)).is_some());
        assert!(known.find("lock-1", Some(8)).is_none());
    }

    #[test]
    fn the_lock_that_was_kept_first_is_forgotten_first() {
        let seen = KnownHolders::default();
        let name = |number: usize| LockName::new(number.to_string()).unwrap();
        let keep = |number| {
            seen.keep(&name(number), Directory { changed: Some(1), ..Directory::default() });
        };
        (0..1_024).for_each(keep);
        keep(0);
        keep(1_024);
        let forgotten: Vec<_> =
            (0..=1_024).filter(|number| seen.of(&name(*number)).changed.is_none()).collect();
        assert_eq!(forgotten, [1]);
    }
}
