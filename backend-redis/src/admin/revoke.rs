//! Revoking a lock, with a grace period or by force.

use std::sync::Arc;

use leasehold_core::backend::{Holder, Revoke};
use leasehold_core::{LockName, Result};

use crate::scripts::{self, Revoked};
use crate::session::Session;

impl Session {
    /// Revokes the lock; returns the holders that it had.
    pub(crate) async fn revoke(self: &Arc<Self>, name: &LockName, how: Revoke) -> Result<Vec<Holder>> {
        self.life.open_or_refuse()?;
        let keys = self.keys.of(name)?;
        let call = self.told(scripts::revoke(self.program, &keys, self.inboxes.told(), how));
        let answer = self.run(&call).await?;
        let Revoked { holders, unswept } = scripts::revoked(&answer, self.naming())?;
        if unswept {
            self.sweep(name);
        }
        Ok(holders)
    }
}
