//! The ledger: a node with the record of a move, and a node of the session for each participant.
//!
//! # Invariants
//! - **zk.ledger-1** The record's version is its node's. A write names the version that it expects, is sent once, and only the
//!   server's answer to that one is a conflict.
//! - **zk.ledger-2** An entry is the node of the session that its lease is of, also if it was signed in an earlier one that the
//!   server has not ended yet.

use futures_util::stream::{self, StreamExt, TryStreamExt};
use leasehold_core::backend::Lease;
use leasehold_core::backend::ledger::{Entry, Participant, Written, readable};
use leasehold_core::{OwnerId, Result};
use zookeeper_client::{CreateMode, Error as ZkError};

use super::Session;
use crate::error::{Answered, Explain, Unanswered};

impl Session {
    pub(crate) async fn read_record(&self) -> Result<Option<Entry>> {
        let read = self.connection.read_if_there(&self.site.namespace.record()).await;
        let read = read.or_not("read the record of a move")?;
        Ok(read.map(|(value, stat)| Entry { version: version(stat.version), value }))
    }

    pub(crate) async fn write_record(&self, expected: Option<u64>, value: &[u8]) -> Result<Written> {
        let Ok(expected) = expected.map(i32::try_from).transpose() else {
            return Ok(Written::Conflict);
        };
        let path = self.site.namespace.record();
        let written = self.connection.compare_and_set(&path, value, expected).await;
        let written = written.or_not("write the record of a move")?;
        Ok(written.map_or(Written::Conflict, |stat| Written::Done(version(stat.version))))
    }

    pub(crate) async fn sign(&self, member: OwnerId, value: &[u8]) -> Result<Lease> {
        let (lease, path) = (self.lease(), self.site.namespace.member(member));
        self.signed(&path, value)
            .await
            .or_not("write the entry of this participant of a move")
            .map(|()| lease)
    }

    /// The node may come and go between two requests: another signature of this process, or the end of an earlier session.
    async fn signed(&self, path: &str, value: &[u8]) -> Answered<()> {
        loop {
            match self.connection.write(path, value, None).await.if_there()? {
                Some(stat) if stat.ephemeral_owner == self.id => return Ok(()),
                Some(_) => {
                    if self.connection.replace(path, value).await.if_there()?.is_some() {
                        return Ok(());
                    }
                }
                None => match self.connection.create_below(path, value, CreateMode::Ephemeral).await {
                    Err(Unanswered::Refused(ZkError::NodeExists)) => {}
                    created => return created,
                },
            }
        }
    }

    pub(crate) async fn unsign(&self, member: OwnerId) -> Result<()> {
        let deleted = self.connection.delete(&self.site.namespace.member(member)).await;
        deleted.if_there().or_not("delete the entry of this participant of a move").map(drop)
    }

    pub(crate) async fn list_members(&self) -> Result<Vec<Participant>> {
        let listing = self.connection.list(&self.site.namespace.members()).await.if_there();
        let listing = listing.or_not("list the participants of a move")?.unwrap_or_default();
        let ids: Vec<_> = listing.children().filter_map(OwnerId::from_hex).collect();
        readable(ids.len())?;
        let members = stream::iter(ids.into_iter().map(|id| self.member(id))).buffered(AT_ONCE);
        let members = members.try_filter_map(|member| std::future::ready(Ok(member))).try_collect().await;
        members.or_not("read the participants of a move")
    }

    async fn member(&self, id: OwnerId) -> Answered<Option<Participant>> {
        let read = self.connection.read_if_there(&self.site.namespace.member(id)).await?;
        Ok(read.map(|(value, _)| Participant { id, value }))
    }
}

/// The server counts from 0 on.
fn version(number: i32) -> u64 {
    number.unsigned_abs().into()
}

/// How many members are read in one flight.
const AT_ONCE: usize = 64;
