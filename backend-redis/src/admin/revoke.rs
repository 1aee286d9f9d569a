//! Asking who holds to let go, or taking the lock from them.

use std::sync::Arc;

use leasehold_core::backend::{Holder, Revoke};
use leasehold_core::{LockName, Result};

use crate::scripts::{self, Revoked};
use crate::session::Session;

impl Session {
    /// Asks those who hold `name` to let go, or takes the lock from them; whom it found.
    pub(crate) async fn revoke(self: &Arc<Self>, name: &LockName, how: Revoke) -> Result<Vec<Holder>> {
        self.life.open_or_refuse()?;
        let keys = self.keys.of(name)?;
        let call = self.told(scripts::revoke(self.program, &keys, self.inboxes.told(), how));
        let answer = self.run(self.program, &call).await?;
        let Revoked { holders, unswept } = scripts::revoked(&answer, self.naming())?;
        if unswept {
            self.sweep(keys);
        }
        Ok(holders)
    }
}
