//! The functions of the server, each one statement. Every one may be sent again.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use leasehold_core::backend::{AcquireRequest, Holder};
use leasehold_core::{Error, LostReason, Result};
use tokio_postgres::types::Type;

use super::Session;
use crate::connection::{Route, Rows, Values};
use crate::error;
use crate::keys::{holder, mode_of, number_of, owner_bytes};
use crate::protocol::{Demand, Seq};
use crate::schema;

/// A name as the server has it, and the number of an entry.
pub(super) type There = (Vec<u8>, Seq);

/// The answer to `acquire`.
pub(super) struct Acquired {
    pub(super) granted: bool,
    pub(super) seq: Option<Seq>,
    /// After so many seconds a lease before the entry may have ended.
    pub(super) look_in: Option<f64>,
    /// Below it nothing of the name lives.
    pub(super) first: Option<Seq>,
    pub(super) head: Option<Holder>,
}

impl Session {
    /// Calls one function of the server. A session that is over there is lost here.
    async fn call(&self, line: &Route, function: &str, values: Values<'_>) -> Result<Rows> {
        line.requests.ask(&schema::call(&self.sessions.schema, function), values).await
    }

    pub(super) async fn acquire(
        &self,
        line: &Route,
        epoch: i32,
        request: &AcquireRequest,
        patience: Demand,
    ) -> Result<Acquired> {
        let (name, owner) = (request.name.as_str().as_bytes(), owner_bytes(request.owner));
        let (weight, capacity) = (number_of(request.mode.weight()), number_of(request.mode.capacity()));
        let (waits, tell) = (patience == Demand::Waits, self.sessions.tells());
        let low = self.book.lock().low(&request.name);
        let values: Values<'_> = &[
            (&self.number, Type::INT8),
            (&epoch, Type::INT4),
            (&name, Type::BYTEA),
            (&owner, Type::BYTEA),
            (&weight, Type::INT4),
            (&capacity, Type::INT4),
            (&waits, Type::BOOL),
            (&low, Type::INT8),
            (&tell, Type::BOOL),
            (&&*request.label, Type::TEXT),
            (&request.metadata.as_deref(), Type::TEXT),
        ];
        let reply = self
            .call(line, schema::ACQUIRE, values)
            .await
            .inspect_err(|error| self.sessions.note_full_queue(error))?;
        let row = reply.one()?;
        let head = match (row.get::<Option<String>>(4)?, row.get::<Option<i64>>(5)?) {
            (Some(label), Some(number)) => {
                let ttl = row.get::<Option<f64>>(8)?;
                let mode = mode_of(row.get::<Option<i32>>(6)?, row.get::<Option<i32>>(7)?);
                Some(holder(label, number, mode, ttl, row.get(9)?))
            }
            _ => None,
        };
        Ok(Acquired {
            granted: row.get(0)?,
            seq: row.get(1)?,
            look_in: row.get(2)?,
            first: row.get(3)?,
            head,
        })
    }

    pub(super) async fn flush(&self, line: &Route) -> Result<()> {
        self.call(line, schema::FLUSHED, &[]).await.map(drop)
    }

    /// Removes an entry; returns whether it was there.
    pub(super) async fn release_entry(&self, line: &Route, name: &[u8], seq: Seq, low: Seq) -> Result<bool> {
        let durable = self.sessions.server.config.durable_release;
        loop {
            let tell = self.sessions.tells();
            let values: Values<'_> = &[
                (&self.number, Type::INT8),
                (&name, Type::BYTEA),
                (&seq, Type::INT8),
                (&low, Type::INT8),
                (&durable, Type::BOOL),
                (&tell, Type::BOOL),
            ];
            match self.call(line, schema::RELEASE, values).await {
                Err(error) if tell && error::is_full_queue(&error) => self.sessions.note_full_queue(&error),
                reply => return reply?.one()?.get(0),
            }
        }
    }

    /// Removes whatever a request of that owner has put.
    pub(super) async fn abandon(&self, line: &Route, request: &AcquireRequest) -> Result<()> {
        let (name, owner) = (request.name.as_str().as_bytes(), owner_bytes(request.owner));
        let tell = self.sessions.tells();
        let values: Values<'_> =
            &[(&self.number, Type::INT8), (&name, Type::BYTEA), (&owner, Type::BYTEA), (&tell, Type::BOOL)];
        let answer = self.call(line, "abandon($1,$2,$3,$4)", values).await;
        answer.map(drop).inspect_err(|error| self.sessions.note_full_queue(error))
    }

    /// Removes entries, and tries all of them also after an error.
    pub(super) async fn release_all(&self, line: &Route, entries: Vec<There>) -> Result<()> {
        let release = async |(name, seq): There| self.release_entry(line, &name, seq, 0).await.map(drop);
        let released: Vec<Result<()>> =
            stream::iter(entries).map(release).buffer_unordered(AT_ONCE).collect().await;
        released.into_iter().collect()
    }

    /// Begins an epoch; returns it, the past, and the entries of the session.
    pub(super) async fn mine(self: &Arc<Self>, line: &Route) -> Result<(i32, i64, Vec<There>)> {
        let reply = self.call(line, "mine($1)", &[(&self.number, Type::INT8)]).await;
        let reply = reply.inspect_err(|error| self.hears_of_the_end(error))?;
        let row = reply.one()?;
        Ok((row.get(0)?, row.get(3)?, there(row.get(1)?, row.get(2)?)))
    }

    /// Ends the session; returns the entries that are left of it.
    pub(super) async fn end_session(&self, line: &Route) -> Result<Vec<There>> {
        let reply = self.call(line, "end_session($1)", &[(&self.number, Type::INT8)]).await?;
        let row = reply.one()?;
        Ok(there(row.get(0)?, row.get(1)?))
    }

    /// The numbers of the entries, each with the grace of a requested release in milliseconds.
    pub(super) async fn standing(&self, line: &Route) -> Result<BTreeMap<Seq, Option<i64>>> {
        let reply = self.call(line, "standing($1)", &[(&self.number, Type::INT8)]).await?;
        reply.rows().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
    }

    /// An error may say that the session is over.
    pub(super) fn hears_of_the_end(self: &Arc<Self>, error: &Error) {
        if error.lost_reason().is_some() {
            self.lose(LostReason::SessionLost);
        }
    }
}

fn there(names: Option<Vec<Vec<u8>>>, seqs: Option<Vec<i64>>) -> Vec<There> {
    names.unwrap_or_default().into_iter().zip(seqs.unwrap_or_default()).collect()
}

/// So many entries are removed at a time: others need the connection, too.
const AT_ONCE: usize = 32;
