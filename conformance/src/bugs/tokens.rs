//! Counters that stand still, start again, or are counted in the wrong place.

use std::collections::HashMap;

use async_trait::async_trait;
use leasehold_core::backend::{Grant, Holder, Revoke};
use leasehold_core::{LockName, Result};
use parking_lot::Mutex;

use super::{each_session, store, table};
use crate::layer::{Below, Layer};

table! {
    constant_token, g3::tokens_grow_from_hold_to_hold, store(Counting::new(Flaw::Constant)),
        "every hold has the same number; a random one, as Redlock's, is no better";
    token_counts_releases, g3::tokens_grow_across_expiry, store(Counting::new(Flaw::CountsReleases)),
        "the number grows when a hold is released, so a hold that expires shares it with the next";
    token_forgotten_with_its_entry, g3::force_keeps_tokens_growing, store(Counting::new(Flaw::DeletedByForce)),
        "the counter lives in what is deleted; a sequence restarts with its parent, kazoo#563";
    token_per_session, g3::tokens_grow_across_sessions, each_session(|| Counting::new(Flaw::None)),
        "every session counts for itself, as N masters with N counters do";
}

#[derive(Debug)]
struct Counting {
    flaw: Flaw,
    granted: Mutex<HashMap<LockName, u64>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Flaw {
    /// But for who counts.
    None,
    Constant,
    CountsReleases,
    DeletedByForce,
}

impl Counting {
    fn new(flaw: Flaw) -> Self {
        Self { flaw, granted: Mutex::default() }
    }
}

#[async_trait]
impl Layer for Counting {
    fn granted(&self, _below: &Below, mut grant: Grant) -> Grant {
        let mut granted = self.granted.lock();
        let count = granted.entry(grant.name.clone()).or_insert(1);
        grant.counter = *count;
        if matches!(self.flaw, Flaw::None | Flaw::DeletedByForce) {
            *count += 1;
        }
        grant
    }

    async fn release(&self, below: &Below, grant: &Grant) -> Result<()> {
        below.backend.release(grant).await?;
        if self.flaw == Flaw::CountsReleases {
            *self.granted.lock().entry(grant.name.clone()).or_insert(1) += 1;
        }
        Ok(())
    }

    async fn revoke(&self, below: &Below, name: &LockName, how: Revoke) -> Result<Vec<Holder>> {
        if how == Revoke::Force && self.flaw == Flaw::DeletedByForce {
            self.granted.lock().remove(name);
        }
        below.backend.revoke(name, how).await
    }
}
