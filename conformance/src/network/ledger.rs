//! A ledger beyond the network.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::backend::ledger::{Entry, MoveLedger, Participant, Written};
use leasehold_core::backend::{Lease, LockBackend};
use leasehold_core::{OwnerId, Result};

use super::Operation;
use super::flight::Link;
use super::line::earlier;
use crate::layer::Below;

#[derive(Debug)]
pub(super) struct FarLedger {
    pub(super) link: Link,
    pub(super) below: Below,
}

fn of(store: &Arc<dyn LockBackend>) -> Arc<dyn MoveLedger> {
    store.ledger().expect("a store that has a ledger keeps it")
}

#[async_trait]
impl MoveLedger for FarLedger {
    async fn read(&self) -> Result<Option<Entry>> {
        self.link
            .ask(
                &self.below,
                Operation::ReadRecord,
                (),
                |store, (), _| async move { of(&store).read().await },
            )
            .await
    }

    async fn write(&self, expected: Option<u64>, value: &[u8]) -> Result<Written> {
        let question = (expected, value.to_vec());
        self.link
            .ask(&self.below, Operation::WriteRecord, question, |store, (expected, value), _| async move {
                of(&store).write(expected, &value).await
            })
            .await
    }

    async fn sign(&self, member: OwnerId, value: &[u8]) -> Result<Lease> {
        let question = (member, value.to_vec());
        self.link
            .ask(&self.below, Operation::Sign, question, |store, (member, value), way| async move {
                let mut lease = of(&store).sign(member, &value).await?;
                lease.deadline = earlier(lease.deadline, way);
                Ok(lease)
            })
            .await
    }

    async fn unsign(&self, member: OwnerId) -> Result<()> {
        self.link
            .ask(&self.below, Operation::Unsign, member, |store, member, _| async move {
                of(&store).unsign(member).await
            })
            .await
    }

    async fn members(&self) -> Result<Vec<Participant>> {
        self.link
            .ask(
                &self.below,
                Operation::Members,
                (),
                |store, (), _| async move { of(&store).members().await },
            )
            .await
    }
}
