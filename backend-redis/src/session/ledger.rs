//! The ledger of the namespace, by which its locks can be moved to another store or from one.
//!
//! The server does one thing after the other, so whoever looks sees all that was written before. Versions are never
//! below its clock, as counters are, so they grow also when the record is lost.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::ledger::{Entry, Ledger, Member, Written, fits};
use leasehold_core::backend::{Lease, LeaseId, LeaseScope};
use leasehold_core::clock::Moment;
use leasehold_core::{OwnerId, Result};
use redis::{Cmd, Value};

use super::{Opened, Session};
use crate::connection::Connected;
use crate::error;
use crate::keys::Keys;
use crate::scripts::{MEMBERS, RECORD, Script, millis, number, parts, text};

/// As whoever has opened the session asks.
#[async_trait]
impl Ledger for Opened {
    async fn read(&self) -> Result<Option<Entry>> {
        self.open_or_refuse()?;
        let give_up_at = self.give_up_at();
        record(&self.connected(give_up_at).await?, &self.keys, give_up_at).await
    }

    async fn write(&self, expected: Option<u64>, value: &[u8]) -> Result<Written> {
        fits(value)?;
        let mut call = RECORD.call(&[&self.keys.record()]);
        call.arg(expected.map(|version| version.to_string()).unwrap_or_default()).arg(value);
        match self.write_down(&RECORD, call).await?.1 {
            Value::Nil => Ok(Written::Conflict),
            version => number(&version).map(Written::Done).ok_or_else(|| error::unexpected("to a record")),
        }
    }

    async fn sign(&self, member: OwnerId, value: &[u8]) -> Result<Lease> {
        fits(value)?;
        // The server counts whole milliseconds.
        let ttl = Duration::from_millis(millis(self.env.timing().ttl));
        let (mut call, fresh) = (self.of_members("sign"), self.lease_of(self.env.owner_id()));
        call.arg(member.to_hex()).arg(millis(ttl)).arg(&self.inbox).arg(fresh.get()).arg(value);
        let (sent_at, lease) = self.write_down(&MEMBERS, call).await?;
        let lease = number(&lease).ok_or_else(|| error::unexpected("to a signature"))?;
        let (id, deadline) = (LeaseId::new(lease), self.env.deadline(sent_at, ttl));
        Ok(Lease::new(id, LeaseScope::Entry, ttl, deadline))
    }

    async fn unsign(&self, member: OwnerId) -> Result<()> {
        let mut call = self.of_members("unsign");
        call.arg(member.to_hex());
        self.write_down(&MEMBERS, call).await.map(drop)
    }

    async fn members(&self) -> Result<Vec<Member>> {
        Session::members(self).await
    }
}

impl Session {
    /// Who takes part.
    pub(crate) async fn members(&self) -> Result<Vec<Member>> {
        self.open_or_refuse()?;
        let answer = self.run(&MEMBERS, &self.of_members("look")).await?;
        let member = |entry: &Value| match parts(entry) {
            // Others are not of ours.
            [id, Value::BulkString(value)] => {
                Some(Member { id: OwnerId::from_hex(text(id)?)?, value: value.clone() })
            }
            _ => None,
        };
        Ok(parts(&answer).iter().filter_map(member).collect())
    }

    fn of_members(&self, what: &str) -> Cmd {
        let mut call = MEMBERS.call(&self.keys.members().each_ref().map(String::as_str));
        call.arg(what);
        call
    }

    /// Like a grant, it counts when as many replicas as configured have it.
    async fn write_down(&self, script: &'static Script, call: Cmd) -> Result<(Moment, Value)> {
        self.open_or_refuse()?;
        self.run_confirmed(script, call, self.give_up_at()).await
    }
}

/// The record as the server has it.
pub(super) async fn record(connected: &Connected, keys: &Keys, give_up_at: Moment) -> Result<Option<Entry>> {
    match connected.ask(redis::cmd("GET").arg(keys.record()), give_up_at).await? {
        Value::Nil => Ok(None),
        value => entry(&value).map(Some).ok_or_else(|| error::unexpected("for the record of a move")),
    }
}

fn entry(value: &Value) -> Option<Entry> {
    let Value::BulkString(bytes) = value else { return None };
    let (version, value) = bytes.split_at(bytes.iter().position(|byte| *byte == b' ')?);
    let written = std::str::from_utf8(version).ok()?;
    let version: u64 = written.parse().ok()?;
    // The script compares what is written, so another spelling would never be in force.
    (version.to_string() == written).then(|| Entry { version, value: value[1..].to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record is its version and whatever bytes were written; what has no version is none.
    #[test]
    fn a_record_is_a_version_and_bytes() {
        let read = |bytes: &[u8]| entry(&Value::BulkString(bytes.to_vec()));
        assert_eq!(read(b"7 \xff a"), Some(Entry { version: 7, value: b"\xff a".to_vec() }));
        assert_eq!(read(b"7 "), Some(Entry { version: 7, value: Vec::new() }));
        for strange in
            [&b""[..], b"7", b" 7", b"-7 a", b"+7 a", b"07 a", b"99999999999999999999 a", b"\xff a"]
        {
            assert_eq!(read(strange), None, "{strange:?}");
        }
        assert_eq!(entry(&Value::Int(7)), None);
    }
}
