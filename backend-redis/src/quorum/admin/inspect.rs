//! Who holds what, and how many wait for it: what a quorum of servers shows.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::backend::{Holder, LockState};
use leasehold_core::{LockName, OwnerId, Result};

use crate::error;
use crate::quorum::scripts::{self, Shown};
use crate::quorum::session::Session;
use crate::scripts::{number, parts, text};

/// A name as a quorum shows it.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) holder: Option<(OwnerId, Holder)>,
    waiting: usize,
}

impl Session {
    /// Who holds `name`, and how many wait for it.
    pub(crate) async fn inspect(&self, name: &LockName) -> Result<LockState> {
        self.open_or_refuse()?;
        let seen = self.seen(std::slice::from_ref(name)).await?;
        let seen = seen.into_iter().next().ok_or_else(|| error::unexpected("about a name"))?;
        Ok(seen.state(name.clone()))
    }

    /// The names that begin with `prefix` and are held or waited for. Each that is held is known to as many servers as every
    /// quorum has one of.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        self.open_or_refuse()?;
        let names = self
            .ask_all(self.give_up_at(), self.size.quorum, |server, _| self.names_at(server, prefix))
            .await;
        let names: BTreeSet<_> = self.quorum_of(names)?.into_iter().flatten().flatten().collect();
        let names: Vec<_> = names.into_iter().collect();
        let mut states = Vec::with_capacity(names.len());
        for names in names.chunks(SHOWN) {
            let seen = self.seen(names).await?;
            states.extend(names.iter().zip(seen).map(|(name, seen)| seen.state(name.clone())));
        }
        states.retain(|state| state.holder.is_some() || state.contenders > 0);
        Ok(states)
    }

    async fn names_at(&self, server: usize, prefix: &str) -> Result<Vec<LockName>> {
        let admitted = self.members[server].ready(self, server).await?;
        let (mut names, mut cursor) = (Vec::new(), 0);
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(self.keys.pattern(prefix)).arg("COUNT").arg(SCANNED);
            let answer = admitted.connected.ask(&scan, self.give_up_at()).await?;
            let [next, keys] = parts(&answer) else {
                return Err(error::unexpected("to SCAN"));
            };
            let found = parts(keys).iter().filter_map(|key| self.keys.name_of(text(key)?));
            names.extend(found.filter(|name| name.as_str().starts_with(prefix)));
            cursor = number(next).ok_or_else(|| error::unexpected("to SCAN"))?;
            if cursor == 0 {
                return Ok(names);
            }
        }
    }

    pub(super) async fn seen(&self, names: &[LockName]) -> Result<Vec<Seen>> {
        let keys: Vec<_> = names.iter().map(|name| self.keys.of(name)).collect();
        let call = scripts::inspect(&keys);
        let call = &call;
        let ask = |server, _: &_| async move {
            let value = self.run_at(server, &scripts::INSPECT, call).await?;
            scripts::inspected(&value, names.len())
        };
        let shown = self.ask_all(self.give_up_at(), self.size.quorum, ask).await;
        let shown: Vec<_> = self.quorum_of(shown)?.into_iter().flatten().collect();
        Ok((0..names.len()).map(|at| self.one(shown.iter().map(|shown| &shown[at]))).collect())
    }

    /// Whoever has the votes of a quorum, those of servers that did not answer included.
    fn one<'a>(&self, shown: impl Iterator<Item = &'a Shown>) -> Seen {
        let mut votes: BTreeMap<OwnerId, (usize, &Holder)> = BTreeMap::new();
        let (mut waiting, mut answered) = (0, 0);
        for Shown { voted, holder, waiting: here } in shown {
            (waiting, answered) = (waiting.max(*here), answered + 1);
            if let (Some(ballot), Some(holder)) = (voted, holder) {
                let (votes, latest) = votes.entry(ballot.ticket.owner).or_insert((0, holder));
                *votes += 1;
                if latest.token < holder.token {
                    *latest = holder;
                }
            }
        }
        let silent = self.size.servers - answered;
        let first = votes.into_iter().max_by_key(|(_, (votes, _))| *votes);
        let first = first.filter(|(_, (votes, _))| votes + silent >= self.size.quorum);
        Seen { holder: first.map(|(owner, (_, holder))| (owner, holder.clone())), waiting }
    }
}

impl Seen {
    fn state(self, name: LockName) -> LockState {
        LockState::new(name, self.holder.map(|(_, holder)| holder), self.waiting)
    }
}

/// How many names one request shows.
const SHOWN: usize = 50;
/// How many keys a step of SCAN looks at.
const SCANNED: usize = 1000;
