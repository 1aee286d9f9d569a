//! What a guard has: its turn with a tenure, which ends exactly once.

use std::fmt;
use std::sync::Arc;

use crate::core::Core;
use crate::core::metrics::HoldTimer;
use crate::core::release::Ended;
use crate::core::tenure::Tenure;
use crate::words::error::{Error, Result};
use crate::words::token::FencingToken;

/// A hold of the lock; dropped, it is released in the background.
pub(crate) struct Held {
    core: Arc<Core>,
    tenure: Arc<Tenure>,
    token: FencingToken,
    timer: HoldTimer,
    ended: bool,
}

impl Held {
    pub(crate) fn new(core: Arc<Core>, tenure: Arc<Tenure>, token: FencingToken) -> Self {
        let timer = HoldTimer::begin(core.env());
        Self { core, tenure, token, timer, ended: false }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) fn tenure(&self) -> &Arc<Tenure> {
        &self.tenure
    }

    pub(crate) fn token(&self) -> FencingToken {
        self.token
    }

    pub(crate) async fn release(mut self) -> Result<()> {
        self.ended = true;
        self.timer.end();
        match self.core.end(&self.tenure, self.token) {
            Ended::HandedOn | Ended::Kept => Ok(()),
            Ended::Lost(reason) => Err(Error::lost(reason).with_context("lock", &self.tenure.grant().name)),
            Ended::Store => self.core.carried_release(&self.tenure).await,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.ended {
            self.timer.end();
            self.core.drop_guard(&self.tenure, self.token);
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("token", &self.token).finish_non_exhaustive()
    }
}
