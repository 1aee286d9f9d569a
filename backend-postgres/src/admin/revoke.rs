//! Requesting that the holders release, and removing their entries.

use std::sync::Arc;

use leasehold_core::backend::{Holder, Revoke};
use leasehold_core::{LockName, Result};
use tokio_postgres::types::Type;

use super::inspect::shown;
use crate::connection::Values;
use crate::session::Sessions;

impl Sessions {
    /// Requests that the holders release, or removes them; returns them.
    ///
    /// # Cancel safety
    ///
    /// A request that was sent stays.
    pub(crate) async fn revoke(self: &Arc<Self>, name: &LockName, how: Revoke) -> Result<Vec<Holder>> {
        let (millis, force) = match how {
            Revoke::Ask { grace } => (i64::try_from(grace.as_millis()).unwrap_or(i64::MAX), false),
            Revoke::Force => (0, true),
        };
        let tell = self.server.config.listen;
        let values: Values<'_> = &[
            (&self.prefix(), Type::TEXT),
            (&name.as_str().as_bytes(), Type::BYTEA),
            (&millis, Type::INT8),
            (&force, Type::BOOL),
            (&tell, Type::BOOL),
        ];
        self.ask("revoke($1,$2,$3,$4,$5)", values).await?.rows().map(|row| shown(&row)).collect()
    }
}
