//! Who holds what, and how many wait for it: what a quorum of servers shows.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::backend::{Holder, LockState};
use leasehold_core::{LockName, OwnerId, Result};

use crate::admin::inspect::{SHOWN, names};
use crate::error;
use crate::quorum::protocol::Size;
use crate::quorum::scripts::{self, Shown};
use crate::quorum::session::Session;

/// A name as a quorum shows it.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) who: Who,
    waiting: usize,
}

/// Who has a quorum's votes, as far as the servers that answered show it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Nobody,
    One(OwnerId, Holder),
    /// Somebody may: a server that does not answer knows.
    Unclear,
}

impl Session {
    /// Who holds `name`, and how many wait for it.
    pub(crate) async fn inspect(&self, name: &LockName) -> Result<LockState> {
        self.life.open_or_refuse()?;
        let seen = self.seen(std::slice::from_ref(name)).await?;
        let seen = seen.into_iter().next().ok_or_else(|| error::unexpected("about a name"))?;
        Ok(seen.state(name.clone()))
    }

    /// The names that begin with `prefix` and are held or waited for. Each that is held is known to as many servers as every
    /// quorum has one of.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        self.life.open_or_refuse()?;
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
        states.retain(|state| state.holder().is_some() || state.contenders > 0);
        Ok(states)
    }

    async fn names_at(&self, server: usize, prefix: &str) -> Result<BTreeSet<LockName>> {
        let admitted = &self.members[server].ready(self, server).await?;
        let ask = |scan| async move { admitted.connected.ask(&scan, self.give_up_at()).await };
        names(&self.keys.prefixed.pattern(prefix), prefix, |key| self.keys.name_of(key), ask).await
    }

    pub(super) async fn seen(&self, names: &[LockName]) -> Result<Vec<Seen>> {
        let keys: Vec<_> = names.iter().map(|name| self.keys.of(name)).collect();
        let call = &scripts::inspect(&keys);
        let ask = |server, _: &_| async move {
            let value = self.run_at(server, call).await?;
            scripts::inspected(&value, names.len())
        };
        let shown = self.ask_all(self.give_up_at(), self.size.quorum, ask).await;
        let shown: Vec<_> = self.quorum_of(shown)?.into_iter().flatten().collect();
        Ok((0..names.len()).map(|at| seen(self.size, shown.iter().map(|shown| &shown[at]))).collect())
    }
}

/// Whoever has the votes of a quorum; nobody where no votes of servers that did not answer could make one.
fn seen<'a>(size: Size, shown: impl Iterator<Item = &'a Shown>) -> Seen {
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
    let silent = size.servers - answered;
    let most = votes.iter().max_by_key(|(_, (votes, _))| *votes);
    let who = match most {
        Some((owner, (votes, holder))) if *votes >= size.quorum => Who::One(*owner, (*holder).clone()),
        Some((_, (votes, _))) if votes + silent >= size.quorum => Who::Unclear,
        _ => Who::Nobody,
    };
    Seen { who, waiting }
}

impl Seen {
    fn state(self, name: LockName) -> LockState {
        let holder = match self.who {
            Who::Nobody => None,
            Who::One(_, holder) => Some(holder),
            Who::Unclear => Some(Holder::new("unknown")),
        };
        LockState::new(name, holder, self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::protocol::Ticket;
    use crate::quorum::scripts::Ballot;

    fn voted(by: u8) -> Shown {
        let ticket = Ticket { time: 1, owner: OwnerId::from_random([by; 16]) };
        let ballot = Ballot { ticket, round: 1 };
        Shown { voted: Some(ballot), holder: Some(Holder::new(by.to_string())), waiting: 0 }
    }

    /// Who has a quorum is shown; who only may have one, because a server is silent, is not.
    #[test]
    fn nobody_is_taken_for_the_holder_by_chance() {
        let free = || Shown { voted: None, holder: None, waiting: 1 };
        let size = Size { servers: 3, quorum: 2 };
        let label = |shown: &[Shown]| match seen(size, shown.iter()).who {
            Who::Nobody => "nobody".to_owned(),
            Who::One(_, holder) => holder.label,
            Who::Unclear => "unclear".to_owned(),
        };
        assert_eq!(label(&[voted(1), voted(1), voted(2)]), "1");
        assert_eq!(label(&[voted(1), voted(2), voted(3)]), "nobody");
        assert_eq!(label(&[voted(1), voted(1)]), "1");
        assert_eq!(label(&[voted(1), free()]), "unclear");
        assert_eq!(label(&[voted(1), voted(2)]), "unclear");
        assert_eq!(label(&[free(), free()]), "nobody");
    }
}
