//! Requesting that the holders release, and removing their entries.

use std::sync::Arc;

use leasehold_core::backend::{Holder, Revoke};
use leasehold_core::{LockName, Result};
use tokio_postgres::types::Type;

use super::inspect::shown;
use crate::connection::Values;
use crate::error;
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
        loop {
            let tell = self.tells();
            let values: Values<'_> = &[
                (&self.prefix(), Type::TEXT),
                (&name.as_str().as_bytes(), Type::BYTEA),
                (&millis, Type::INT8),
                (&force, Type::BOOL),
                (&tell, Type::BOOL),
            ];
            match self.ask("revoke($1,$2,$3,$4,$5)", values).await {
                Err(error) if tell && error::is_full_queue(&error) => self.note_full_queue(&error),
                reply => return reply?.rows().map(|row| shown(&row)).collect(),
            }
        }
    }
}
