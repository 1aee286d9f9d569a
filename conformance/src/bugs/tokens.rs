//! Counters that stand still, start again, or are counted in the wrong place; and bases that do.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{Grant, Holder, Revoke, TokenBase};
use leasehold_core::{LockName, Result};
use parking_lot::Mutex;

use super::{each_session, store, table};
use crate::layer::{Below, Layer};

table! {
    constant_token, g3::tokens_grow_from_hold_to_hold, store(Counting::new(Flaw::Constant)),
        "every hold has the same token; a random one, as Redlock's, is no better";
    token_counts_releases, g3::tokens_grow_across_expiry, store(Counting::new(Flaw::CountsReleases)),
        "the token grows at a release, so an expired hold and the next one share it";
    token_forgotten_with_its_entry, g3::force_keeps_tokens_growing, store(Counting::new(Flaw::DeletedByForce)),
        "the counter is deleted with the entry; a sequence restarts with its parent, kazoo#563";
    token_per_session, g3::tokens_grow_across_sessions, each_session(|| Counting::new(Flaw::None)),
        "every session counts for itself, as N masters with N counters do";
    base_overwritten, base::base_never_decreases, store(Bases::new(BaseFlaw::Overwritten)),
        "a SET instead of a comparison: the smaller of two raises counts if it comes last";
    base_raised_by_reading, base::highest_of_concurrent_raises_wins, store(Bases::new(BaseFlaw::ReadFirst)),
        "the base is read in one request and written in the next";
    base_not_added, base::later_sessions_get_larger_tokens, store(Bases::new(BaseFlaw::NotAdded)),
        "the base is raised and shown, and no session reads it";
    sessions_not_counted, base::live_sessions_are_counted, store(Bases::new(BaseFlaw::NotCounted)),
        "sessions with the old base live, and a move goes on without them";
}

#[derive(Debug)]
struct Counting {
    flaw: Flaw,
    granted: Mutex<HashMap<LockName, u64>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Flaw {
    /// Only that each session counts for itself.
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

/// A namespace whose base is not raised as it should be.
#[derive(Debug)]
struct Bases {
    flaw: BaseFlaw,
    base: Mutex<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BaseFlaw {
    Overwritten,
    ReadFirst,
    NotAdded,
    NotCounted,
}

impl Bases {
    fn new(flaw: BaseFlaw) -> Self {
        Self { flaw, base: Mutex::default() }
    }
}

#[async_trait]
impl Layer for Bases {
    async fn token_base(&self, below: &Below) -> Result<TokenBase> {
        let mut shown = below.backend.token_base().await?;
        match self.flaw {
            BaseFlaw::NotCounted => shown.sessions = Some(0),
            _ => shown.base = *self.base.lock(),
        }
        Ok(shown)
    }

    async fn raise_token_base(&self, below: &Below, at_least: u64) -> Result<()> {
        let before = *self.base.lock();
        let raised = match self.flaw {
            BaseFlaw::NotCounted => return below.backend.raise_token_base(at_least).await,
            BaseFlaw::Overwritten => at_least,
            BaseFlaw::ReadFirst | BaseFlaw::NotAdded => before.max(at_least),
        };
        if self.flaw == BaseFlaw::ReadFirst {
            below.env.sleep(Duration::from_millis(1)).await;
        }
        *self.base.lock() = raised;
        Ok(())
    }
}
