//! Holders and the number of waiters, as a quorum of servers shows them.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::backend::{Holder, LockState};
use leasehold_core::{LockName, OwnerId, Result};

use crate::admin::inspect::{SHOWN, names_by};
use crate::error;
use crate::quorum::keys::{BallotKeys, name_of};
use crate::quorum::protocol::Size;
use crate::quorum::scripts::{self, Shown};
use crate::quorum::session::Session;

/// The owner that has a quorum's votes, as far as the servers that answered show it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Nobody,
    One(OwnerId, Holder),
    /// Another server, which does not answer, may make a quorum.
    Unclear,
}

impl Session {
    /// The holder of `name`, and how many wait for it.
    pub(crate) async fn inspect(&self, name: &LockName) -> Result<LockState> {
        self.life.open_or_refuse()?;
        let seen = self.seen(std::slice::from_ref(name)).await?;
        let seen = seen.into_iter().next().ok_or_else(|| error::unexpected("about a name"))?;
        Ok(state(name.clone(), seen))
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
            states.extend(names.iter().zip(seen).map(|(name, seen)| state(name.clone(), seen)));
        }
        states.retain(|state| state.holder().is_some() || state.contenders > 0);
        Ok(states)
    }

    async fn names_at(&self, server: usize, prefix: &str) -> Result<BTreeSet<LockName>> {
        let admitted = &self.members[server].ready(self, server).await?;
        let ask = |scan| async move { admitted.connected.ask(&scan, self.give_up_at()).await };
        names_by(&self.keys.pattern(prefix), prefix, |key| name_of(&self.keys, key), ask).await
    }

    pub(super) async fn seen(&self, names: &[LockName]) -> Result<Vec<(Who, usize)>> {
        let keys: Vec<_> = names.iter().map(|name| BallotKeys::of(&self.keys, name)).collect();
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

/// The holder, which has the votes of a quorum, and how many wait. There is none if no votes of servers that did not answer
/// could make a quorum.
fn seen<'a>(size: Size, shown: impl Iterator<Item = &'a Shown>) -> (Who, usize) {
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
    (who, waiting)
}

fn state(name: LockName, (who, waiting): (Who, usize)) -> LockState {
    let holder = match who {
        Who::Nobody => None,
        Who::One(_, holder) => Some(holder),
        Who::Unclear => Some(Holder::new("unknown")),
    };
    LockState::new(name, holder, waiting)
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

    /// An owner that only may have a quorum, because a server is silent, is not shown.
    #[test]
    fn nobody_is_taken_for_the_holder_by_chance() {
        let free = || Shown { voted: None, holder: None, waiting: 1 };
        let size = Size { servers: 3, quorum: 2 };
        let label = |shown: &[Shown]| match seen(size, shown.iter()).0 {
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
