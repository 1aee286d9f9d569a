//! A part that a store is to forget: one of a hold that is not wanted any more, or a request for one.

use std::ops::ControlFlow;
use std::sync::Arc;

use leasehold_core::backend::stage::Side;
use leasehold_core::backend::{Grant, LeaseId, LeaseScope};
use leasehold_core::clock::Moment;
use leasehold_core::{Effect, Env, Error, ErrorKind, LockName, LostReason, Result};

use super::watched::Watched;

/// The part that a store is to forget.
pub(super) struct PendingCleanup {
    /// Whose it was.
    pub(super) claim: LeaseId,
    pub(super) side: Side,
    /// Whether it was a part that a hold needed: its release is over with this.
    pub(super) needed: bool,
    pub(super) name: LockName,
    /// The grant; without one it is a request that is about to be dropped.
    pub(super) grant: Option<Grant>,
    since: Moment,
    pub(super) progress: Watched<Progress>,
}

#[derive(Default)]
pub(super) struct Progress {
    /// Requests that have failed.
    failures: u32,
    /// Whether one of them may have been carried out.
    pub(super) unknown: bool,
    pub(super) last: Option<Error>,
    /// It is over; with the reason if it was not released.
    over: Option<Result<()>>,
}

impl PendingCleanup {
    /// A grant, whose lease is not renewed any more.
    pub(super) fn of_grant(
        claim: LeaseId,
        side: Side,
        needed: bool,
        grant: Grant,
        since: Moment,
    ) -> Arc<Self> {
        let (name, grant, progress) = (grant.name.clone(), Some(grant), Watched::default());
        Arc::new(Self { claim, side, needed, name, grant, since, progress })
    }

    pub(super) fn of_request(claim: LeaseId, side: Side, name: LockName, since: Moment) -> Arc<Self> {
        let progress = Watched::default();
        Arc::new(Self { claim, side, needed: false, name, grant: None, since, progress })
    }

    /// Ends when nothing more is done about it, whatever it came to.
    pub(super) async fn is_over(&self) {
        self.progress.until(|progress| progress.over.is_some().then_some(())).await;
    }

    /// Its result, or the reason why the next request fails; the one after that may be carried out.
    pub(super) async fn answer(&self) -> Result<()> {
        let failures = self.progress.read(|progress| progress.failures);
        let answer = |progress: &Progress| match (&progress.over, &progress.last) {
            (Some(over), _) => Some(over.clone()),
            (None, Some(error)) if progress.failures > failures => {
                Some(Err(error.clone().with_effect(Effect::Unknown)))
            }
            (None, _) => None,
        };
        self.progress.until(answer).await
    }

    /// When what is left of `grant` ends by itself: a renewal whose answer was lost may have extended an entry's lease to
    /// just that.
    pub(super) fn gives_up_at(&self, grant: &Grant) -> Moment {
        self.since + grant.lease.ttl
    }

    /// The outcome of the release of `grant` after a reply; or why it is sent again.
    pub(super) fn heard(
        &self,
        grant: &Grant,
        answer: Result<()>,
        env: &Env,
    ) -> ControlFlow<Result<()>, Error> {
        let Err(error) = answer else { return ControlFlow::Break(Ok(())) };
        let unknown = self.progress.read(|progress| progress.unknown);
        let (too_late, in_session) =
            (self.gives_up_at(grant) <= env.now(), grant.lease.scope == LeaseScope::Session);
        match error.lost_reason() {
            // An earlier request has done it.
            Some(LostReason::Gone) if unknown && !too_late => return ControlFlow::Break(Ok(())),
            Some(_) => return ControlFlow::Break(Err(error)),
            None => {}
        }
        let error = if unknown { error.with_effect(Effect::Unknown) } else { error };
        if ends_release(error.kind(), in_session) || too_late {
            return ControlFlow::Break(Err(error));
        }
        self.progress.change(|progress| {
            progress.failures += 1;
            progress.unknown = error.effect() == Effect::Unknown;
            progress.last = Some(error.clone());
        });
        ControlFlow::Continue(error)
    }

    pub(super) fn ended(&self, over: Result<()>) {
        self.progress.change(|progress| progress.over = Some(over));
    }
}

/// Whether asking again is of no use, as in the core.
fn ends_release(kind: &ErrorKind, in_session: bool) -> bool {
    use ErrorKind::{Closed, Denied, InvalidName, InvalidOption, Misuse, Unsupported};
    let is_refused = matches!(kind, Denied | InvalidName | InvalidOption | Misuse | Unsupported);
    *kind == Closed || in_session && is_refused
}
