//! Who holds, and how many wait.

use std::collections::BTreeSet;

use leasehold_core::backend::LockState;
use leasehold_core::{ErrorKind, LockName, Result};

use crate::error;
use crate::keys::NameKeys;
use crate::scripts::{self, Shown};
use crate::session::Session;

impl Session {
    pub(crate) async fn inspect(&self, name: &LockName) -> Result<LockState> {
        self.life.open_or_refuse()?;
        let states = self.states(std::slice::from_ref(name)).await?;
        states.into_iter().next().ok_or_else(|| error::unexpected("about a name"))
    }

    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        self.life.open_or_refuse()?;
        let pattern = self.keys.pattern(prefix);
        let mut names = BTreeSet::new();
        let mut cursor = 0;
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(SCANNED);
            let give_up_at = self.give_up_at();
            let answer = self.connected(give_up_at).await?.ask(&scan, give_up_at).await?;
            let [next, keys] = scripts::parts(&answer) else {
                return Err(error::unexpected("to SCAN"));
            };
            let found = scripts::parts(keys).iter().filter_map(|key| self.keys.name_of(scripts::text(key)?));
            // With exact keys, some that others have left are of names that are not ours to lock.
            let lockable = |name: &LockName| self.keys.of(name).is_ok();
            names.extend(found.filter(|name| name.as_str().starts_with(prefix) && lockable(name)));
            cursor = scripts::number(next).ok_or_else(|| error::unexpected("to SCAN"))?;
            if cursor == 0 {
                break;
            }
        }
        let names: Vec<_> = names.into_iter().collect();
        let mut states = self.states(&names).await?;
        // A name that was used lately has a counter, and no more.
        states.retain(|state| state.holder().is_some() || state.contenders > 0);
        Ok(states)
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
                                tracing::warn!(%name, error = %format_args!("{error:#}"), "this name cannot be shown");
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

    async fn few_states(&self, names: &[LockName]) -> Result<Vec<LockState>> {
        let keys = names.iter().map(|name| self.keys.of(name)).collect::<Result<Vec<_>>>()?;
        let call = self.scripts.inspect.call(&keys.iter().flat_map(NameKeys::all).collect::<Vec<_>>());
        let answer = self.run(&self.scripts.inspect, &self.told(call)).await?;
        let shown = scripts::inspected(&answer, names.len(), self.naming())?;
        let state = |(name, Shown { holders, waiting }): (&LockName, _)| {
            LockState::new(name.clone(), holders, waiting)
        };
        Ok(names.iter().zip(shown).map(state).collect())
    }
}

/// How many names one request shows: of each, a few entries of the queue are looked at.
const SHOWN: usize = 50;
/// How many keys a step of SCAN looks at.
const SCANNED: usize = 1000;
