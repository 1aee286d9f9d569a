//! What is not wanted any more is released until the store confirms it or its lease is over (hold-3, B2): by whoever asks
//! for that, and by a task from when it leaves.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::join;
use leasehold_core::backend::stage::Side;
use leasehold_core::backend::{Backoff, Carried, Grant, LeaseId, LeaseScope};
use leasehold_core::{Effect, Error, ErrorKind, LockName, LostReason, Result};
use tokio_util::sync::CancellationToken;

use super::book::{Book, Todo};
use super::watched::Watched;
use super::{SIDES, Session};

/// What a store is to forget.
pub(super) struct Debt {
    /// Whose it was.
    pub(super) claim: LeaseId,
    pub(super) side: Side,
    pub(super) name: LockName,
    /// Whether it was a part that a hold needed: its release is over with this.
    needed: bool,
    /// What was granted; `None` is a request that somebody is about to drop.
    grant: Option<Grant>,
    progress: Watched<Progress>,
}

#[derive(Default)]
struct Progress {
    /// Requests that have failed.
    failures: u32,
    last: Option<Error>,
    /// It is over; with the reason if it was not released.
    over: Option<Result<()>>,
}

/// What a release finds owed at one store.
struct Owed {
    debt: Arc<Debt>,
    /// Whether the release waits for it.
    waits: bool,
    /// Whether the release settles it.
    settles: bool,
}

impl Debt {
    /// A grant, whose lease nobody renews any more.
    pub(super) fn new(claim: LeaseId, side: Side, needed: bool, grant: Grant) -> Arc<Self> {
        let (name, grant) = (grant.name.clone(), Some(grant));
        Arc::new(Self { claim, side, name, needed, grant, progress: Watched::default() })
    }

    /// A request.
    pub(super) fn of_request(claim: LeaseId, side: Side, name: LockName) -> Arc<Self> {
        Arc::new(Self { claim, side, name, needed: false, grant: None, progress: Watched::default() })
    }

    /// Ends when nothing more is done about it, whatever it came to.
    pub(super) async fn is_over(&self) {
        self.progress.until(|progress| progress.over.is_some().then_some(())).await;
    }

    /// What it came to, or why the next request fails; the one after that may be carried out.
    pub(super) async fn answer(&self) -> Result<()> {
        self.answer_after(self.progress.read(|progress| progress.failures)).await
    }

    /// The same of the request that comes after so many that have failed.
    async fn answer_after(&self, failures: u32) -> Result<()> {
        let answer = |progress: &Progress| match (&progress.over, &progress.last) {
            (Some(over), _) => Some(over.clone()),
            (None, Some(error)) if progress.failures > failures => {
                Some(Err(error.clone().with_effect(Effect::Unknown)))
            }
            (None, _) => None,
        };
        self.progress.until(answer).await
    }

    fn failed(&self, error: Error) {
        self.progress.change(|progress| {
            progress.failures += 1;
            progress.last = Some(error);
        });
    }

    fn ended(&self, over: Result<()>) {
        self.progress.change(|progress| progress.over = Some(over));
    }
}

impl Book {
    /// Whether `debt` has just been made, and is from now on settled by whoever asks this.
    fn takes_over(&mut self, debt: &Arc<Debt>) -> bool {
        let left = self.todo.len();
        self.todo.retain(|todo| !matches!(todo, Todo::Settle(other) if Arc::ptr_eq(other, debt)));
        self.todo.len() < left
    }
}

impl Session {
    /// Lets go of a hold: of everything that it has, in both stores at once.
    pub(crate) async fn release(self: &Arc<Self>, grant: &Grant) -> Result<()> {
        let id = grant.lease.id;
        let owed = self.with(|book, now| {
            if book.claim(&grant.name).is_some_and(|claim| claim.id == id) {
                book.let_go(&grant.name);
            }
            let slot = book.slots.get(&grant.name);
            let debts = SIDES.map(|side| slot?.debts[side].clone().filter(|debt| debt.claim == id));
            // Of two, one may not be waited for, and begins at once all the same.
            let is_only = debts.iter().flatten().count() == 1;
            let mut owed = |debt: Arc<Debt>| {
                let waits = debt.needed && !(debt.side == Side::Old && book.shuns_old(now));
                Owed { waits, settles: is_only && book.takes_over(&debt), debt }
            };
            debts.map(|debt| debt.map(&mut owed))
        });
        let [old, new] = owed.map(|owed| self.repaid(owed));
        match join(old, new).await {
            (Some(old), Some(new)) => old.and(new),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => {
                self.refuse_closed()?;
                Err(Error::lost(LostReason::Gone))
            }
        }
    }

    /// What a debt comes to, for whom that counts. It is settled here, and by a task from when the caller leaves.
    async fn repaid(self: &Arc<Self>, owed: Option<Owed>) -> Option<Result<()>> {
        let Owed { debt, waits, settles } = owed?;
        let settled = settles.then(|| {
            let settled = Arc::clone(self).settle_debt(Arc::clone(&debt)).boxed();
            Carried::new(&self.env, CancellationToken::new(), settled)
        });
        Some(match settled {
            _ if !waits => Ok(()),
            None => debt.answer().await,
            Some(settled) => tokio::select! {
                biased;
                () = settled => debt.answer_after(0).await,
                answer = debt.answer_after(0) => answer,
            },
        })
    }

    /// Releases what was granted until that is over.
    pub(super) async fn settle_debt(self: Arc<Self>, debt: Arc<Debt>) {
        if let Some(grant) = &debt.grant {
            let over = self.released(&debt, grant).await;
            self.settle(&debt, over);
        }
    }

    /// Nothing more is done about it.
    pub(super) fn settle(self: &Arc<Self>, debt: &Arc<Debt>, over: Result<()>) {
        // First the slot: whoever hears that it is over may ask again.
        self.with(|book, _| book.settled(debt));
        debt.ended(over);
    }

    /// Asks the store to release `grant` until it confirms that, or its lease is over. An entry that stays in a session ends
    /// with that: it is given up.
    pub(super) async fn released(self: &Arc<Self>, debt: &Debt, grant: &Grant) -> Result<()> {
        let released = self.release_at(debt, grant).await;
        if let Err(error) = &released {
            tracing::debug!(error = %format_args!("{error:#}"), lock = %grant.name, "not released in one store");
            if grant.lease.scope == LeaseScope::Session && error.lost_reason().is_none() {
                self.with(|book, _| {
                    book.lease_over(debt.side, grant.lease.id, LostReason::SessionLost);
                    book.todo.push(Todo::GiveUp(debt.side, grant.lease.id));
                });
            }
        }
        released
    }

    async fn release_at(&self, debt: &Debt, grant: &Grant) -> Result<()> {
        let env = &self.env;
        let Some(open) = self.stores[debt.side].open.get() else { return Ok(()) };
        let in_session = grant.lease.scope == LeaseScope::Session;
        // A renewal whose answer was lost may have extended an entry's lease to just that.
        let give_up_at = env.now() + grant.lease.ttl;
        let mut backoff = Backoff::of_requests(env);
        let mut effect = Effect::NotApplied;
        loop {
            let Err(error) = env.bounded(open.backend.release(grant)).await else { return Ok(()) };
            match (error.lost_reason(), effect) {
                // An earlier request has done it.
                (Some(LostReason::Gone), Effect::Unknown) if env.now() < give_up_at => return Ok(()),
                (Some(_), _) => return Err(error),
                (None, Effect::NotApplied) => effect = error.effect(),
                (None, Effect::Unknown) => {}
            }
            let error = error.with_effect(effect);
            if ends_release(error.kind(), in_session) || give_up_at <= env.now() {
                return Err(error);
            }
            debt.failed(error.clone());
            env.sleep_until((env.now() + backoff.next(env)).min(give_up_at)).await;
            if give_up_at <= env.now() {
                return Err(error);
            }
        }
    }
}

/// Whether asking again is of no use, as in the core.
fn ends_release(kind: &ErrorKind, in_session: bool) -> bool {
    use ErrorKind::{Closed, Denied, InvalidName, InvalidOption, Misuse, Unsupported};
    match kind {
        Closed => true,
        Denied | InvalidName | InvalidOption | Misuse | Unsupported => in_session,
        _ => false,
    }
}
