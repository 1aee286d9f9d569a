//! Releases that end too much, too little, or say so wrongly.

use async_trait::async_trait;
use leasehold_core::Result;
use leasehold_core::backend::{Grant, Revoke};

use super::{Mutation, store, table};
use crate::layer::{Below, Layer};

table! {
    release_by_name, g4::a_stale_release_changes_nothing, store(Release::ByName),
        "a late release deletes the next holder's entry; etcd#22082, every DEL without owner check";
    release_answered_before_it_is_done, g4::release_frees_the_lock, store(Release::Undone),
        "local state is dropped and the entry stays; CURATOR-486, CURATOR-678";
    stale_release_is_fine, g4::a_second_release_is_lost, store(Release::AlwaysFine),
        "a release of a lost lock succeeds, which hides the loss";
    released_under_its_work, g2::a_lock_outlasts_its_work, Mutation::Work,
        "a lock is released while the work under it is in the middle of a poll";
    close_without_release, g6::closing_frees_everything, store(CloseOnly),
        "a closed session leaves its entries to their leases";
}

#[derive(Debug)]
pub(super) enum Release {
    ByName,
    Undone,
    AlwaysFine,
}

#[async_trait]
impl Layer for Release {
    async fn release(&self, below: &Below, grant: &Grant) -> Result<()> {
        if let Self::Undone = self {
            return Ok(());
        }
        let released = below.backend.release(grant).await;
        match self {
            Self::ByName if released.is_err() => {
                below.backend.revoke(&grant.name, Revoke::Force).await?;
                Ok(())
            }
            Self::AlwaysFine => Ok(()),
            Self::ByName | Self::Undone => released,
        }
    }
}

#[derive(Debug)]
struct CloseOnly;

#[async_trait]
impl Layer for CloseOnly {
    async fn close(&self, _below: &Below) -> Result<()> {
        Ok(())
    }
}
