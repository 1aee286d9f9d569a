//! Sends a release of a grant until the store confirms it, or refuses for good, or it is too late; before that, waits for the
//! work under it.
//!
//! # Invariants
//! - **confirm-1** Every release ends: confirmed, or with the reason why not, at the latest one ttl and one
//!   request after it began. A session that is kept alive for others would keep the entry: the caller ends it then.
//! - **confirm-2** Nothing is sent after the end of the lease, a first attempt apart.
//!
//! Checked by the conformance cases of `g4` and `g5`, and `tests/local`.

use tokio_util::task::TaskTracker;

use crate::backend::{Backoff, LeaseScope};
use crate::clock::{Deadline, Moment};
use crate::core::context::Context;
use crate::core::leases::Leases;
use crate::core::ownership::Ownership;
use crate::words::error::{Effect, ErrorKind, Result};
use crate::words::loss::LostReason;

/// Waits until the works under an ownership that has ended are dropped: until its own lease ends, or else for a ttl.
pub(crate) async fn until_dropped(works: &TaskTracker, context: &Context, ownership: &Ownership) {
    let (env, lease) = (&context.env, &ownership.grant.lease);
    let until = match ownership.last_deadline() {
        Deadline::At(at) if lease.scope == LeaseScope::Entry => at,
        // A session is renewed for others.
        Deadline::At(_) | Deadline::Never => env.now() + lease.ttl,
    };
    if until <= env.now() {
        return;
    }
    tokio::select! {
        biased;
        () = works.wait() => {}
        () = env.gone() => {}
        () = env.sleep_until(until) => tracing::warn!(
            lock = %ownership.grant.name,
            "work still runs after its lock was lost; releasing: check `ensure_held`, and give the token to what it writes to"
        ),
    }
}

/// Releases the grant of an ownership that has ended.
pub(crate) async fn release_until_confirmed(
    context: &Context,
    leases: &Leases,
    ownership: &Ownership,
) -> Result<()> {
    let (grant, deadline) = (&ownership.grant, ownership.last_deadline());
    let (env, began) = (&context.env, context.env.now());
    let in_session = grant.lease.scope == LeaseScope::Session;
    // A session is renewed for others, so its deadline moves on. Without a lease nothing ends the lock but us;
    // a ttl is as long as any caller would wait.
    let lease_ends_at = || match leases.session_deadline(&grant.lease).unwrap_or(deadline) {
        Deadline::At(at) => at,
        Deadline::Never => began + env.timing().ttl,
    };
    let give_up_at = || {
        let patience = if in_session { began + grant.lease.ttl } else { Moment::LAST };
        patience.min(lease_ends_at())
    };
    let mut backoff = Backoff::of_requests(env);
    let mut effect = Effect::NotApplied;
    loop {
        let Err(error) = env.bounded(context.backend.release(grant)).await else {
            return Ok(());
        };
        match (error.lost_reason(), effect) {
            // An earlier try of this release must have done it: nothing else could, before the deadline. The end of a session
            // proves nothing about the entry.
            (Some(LostReason::Gone), Effect::Unknown) if env.now() < lease_ends_at() => return Ok(()),
            (Some(_), _) => return Err(error.with_effect(effect)),
            (None, Effect::NotApplied) => effect = error.effect(),
            (None, Effect::Unknown) => {}
        }
        let unconfirmed = error.with_effect(effect);
        if is_final(unconfirmed.kind(), in_session) {
            return Err(unconfirmed);
        }
        tokio::select! {
            biased;
            () = env.sleep_until((env.now() + backoff.next(env)).min(give_up_at())) => {}
            () = env.gone() => return Err(unconfirmed),
        }
        if give_up_at() <= env.now() {
            return Err(unconfirmed);
        }
    }
}

/// Whether asking again is of no use. An entry with a lease of its own may wait for that to end; one
/// in a session ends with the session, and the sooner the better.
fn is_final(kind: &ErrorKind, in_session: bool) -> bool {
    use ErrorKind::{Closed, Denied, InvalidName, InvalidOption, Misuse, Unsupported};
    match kind {
        Closed => true,
        Denied | InvalidName | InvalidOption | Misuse | Unsupported => in_session,
        _ => false,
    }
}
