//! Releases that end too much, too little, or say so wrongly.

use std::sync::Arc;

use async_trait::async_trait;
use lockcore::Result;
use lockcore::backend::{Grant, Revoke};

use super::{Mutant, Mutation};
use crate::layer::{Below, Layer, shared};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "release_by_name",
        story: "a late release deletes the next holder's entry; etcd#22082, every DEL without owner check",
        caught_by: "g4::a_stale_release_changes_nothing",
        make: || Mutation::Store(shared(Arc::new(Release::ByName))),
    },
    Mutant {
        name: "release_answered_before_it_is_done",
        story: "local state is dropped and the entry stays; CURATOR-486, CURATOR-678",
        caught_by: "g4::release_frees_the_lock",
        make: || Mutation::Store(shared(Arc::new(Release::Undone))),
    },
    Mutant {
        name: "stale_release_is_fine",
        story: "a release of what is not held any more is answered with success, which hides the loss",
        caught_by: "g4::a_second_release_is_lost",
        make: || Mutation::Store(shared(Arc::new(Release::AlwaysFine))),
    },
    Mutant {
        name: "close_without_release",
        story: "a closed session leaves its entries to their leases",
        caught_by: "g6::closing_frees_everything",
        make: || Mutation::Store(shared(Arc::new(CloseOnly))),
    },
];

#[derive(Debug)]
enum Release {
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
                released
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
