//! What a guard has: its turn with an ownership, which ends exactly once.

use std::fmt;
use std::sync::Arc;

use crate::core::Core;
use crate::core::metrics::HoldTimer;
use crate::core::names::Name;
use crate::core::ownership::Ownership;
use crate::core::release::Ended;
use crate::words::error::{Error, Result};
use crate::words::token::FencingToken;

/// A hold of the lock; dropped, it is released in the background.
pub(crate) struct Hold {
    core: Arc<Core>,
    queue: Arc<Name>,
    ownership: Arc<Ownership>,
    token: FencingToken,
    timer: HoldTimer,
    ended: bool,
}

impl Hold {
    pub(crate) fn new(
        core: Arc<Core>,
        queue: Arc<Name>,
        ownership: Arc<Ownership>,
        token: FencingToken,
    ) -> Self {
        let timer = HoldTimer::begin(core.env());
        Self { core, queue, ownership, token, timer, ended: false }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) fn ownership(&self) -> &Arc<Ownership> {
        &self.ownership
    }

    pub(crate) fn token(&self) -> FencingToken {
        self.token
    }

    pub(crate) async fn release(mut self) -> Result<()> {
        self.ended = true;
        self.timer.end();
        match self.core.end(&self.queue, &self.ownership, self.token) {
            Ended::HandedOn | Ended::Kept => Ok(()),
            Ended::Lost(reason) => Err(Error::lost(reason).with_context("lock", self.queue.name())),
            Ended::Store => self.core.carried_release(&self.queue, &self.ownership).await,
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.ended {
            self.timer.end();
            self.core.drop_guard(&self.queue, &self.ownership, self.token);
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("token", &self.token).finish_non_exhaustive()
    }
}
