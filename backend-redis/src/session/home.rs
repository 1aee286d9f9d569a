//! Where the link connects that receives the messages of a cluster.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use leasehold_core::clock::Moment;
use leasehold_core::{Error, ErrorKind, Result};
use tokio_util::sync::CancellationToken;

use super::shards::{Reach, Shards};
use crate::connection::{Client, Fixed, Inbox, Link, Whereabouts};
use crate::error;

/// Any primary: the next one at each attempt.
#[derive(Debug)]
pub(super) struct Anywhere {
    shards: Weak<Shards>,
    attempts: AtomicUsize,
}

impl Anywhere {
    /// The link to a primary that can be used: one of them, and the others once that one has failed, or has not answered for a
    /// quarter of `op_timeout`; and what is wrong with the message key, if something is.
    ///
    /// # Errors
    ///
    /// Those of the first one that refuses, or of the last one if none can be reached.
    pub(super) async fn open(
        shards: &Arc<Shards>,
        inbox: &Inbox,
        closed: &CancellationToken,
    ) -> Result<(Arc<Link>, Option<String>)> {
        let env = &shards.env;
        // Managers begin at different servers.
        let attempts = AtomicUsize::new(RandomState::new().hash_one(()) as usize);
        let anywhere: Arc<dyn Whereabouts> = Arc::new(Self { shards: Arc::downgrade(shards), attempts });
        let attempt = || async {
            let home = Link::new(env.clone(), Arc::clone(&anywhere), Some(inbox.clone()), shards.asked());
            let home = Arc::new(home);
            home.start(closed.clone()).await.map(|other_key| (home, other_key))
        };
        let is_away = |error: &Error| *error.kind() == ErrorKind::Unavailable;
        let mut attempts = FuturesUnordered::from_iter([attempt()]);
        let mut failed = tokio::select! {
            biased;
            first = attempts.next() => match first {
                Some(Err(error)) if is_away(&error) => error,
                first => return first.unwrap_or_else(|| Err(error::uncovered())),
            },
            () = env.sleep(env.timing().op_timeout / 4) => error::uncovered(),
        };
        attempts.extend((1..shards.primaries().len()).map(|_| attempt()));
        while let Some(done) = attempts.next().await {
            match done {
                Err(error) if is_away(&error) => failed = error,
                done => return done,
            }
        }
        Err(failed)
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
