//! Inspections that return an older holder.

use async_trait::async_trait;
use leasehold_core::backend::LockState;
use leasehold_core::{LockName, Result};
use parking_lot::Mutex;

use super::{each_session, table};
use crate::layer::{Below, For, Layer};

table! {
    shows_the_first_for_ever, g10::watch_shows_whoever_holds, each_session(|| Shown::new(false)),
        "the first holder is shown without end; a copy that is never read again";
    never_shows_the_end, g10::watch_shows_whoever_holds, each_session(|| Shown::new(true)),
        "the end of a hold is never reported, so the last leader is shown without end: `Observe` of etcd's \
         election";
}

/// What this session was shown.
#[derive(Debug)]
struct Shown {
    seen: Mutex<Option<LockState>>,
    follows: bool,
}

impl Shown {
    fn new(follows: bool) -> Self {
        Self { seen: Mutex::default(), follows }
    }
}

#[async_trait]
impl Layer for Shown {
    async fn inspect(&self, below: &Below, name: &LockName, whom: For) -> Result<LockState> {
        let state = whom.inspect(&*below.backend, name).await?;
        let mut seen = self.seen.lock();
        match &*seen {
            Some(before) if before.name == *name && (!self.follows || state.holders.is_empty()) => {
                Ok(before.clone())
            }
            _ => {
                if !state.holders.is_empty() {
                    *seen = Some(state.clone());
                }
                Ok(state)
            }
        }
    }
}
