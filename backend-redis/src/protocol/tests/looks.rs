//! Revocation messages are checked at the server: each soon, and not one request for each.

use super::*;

/// The revocation messages of a client, as of its owner id.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// Since when one is not looked up.
    told: Option<u64>,
    /// When it is to be.
    at: Option<Moment>,
    last: Option<u64>,
}

impl World {
    /// A revocation message arrives.
    pub(super) fn told_revoked(&mut self, id: usize, owner: Owner, grace: u64) {
        let (now, its) = (at(self.now), &mut self.clients[id]);
        if self.mutant == Mutant::BelievesAsks {
            its.contender.asked(now, Duration::from_millis(grace));
        }
        if its.owner != owner {
            return;
        }
        let look_at = its.contender.told_revoked(now);
        its.looks.told = its.looks.told.or_else(|| look_at.map(|_| self.now));
        let look_at = match self.mutant {
            Mutant::LooksUpEach => Some(now),
            Mutant::LooksUpOnce => look_at.filter(|_| its.looks.last.is_none()),
            _ => look_at,
        };
        its.looks.at = its.looks.at.into_iter().chain(look_at).min();
    }

    /// The client checks revocation messages: each soon, and not one request for each.
    pub(super) fn look_up(&mut self, id: usize) -> Result<(), String> {
        let pace = Duration::from_millis(TTL / 24);
        let (now, Client { owner, contender, looks, .. }) = (at(self.now), &mut self.clients[id]);
        let Looks { told: Some(told), at: look_at, last } = *looks else { return Ok(()) };
        if look_at.is_none_or(|look_at| now < look_at) {
            let is_late = at(told) + pace < now;
            return if is_late { Err(format!("what {owner} was told is not looked up")) } else { Ok(()) };
        }
        contender.checks_revocation(now);
        if last.is_some_and(|last| now < at(last) + pace) {
            return Err(format!("{owner} is looked up too often"));
        }
        *looks = Looks { last: Some(self.now), ..Looks::default() };
        let owner = *owner;
        self.send(id, owner, Request::Refresh);
        Ok(())
    }
}
