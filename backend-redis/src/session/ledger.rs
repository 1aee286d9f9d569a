//! The ledger of the namespace, by which its locks can be moved to another store or from one.
//!
//! The server does one thing after the other, so a read sees all earlier writes. Versions are never
//! below its clock, as counters are, so they grow also when the record is lost.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::ledger::{
    Entry, MOST_MEMBERS, MoveLedger, Participant, Written, fits, readable,
};
use leasehold_core::backend::{Lease, LeaseId, LeaseScope};
use leasehold_core::clock::Moment;
use leasehold_core::{OwnerId, Result};
use redis::Value;

use super::{Opened, Session};
use crate::connection::record;
use crate::error;
use crate::scripts::{Call, MEMBERS, RECORD, millis, number, parts, text};

#[async_trait]
impl MoveLedger for Opened<Session> {
    async fn read(&self) -> Result<Option<Entry>> {
        self.life.open_or_refuse()?;
        let give_up_at = self.give_up_at();
        let (record, _) = record(&self.fleet, &self.keys, give_up_at).await?;
        Ok(record)
    }

    async fn write(&self, expected: Option<u64>, value: &[u8]) -> Result<Written> {
        fits(value)?;
        let mut call = RECORD.call(&[&self.keys.record()]);
        call.arg(expected.map(|version| version.to_string()).unwrap_or_default()).arg(value);
        match self.write_down(&call).await?.1 {
            Value::Nil => Ok(Written::Conflict),
            version => number(&version).map(Written::Done).ok_or_else(|| error::unexpected("to a record")),
        }
    }

    async fn sign(&self, member: OwnerId, value: &[u8]) -> Result<Lease> {
        fits(value)?;
        // The server counts whole milliseconds.
        let ttl = Duration::from_millis(millis(self.env.timing().ttl));
        let (mut call, fresh) = (self.of_members("sign"), self.life.lease_of(self.env.owner_id()));
        call.arg(member.to_hex()).arg(millis(ttl)).arg(&self.inbox).arg(fresh.get()).arg(value);
        let (sent_at, lease) = self.write_down(&call).await?;
        let lease = number(&lease).ok_or_else(|| error::unexpected("to a signature"))?;
        let (id, deadline) = (LeaseId::new(lease), self.env.deadline(sent_at, ttl));
        Ok(Lease::new(id, LeaseScope::Entry, ttl, deadline))
    }

    async fn unsign(&self, member: OwnerId) -> Result<()> {
        let mut call = self.of_members("unsign");
        call.arg(member.to_hex());
        self.write_down(&call).await.map(drop)
    }

    async fn members(&self) -> Result<Vec<Participant>> {
        Session::members(self).await
    }
}

impl Session {
    /// The participants of the move.
    pub(crate) async fn members(&self) -> Result<Vec<Participant>> {
        self.life.open_or_refuse()?;
        let mut look = self.of_members("look");
        look.arg(MOST_MEMBERS + 1);
        let answer = self.run(&look).await?;
        if let Value::Int(count) = answer {
            readable(usize::try_from(count).unwrap_or(usize::MAX))?;
        }
        let member = |entry: &Value| match parts(entry) {
            // Entries of another form are not participants.
            [id, Value::BulkString(value)] => {
                Some(Participant { id: OwnerId::from_hex(text(id)?)?, value: value.clone() })
            }
            _ => None,
        };
        Ok(parts(&answer).iter().filter_map(member).collect())
    }

    fn of_members(&self, what: &str) -> Call {
        let mut call = MEMBERS.call(&self.keys.members().each_ref().map(String::as_str));
        call.arg(what);
        call
    }

    /// Like a grant, it counts when as many replicas as configured have it.
    async fn write_down(&self, call: &Call) -> Result<(Moment, Value)> {
        self.life.open_or_refuse()?;
        self.run_confirmed(call, self.give_up_at()).await
    }
}
