//! The contract of a ledger, on the in-memory store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use super::engine::Now;
use super::store::{MemoryStore, StoreState};
use crate::backend::env::Env;
use crate::backend::ledger::{Entry, MoveLedger, Participant, Written, fits, readable};
use crate::backend::{Lease, LeaseScope, closed};
use crate::words::error::Result;
use crate::words::owner::OwnerId;

/// The ledger of one session.
#[derive(Debug)]
pub(super) struct MemoryLedger {
    pub(super) store: MemoryStore,
    pub(super) env: Env,
    pub(super) closed: Arc<AtomicBool>,
}

impl MemoryLedger {
    fn act<R>(&self, act: impl FnOnce(&mut StoreState, Now) -> R) -> Result<R> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(closed());
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
