//! The ledger of the in-memory store, as a pure state.

use std::collections::BTreeMap;

use super::engine::Now;
use crate::backend::LeaseId;
use crate::backend::ledger::{Entry, Participant, Written};
use crate::clock::Moment;
use crate::words::owner::OwnerId;

/// The record and the entries.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Book {
    pub(super) record: Option<Entry>,
    pub(super) members: BTreeMap<OwnerId, Signed>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Signed {
    value: Vec<u8>,
    lease: LeaseId,
    expires: Moment,
}

impl Book {
    pub(super) fn write(&mut self, expected: Option<u64>, value: &[u8]) -> Written {
        let version = self.record.as_ref().map(|record| record.version);
        if version != expected {
            return Written::Conflict;
        }
        let version = version.unwrap_or(0) + 1;
        self.record = Some(Entry { version, value: value.to_vec() });
        Written::Done(version)
    }

    /// The lease of the entry, which is `fresh` if there was none.
    pub(super) fn sign(&mut self, member: OwnerId, value: &[u8], until: Moment, fresh: LeaseId) -> LeaseId {
        let lease = self.members.get(&member).map_or(fresh, |signed| signed.lease);
        self.members.insert(member, Signed { value: value.to_vec(), lease, expires: until });
        lease
    }

    /// Drops expired entries.
    pub(super) fn settle(&mut self, now: Now) {
        self.members.retain(|_, signed| signed.expires > now.store);
    }

    pub(super) fn members(&self) -> Vec<Participant> {
        self.members.iter().map(|(id, signed)| Participant { id: *id, value: signed.value.clone() }).collect()
    }
}
