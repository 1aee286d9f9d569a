//! The holders of locks, and the number of their waiters.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_core::backend::{Holder, LockState};
use leasehold_core::{LockName, Result};
use tokio_postgres::types::Type;

use crate::connection::{Columns, Rows, Values};
use crate::keys::{holder, mode_of, name_of};
use crate::schema;
use crate::session::Sessions;

impl Sessions {
    /// Sends one statement to a function of the schema.
    pub(crate) async fn ask(self: &Arc<Self>, function: &str, values: Values<'_>) -> Result<Rows> {
        let line = self.server.line().await?;
        line.requests.ask(&schema::call(&self.schema, function), values).await
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.server.config.prefix
    }

    pub(crate) async fn inspect(self: &Arc<Self>, name: &LockName) -> Result<LockState> {
        let states = self.states(name.as_str(), false).await?;
        let state = states.into_iter().next();
        Ok(state.unwrap_or_else(|| LockState::new(name.clone(), [], 0)))
    }

    pub(crate) async fn list(self: &Arc<Self>, prefix: &str) -> Result<Vec<LockState>> {
        self.states(prefix, true).await
    }

    async fn states(self: &Arc<Self>, name: &str, is_prefix: bool) -> Result<Vec<LockState>> {
        let values: Values<'_> =
            &[(&self.prefix(), Type::TEXT), (&name.as_bytes(), Type::BYTEA), (&is_prefix, Type::BOOL)];
        let reply = self.ask("inspect($1,$2,$3)", values).await?;
        let mut names = BTreeMap::<LockName, (Vec<Holder>, usize)>::new();
        for row in reply.rows() {
            let Some(name) = name_of(row.get(0)?) else {
                continue;
            };
            let (holders, waiting) = names.entry(name).or_default();
            match row.get(4)? {
                true => holders.push(shown(&row)?),
                false => *waiting += 1,
            }
        }
        let state = |(name, (holders, waiting))| LockState::new(name, holders, waiting);
        Ok(names.into_iter().map(state).collect())
    }
}

pub(super) fn shown(row: &Columns<'_>) -> Result<Holder> {
    let mode = mode_of(row.get(2)?, row.get(3)?);
    Ok(holder(row.get(5)?, row.get(1)?, mode, row.get(6)?, row.get(7)?))
}
