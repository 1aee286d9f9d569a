//! The ledger of a namespace: the record of a move to another store, and its participants.
//!
//! The record is a part of the namespace's row. A participant's entry is a row that lives as long as its session. There is one
//! server that takes writes, and every write is sent once, so no copy of it contradicts the reply.

use async_trait::async_trait;
use leasehold_core::backend::Lease;
use leasehold_core::backend::ledger::{Entry, MoveLedger, Participant, Written, fits, readable};
use leasehold_core::{OwnerId, Result};
use tokio_postgres::types::Type;

use super::OpenSessions;
use crate::connection::{Columns, Values};
use crate::keys::{owner_bytes, owner_of};

#[async_trait]
impl MoveLedger for OpenSessions {
    async fn read(&self) -> Result<Option<Entry>> {
        let sessions = self.unless_closed()?;
        let reply = sessions.ask("read_record($1)", &[(&sessions.prefix(), Type::TEXT)]).await?;
        let entry =
            |row: Columns<'_>| Ok(Entry { version: row.get::<i64>(0)?.unsigned_abs(), value: row.get(1)? });
        reply.rows().next().map(entry).transpose()
    }

    async fn write(&self, expected: Option<u64>, value: &[u8]) -> Result<Written> {
        fits(value)?;
        let Ok(expected) = expected.map(i64::try_from).transpose() else {
            return Ok(Written::Conflict);
        };
        let sessions = self.unless_closed()?;
        let (prefix, function) = (sessions.prefix(), "write_record($1,$2,$3)");
        let values: Values<'_> = &[(&prefix, Type::TEXT), (&expected, Type::INT8), (&value, Type::BYTEA)];
        let version: Option<i64> = sessions.ask(function, values).await?.one()?.get(0)?;
        Ok(version.map_or(Written::Conflict, |version| Written::Done(version.unsigned_abs())))
    }

    async fn sign(&self, member: OwnerId, value: &[u8]) -> Result<Lease> {
        fits(value)?;
        let sessions = self.unless_closed()?;
        let session = sessions.session().await?;
        let values: Values<'_> =
            &[(&session.number, Type::INT8), (&owner_bytes(member), Type::BYTEA), (&value, Type::BYTEA)];
        let signed = sessions.ask("sign($1,$2,$3)", values).await;
        signed.inspect_err(|error| session.hears_of_the_end(error))?;
        Ok(session.lease())
    }

    async fn unsign(&self, member: OwnerId) -> Result<()> {
        let sessions = self.unless_closed()?;
        let (prefix, owner) = (sessions.prefix(), owner_bytes(member));
        sessions.ask("unsign($1,$2)", &[(&prefix, Type::TEXT), (&owner, Type::BYTEA)]).await.map(drop)
    }

    async fn members(&self) -> Result<Vec<Participant>> {
        let sessions = self.unless_closed()?;
        let reply = sessions.ask("members($1)", &[(&sessions.prefix(), Type::TEXT)]).await?;
        readable(reply.rows().count())?;
        let mut members = Vec::new();
        for row in reply.rows() {
            let (id, value) = (owner_of(row.get(0)?), row.get(1)?);
            members.extend(id.map(|id| Participant { id, value }));
        }
        Ok(members)
    }
}
