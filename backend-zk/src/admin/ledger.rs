//! The ledger: a node with the record of a move, and one of the session's for each who takes part.
//!
//! # Invariants
//! - **zk.ledger-1** The record's version is its node's. A write names the one that it expects, is sent once,
//!   and a conflict is what the server says to that one.
//! - **zk.ledger-2** An entry is the node of the session that its lease is of, also where it was signed in an
//!   earlier one that the server has not ended yet.

use futures_util::future::join_all;
use leasehold_core::backend::Lease;
use leasehold_core::backend::ledger::{Entry, Member, Written};
use leasehold_core::{OwnerId, Result};
use zookeeper_client::{CreateMode, Error as ZkError};

use crate::connection::Answered;
use crate::error::Unanswered;
use crate::session::Session;

impl Session {
    pub(crate) async fn read_record(&self) -> Result<Option<Entry>> {
        let read = self.connection.read_if_there(&self.site.namespace.record()).await;
        let read = read.map_err(|unanswered| unanswered.into_error("read the record of a move"))?;
        Ok(read.map(|(value, stat)| Entry { version: version(stat.version), value }))
    }

    pub(crate) async fn write_record(&self, expected: Option<u64>, value: &[u8]) -> Result<Written> {
        let path = self.site.namespace.record();
        let written = match expected.map(i32::try_from) {
            None => self.connection.create(&path, value, CreateMode::Persistent).await,
            Some(Ok(expected)) => self.connection.write(&path, value, Some(expected)).await,
            Some(Err(_)) => return Ok(Written::Conflict),
        };
        match written {
            Ok(stat) => Ok(Written::Done(version(stat.version))),
            Err(Unanswered::Refused(ZkError::NodeExists | ZkError::BadVersion)) => Ok(Written::Conflict),
            Err(gone) if gone.is_absent() && expected.is_some() => Ok(Written::Conflict),
            Err(unanswered) => Err(unanswered.into_error("write the record of a move")),
        }
    }

    pub(crate) async fn sign(&self, member: OwnerId, value: &[u8]) -> Result<Lease> {
        let (lease, path) = (self.lease(), self.site.namespace.member(member));
        let signed = match self.connection.write(&path, value, None).await {
            Ok(stat) if stat.ephemeral_owner == self.id() => Ok(()),
            Ok(_) => self.connection.replace(&path, value).await,
            Err(missing) if missing.is_absent() => {
                self.connection.create_below(&path, value, CreateMode::Ephemeral).await
            }
            Err(unanswered) => Err(unanswered),
        };
        signed.map(|()| lease).map_err(|unanswered| unanswered.into_error("sign in the ledger"))
    }

    pub(crate) async fn unsign(&self, member: OwnerId) -> Result<()> {
        match self.connection.delete(&self.site.namespace.member(member)).await {
            Err(unanswered) if !unanswered.is_absent() => Err(unanswered.into_error("leave the ledger")),
            _ => Ok(()),
        }
    }

    pub(crate) async fn list_members(&self) -> Result<Vec<Member>> {
        self.found_members().await.map_err(|unanswered| unanswered.into_error("list the members of a move"))
    }

    async fn found_members(&self) -> Answered<Vec<Member>> {
        let listing = match self.connection.list(&self.site.namespace.members()).await {
            Err(none) if none.is_absent() => return Ok(Vec::new()),
            listed => listed?,
        };
        let ids: Vec<_> = listing.children().filter_map(OwnerId::from_hex).collect();
        let mut members = Vec::new();
        for some in ids.chunks(AT_ONCE) {
            let paths: Vec<_> = some.iter().map(|id| self.site.namespace.member(*id)).collect();
            let read = join_all(paths.iter().map(|path| self.connection.read_if_there(path))).await;
            for (id, read) in some.iter().zip(read) {
                members.extend(read?.map(|(value, _)| Member { id: *id, value }));
            }
        }
        Ok(members)
    }
}

/// The server counts from 0 on.
fn version(number: i32) -> u64 {
    number.unsigned_abs().into()
}

/// How many members are read in one flight.
const AT_ONCE: usize = 64;
