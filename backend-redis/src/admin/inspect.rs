//! The holders of locks, and the number of waiters.

use std::collections::BTreeSet;

use futures_util::future::try_join_all;
use leasehold_core::backend::LockState;
use leasehold_core::{ErrorKind, LockName, Result};
use redis::{Cmd, Value};

use crate::cluster::{HashSlot, SlotMap};
use crate::error;
use crate::scripts::{self, Shown, number, parts, text};
use crate::session::Session;

impl Session {
    pub(crate) async fn inspect(&self, name: &LockName) -> Result<LockState> {
        self.life.open_or_refuse()?;
        let states = self.states(std::slice::from_ref(name)).await?;
        states.into_iter().next().ok_or_else(|| error::unexpected("about a name"))
    }

    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        self.life.open_or_refuse()?;
        // With a format, foreign clients may have left keys of names that leasehold does not lock.
        let lockable = |key: &str| self.keys.name_of(key).filter(|name| self.keys.of(name).is_ok());
        let mut names = BTreeSet::new();
        let mut map = self.slots().await?;
        for is_first in [true, false] {
            for link in self.fleet.primaries() {
                let ask = |scan| {
                    let link = &link;
                    async move {
                        let give_up_at = self.give_up_at();
                        link.connected(give_up_at).await?.ask(&scan, give_up_at).await
                    }
                };
                names.append(&mut names_by(&self.keys.pattern(prefix), prefix, lockable, ask).await?);
            }
            // A name that has moved meanwhile may have been at neither server.
            let before = map;
            map = self.slots().await?;
            if map == before || !is_first {
                break;
            }
        }
        let mut states = self.states(&names.into_iter().collect::<Vec<_>>()).await?;
        // A name that was used lately has a counter, and no more.
        states.retain(|state| state.holder().is_some() || state.contenders > 0);
        Ok(states)
    }

    /// Where the slots are now, in a cluster.
    async fn slots(&self) -> Result<Option<SlotMap>> {
        match self.fleet.cluster() {
            None => Ok(None),
            Some(cluster) => cluster.refreshed().await.map(Some),
        }
    }

    /// The states of `names`, a few at a time.
    ///
    /// A name whose keys are something else is left out, if it is not the only one.
    async fn states(&self, names: &[LockName]) -> Result<Vec<LockState>> {
        let mut states = Vec::with_capacity(names.len());
        for names in names.chunks(SHOWN) {
            match self.few_states(names).await {
                Err(error) if *error.kind() == ErrorKind::Protocol && names.len() > 1 => {
                    for name in names {
                        match self.few_states(std::slice::from_ref(name)).await {
                            Err(error) if *error.kind() == ErrorKind::Protocol => {
                                tracing::warn!(lock = ?name, error = ?format!("{error:#}"), "this name cannot be shown");
                            }
                            state => states.extend(state?),
                        }
                    }
                }
                shown => states.extend(shown?),
            }
        }
        Ok(states)
    }

    /// The states of a few names, in one request for those of one slot.
    async fn few_states(&self, names: &[LockName]) -> Result<Vec<LockState>> {
        if !self.is_slotted {
            return self.states_of_slot(names).await;
        }
        let slot = |name: &LockName| HashSlot::of(self.keys.lock(name));
        let each =
            names.chunk_by(|one, other| slot(one) == slot(other)).map(|names| self.states_of_slot(names));
        Ok(try_join_all(each).await?.into_iter().flatten().collect())
    }

    async fn states_of_slot(&self, names: &[LockName]) -> Result<Vec<LockState>> {
        let call = self.told(self.operation("inspect", &names.iter().collect::<Vec<_>>())?);
        let answer = self.run(&call).await?;
        let shown = scripts::inspected(&answer, names.len(), self.naming())?;
        let state = |(name, Shown { holders, waiting }): (&LockName, _)| {
            LockState::new(name.clone(), holders, waiting)
        };
        Ok(names.iter().zip(shown).map(state).collect())
    }
}

/// The names that begin with `prefix` and have keys matching `pattern` in a server, which answers by `ask`.
pub(crate) async fn names_by<F: Future<Output = Result<Value>> + Send>(
    pattern: &str,
    prefix: &str,
    name_of: impl Fn(&str) -> Option<LockName> + Send,
    ask: impl Fn(Cmd) -> F + Send,
) -> Result<BTreeSet<LockName>> {
    let (mut names, mut cursor) = (BTreeSet::new(), 0);
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(SCANNED);
        let answer = ask(scan).await?;
        let [next, keys] = parts(&answer) else {
            return Err(error::unexpected("to SCAN"));
        };
        let found = parts(keys).iter().filter_map(|key| name_of(text(key)?));
        names.extend(found.filter(|name| name.as_str().starts_with(prefix)));
        cursor = number(next).ok_or_else(|| error::unexpected("to SCAN"))?;
        if cursor == 0 {
            return Ok(names);
        }
    }
}

/// How many names one request shows: of each, a few entries of the queue are read.
pub(crate) const SHOWN: usize = 50;
/// How many keys a step of SCAN reads.
const SCANNED: usize = 1000;
