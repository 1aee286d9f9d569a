//! Where the link connects that receives the messages of a cluster.

use std::hash::{BuildHasher, RandomState};
use std::sync::Weak;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use leasehold_core::Result;
use leasehold_core::clock::Moment;

use super::shards::{Reach, Shards};
use crate::connection::{Client, Fixed, Whereabouts};
use crate::error;

/// Any primary: the next one at each attempt.
#[derive(Debug)]
pub(super) struct Anywhere {
    shards: Weak<Shards>,
    attempts: AtomicUsize,
}

impl Anywhere {
    /// Managers begin at different servers.
    pub(super) fn of(shards: Weak<Shards>) -> Self {
        Self { shards, attempts: AtomicUsize::new(RandomState::new().hash_one(()) as usize) }
    }
}

#[async_trait]
impl Whereabouts for Anywhere {
    async fn client(&self, give_up_at: Moment) -> Result<Client> {
        let shards = self.shards.upgrade().ok_or_else(error::closed)?;
        let primaries = shards.primaries();
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
        let address = primaries.get(attempt % primaries.len().max(1)).ok_or_else(error::uncovered)?;
        let Reach { client, login, .. } = &shards.reach;
        Fixed { client: client.at(address.clone()), login: login.clone() }.client(give_up_at).await
    }

    /// A server that does not answer requests may send no messages either.
    async fn left(&self, client: &Client) {
        if let Some(shards) = self.shards.upgrade() {
            let (link, _) = shards.links_to(client.address());
            drop(shards);
            link.lost().await;
        }
    }

    fn doubt(&self) {
        if let Some(shards) = self.shards.upgrade() {
            shards.doubt();
        }
    }
}
