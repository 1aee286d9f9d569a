//! Asking a holder to let go, or taking the lock from it.

use std::sync::Arc;

use lockcore::backend::{Holder, Revoke};
use lockcore::{LockName, Result};

use super::Session;
use crate::scripts;

impl Session {
    /// Asks the holder of `name` to let go, or takes the lock from it; whom it found.
    pub(crate) async fn revoke(self: &Arc<Self>, name: &LockName, how: Revoke) -> Result<Option<Holder>> {
        let keys = self.keys.of(name)?;
        let answer = self.run(&scripts::INSPECT, &scripts::INSPECT.call([&keys].into_iter())).await?;
        let shown = scripts::inspected(&answer, 1, self.token_base)?.into_iter().next();
        let mut call = scripts::REVOKE.call([&keys].into_iter());
        call.arg(&self.channels).arg(&self.inbox).arg(u8::from(how == Revoke::Force));
        let Some(revoked) = scripts::revoked(&self.run(&scripts::REVOKE, &call).await?)? else {
            return Ok(None);
        };
        if revoked.unswept {
            self.sweep(keys.clone());
        }
        let mut holder = shown.and_then(|shown| shown.holder);
        if let Some(holder) = &mut holder {
            holder.ttl = revoked.lease_left;
        }
        Ok(holder)
    }
}
