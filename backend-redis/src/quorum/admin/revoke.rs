//! Revocation of a hold.

use leasehold_core::backend::{Holder, Revoke};
use leasehold_core::{Error, ErrorKind, LockName, Result};

use super::inspect::Who;
use crate::quorum::keys::BallotKeys;
use crate::quorum::scripts;
use crate::quorum::session::Session;

impl Session {
    /// Revokes the hold of `name` at every server; returns its holder.
    pub(crate) async fn revoke(&self, name: &LockName, how: Revoke) -> Result<Option<Holder>> {
        self.life.open_or_refuse()?;
        let seen = self.seen(std::slice::from_ref(name)).await?.into_iter().next();
        let (owner, holder) = match seen.map(|(who, _)| who) {
            Some(Who::One(owner, holder)) => (owner, holder),
            Some(Who::Unclear) => {
                let message = "cannot determine the holder: a server does not answer";
                return Err(Error::not_applied(ErrorKind::Unavailable, message));
            }
            Some(Who::Nobody) | None => return Ok(None),
        };
        let call = &scripts::revoke(&BallotKeys::of(&self.keys, name), &self.inboxes, owner, how);
        let ask = |server, _: &_| async move { scripts::was_there(&self.run_at(server, call).await?) };
        let had = self.quorum_of(self.ask_all(self.give_up_at(), self.size.quorum, ask).await)?;
        Ok(had.contains(&Some(true)).then_some(holder))
    }
}
