//! A missing reply, reported as something else.

use async_trait::async_trait;
use leasehold_core::backend::{AcquireRequest, Attempt};
use leasehold_core::{Error, ErrorKind, Result};

use super::{store, table};
use crate::layer::{Below, Layer};

table! {
    unreachable_means_held, g5::an_unreachable_store_is_not_a_busy_lock, store(Silence::IsHeld),
        "a missing reply counts as a refusal; locks whose `acquire` returns false on any error";
    unknown_means_not_applied, g5::a_try_with_a_lost_reply_leaves_nothing, store(Silence::IsNotApplied),
        "an unconfirmed request is reported as not applied";
}

#[derive(Debug)]
enum Silence {
    IsHeld,
    IsNotApplied,
}

#[async_trait]
impl Layer for Silence {
    async fn try_acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Attempt> {
        let patience = below.env.timing().op_timeout / 2;
        tokio::select! {
            biased;
            attempt = below.backend.try_acquire(request) => attempt,
            () = below.env.sleep(patience) => match self {
                Self::IsHeld => Ok(Attempt::Held { holder: None }),
                Self::IsNotApplied => Err(Error::not_applied(ErrorKind::Unavailable, "no answer")),
            },
        }
    }
}
