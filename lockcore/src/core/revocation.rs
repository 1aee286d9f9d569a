//! Requesting that holders release a lock, and waiting for that.
//!
//! Stores only deliver the request. Inspecting the lock shows whether every holder has released it, so it is the same on every
//! store. How a hold has ended is not shown, only when: a holder that received the request, or whose lease was renewed until
//! then, has its time, and one that still holds after that is late.
//!
//! Checked by the conformance cases of `g4` and the tests in `tests/api/revoked.rs`.

use crate::backend::{Backoff, LockState};
use crate::clock::timing::Timing;
use crate::core::context::Context;
use crate::words::error::{Effect, Result};
use crate::words::name::LockName;
use crate::words::revoke::{Revocation, Revoke};

/// Requests that `name` is released, and waits for that.
pub(crate) async fn revoke(context: &Context, name: &LockName, how: Revoke) -> Result<Revocation> {
    let how = how.checked()?;
    let env = &context.env;
    let asked = env.bounded(context.backend.revoke(name, how)).await?;
    let ttls = asked.iter().map(|holder| holder.ttl.unwrap_or_else(|| env.timing().ttl));
    let Some(ttl) = ttls.max() else {
        return Ok(Revocation::NotHeld);
    };
    let Revoke::Ask { grace } = how else {
        return Ok(Revocation::Released);
    };
    if asked.iter().any(|holder| holder.foreign) {
        return Ok(Revocation::Foreign);
    }
    // A foreign client may have written any ttl into the store.
    let ttl = ttl.min(Timing::MAX_TTL);
    let hold_on =
        |now: &LockState| asked.iter().any(|holder| now.holders.iter().any(|now| holder.is_same_grant(now)));
    let asked_at = env.now();
    // A lease that was renewed every third of its ttl lasts for two thirds of it.
    let late_from = asked_at + (grace + env.timing().op_timeout).max(ttl * 2 / 3);
    let give_up_at = asked_at + grace + ttl;
    let mut ended = Revocation::Released;
    let mut looks = Backoff::new(env.timing().op_timeout / 16, env.timing().ttl / 3);
    loop {
        let now = env.now();
        let mark = if now < late_from { late_from.min(give_up_at) } else { give_up_at };
        env.sleep_until((now + looks.next(env)).min(mark)).await;
        let (is_late, is_last) = (late_from <= env.now(), give_up_at <= env.now());
        match env.bounded(context.backend.inspect(name)).await {
            Ok(now) if !hold_on(&now) => return Ok(ended),
            Ok(_) if is_last => return Ok(Revocation::Unanswered),
            Err(error) if is_last => return Err(error.with_effect(Effect::Unknown)),
            // The request was sent all the same; the next inspection may be answered.
            Err(error) => {
                tracing::debug!(lock = %name, error = ?format!("{error:#}"), "cannot read the holder's \
                     state; retrying")
            }
            Ok(_) if is_late => ended = Revocation::Late,
            Ok(_) => {}
        }
    }
}
