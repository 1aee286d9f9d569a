//! The ledger of the in-memory store: a pure state, and the contract on top of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use super::engine::Now;
use super::store::{MemoryStore, StoreState};
use crate::backend::env::Env;
use crate::backend::ledger::{Entry, MoveLedger, Participant, Written, fits, readable};
use crate::backend::{Lease, LeaseId, LeaseScope};
use crate::clock::Moment;
use crate::words::error::{Error, ErrorKind, Result};
use crate::words::owner::OwnerId;

/// The record and the entries.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Book {
    record: Option<Entry>,
    members: BTreeMap<OwnerId, Signed>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Signed {
    value: Vec<u8>,
    lease: LeaseId,
    expires: Moment,
}

impl Book {
    pub(super) fn record(&self) -> Option<&Entry> {
        self.record.as_ref()
    }

    fn write(&mut self, expected: Option<u64>, value: &[u8]) -> Written {
        let version = self.record.as_ref().map(|record| record.version);
        if version != expected {
            return Written::Conflict;
        }
        let version = version.unwrap_or(0) + 1;
        self.record = Some(Entry { version, value: value.to_vec() });
        Written::Done(version)
    }

    /// The lease of the entry, which is `fresh` if there was none.
    fn sign(&mut self, member: OwnerId, value: &[u8], until: Moment, fresh: LeaseId) -> LeaseId {
        let lease = self.members.get(&member).map_or(fresh, |signed| signed.lease);
        self.members.insert(member, Signed { value: value.to_vec(), lease, expires: until });
        lease
    }

    /// Drops what has expired.
    fn settle(&mut self, now: Now) {
        self.members.retain(|_, signed| signed.expires > now.store);
    }

    fn members(&self) -> Vec<Participant> {
        self.members.iter().map(|(id, signed)| Participant { id: *id, value: signed.value.clone() }).collect()
    }
}

/// The ledger as one session asks for it.
#[derive(Debug)]
pub(super) struct MemoryLedger {
    pub(super) store: MemoryStore,
    pub(super) env: Env,
    pub(super) closed: Arc<AtomicBool>,
}

impl MemoryLedger {
    fn act<R>(&self, act: impl FnOnce(&mut StoreState, Now) -> R) -> Result<R> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::not_applied(ErrorKind::Closed, "the session with the store was closed"));
        }
        Ok(self.store.act(&**self.env.clock(), |state, now, _| {
            state.book.settle(now);
            act(state, now)
        }))
    }

    fn ttl(&self) -> Duration {
        self.env.timing().ttl
    }
}

#[async_trait]
impl MoveLedger for MemoryLedger {
    async fn read(&self) -> Result<Option<Entry>> {
        self.act(|state, _| state.book.record.clone())
    }

    async fn write(&self, expected: Option<u64>, value: &[u8]) -> Result<Written> {
        fits(value)?;
        self.act(|state, _| state.book.write(expected, value))
    }

    async fn sign(&self, member: OwnerId, value: &[u8]) -> Result<Lease> {
        fits(value)?;
        let ttl = self.ttl();
        self.act(|state, now| {
            let fresh = state.engine.fresh_lease();
            let id = state.book.sign(member, value, now.store + ttl, fresh);
            Lease { id, scope: LeaseScope::Entry, ttl, deadline: self.env.deadline(now.asker, ttl) }
        })
    }

    async fn unsign(&self, member: OwnerId) -> Result<()> {
        self.act(|state, _| drop(state.book.members.remove(&member)))
    }

    async fn members(&self) -> Result<Vec<Participant>> {
        self.act(|state, _| readable(state.book.members.len()).map(|()| state.book.members()))?
    }
}
