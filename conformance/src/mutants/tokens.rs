//! Counters that stand still, start again, or are counted in the wrong place.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use lockcore::backend::{AcquireRequest, Attempt, Grant, Holder, Revoke};
use lockcore::{LockName, Result};
use parking_lot::Mutex;

use super::{Mutant, Mutation};
use crate::layer::{Below, Layer, per_session, shared};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "constant_token",
        story: "every hold has the same number; a random one, as Redlock's, is no better",
        caught_by: "g3::tokens_grow_from_hold_to_hold",
        make: || Mutation::Store(shared(Arc::new(Counting::new(Flaw::Constant)))),
    },
    Mutant {
        name: "token_counts_releases",
        story: "the number grows when a hold is released, so a hold that expires shares it with the next",
        caught_by: "g3::tokens_grow_across_expiry",
        make: || Mutation::Store(shared(Arc::new(Counting::new(Flaw::CountsReleases)))),
    },
    Mutant {
        name: "token_forgotten_with_its_entry",
        story: "the counter lives in what is deleted; a sequence restarts with its parent, kazoo#563",
        caught_by: "g3::force_keeps_tokens_growing",
        make: || Mutation::Store(shared(Arc::new(Counting::new(Flaw::DeletedByForce)))),
    },
    Mutant {
        name: "token_per_session",
        story: "every session counts for itself, as N masters with N counters do",
        caught_by: "g3::tokens_grow_across_sessions",
        make: || Mutation::Store(per_session(|| Arc::new(Counting::new(Flaw::None)))),
    },
];

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

    fn number(&self, mut grant: Grant) -> Grant {
        let mut granted = self.granted.lock();
        let count = granted.entry(grant.name.clone()).or_insert(1);
        grant.counter = *count;
        if matches!(self.flaw, Flaw::None | Flaw::DeletedByForce) {
            *count += 1;
        }
        grant
    }
}

#[async_trait]
impl Layer for Counting {
    async fn try_acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Attempt> {
        Ok(match below.backend.try_acquire(request).await? {
            Attempt::Granted(grant) => Attempt::Granted(self.number(grant)),
            held @ Attempt::Held { .. } => held,
        })
    }

    async fn acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Grant> {
        below.backend.acquire(request).await.map(|grant| self.number(grant))
    }

    async fn release(&self, below: &Below, grant: &Grant) -> Result<()> {
        below.backend.release(grant).await?;
        if self.flaw == Flaw::CountsReleases {
            *self.granted.lock().entry(grant.name.clone()).or_insert(1) += 1;
        }
        Ok(())
    }

    async fn revoke(&self, below: &Below, name: &LockName, how: Revoke) -> Result<Option<Holder>> {
        if how == Revoke::Force && self.flaw == Flaw::DeletedByForce {
            self.granted.lock().remove(name);
        }
        below.backend.revoke(name, how).await
    }
}
