//! What messages tell clients of revocations is looked up: each soon, and not one request for each.

use super::*;

/// What messages have told a client of revocations, as of its owner id.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// Since when one is not looked up.
    told: Option<u64>,
    /// When it is to be.
    at: Option<Moment>,
    last: Option<u64>,
}

impl World {
    /// A message tells of a revocation.
    pub(super) fn told_revoked(&mut self, id: usize, owner: Owner, grace: u64) {
        let (now, its) = (at(self.now), &mut self.clients[id]);
        if self.mutant == Mutant::BelievesAsks {
            its.contender.asked(now, Duration::from_millis(grace));
        }
        let Some(look_at) = (its.owner == owner).then(|| its.contender.told_revoked(now)).flatten() else {
            return;
        };
        its.looks.told.get_or_insert(self.now);
        let look_at = match self.mutant {
            Mutant::LooksUpEach => Some(now),
            Mutant::LooksUpOnce => Some(look_at).filter(|_| its.looks.last.is_none()),
            _ => Some(look_at),
        };
        its.looks.at = its.looks.at.into_iter().chain(look_at).min();
    }

    /// The client looks up what messages have told it of revocations: each soon, and not one request for each.
    pub(super) fn look_up(&mut self, id: usize) -> Result<(), String> {
        let pace = Duration::from_millis(TTL / 24);
        let (now, Client { owner, contender, looks, .. }) = (at(self.now), &mut self.clients[id]);
        let Looks { told: Some(told), at: look_at, last } = *looks else { return Ok(()) };
        if look_at.is_none_or(|look_at| now < look_at) {
            let is_late = at(told) + pace < now;
            return if is_late { Err(format!("what {owner} was told is not looked up")) } else { Ok(()) };
        }
        let is_due = contender.looks_up(now);
        let is_early = last.is_some_and(|last| now < at(last) + pace);
        if is_early || !is_due && self.mutant == Mutant::None {
            return Err(format!("{owner} is looked up too often"));
        }
        *looks = Looks { last: Some(self.now), ..Looks::default() };
        let owner = *owner;
        self.send(id, owner, Request::Refresh);
        Ok(())
    }
}
