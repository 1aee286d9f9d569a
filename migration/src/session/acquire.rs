//! Acquires a lock: carries out the [`Contender`] until it ends.
//!
//! # Invariants
//! - **attempt-1** An acquisition that is dropped, or ends with an error, leaves nothing behind: its requests are dropped with
//!   it, and a task releases its grants (B2).
//! - **attempt-2** A place that is lost in a store's queue ends the acquisition, and the core repeats it. A place in the queue
//!   of the new store is requested again here, as the other store's lock is held meanwhile; in `drain` so is one in the other
//!   queue.
//! - **attempt-3** Every request to a store has an owner id of its own.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use leasehold_core::backend::stage::Side;
use leasehold_core::backend::{AcquireRequest, Attempt, Backoff, Grant, Holder, Lease, LeaseId, LeaseScope};
use leasehold_core::clock::{Deadline, Moment};
use leasehold_core::{Error, ErrorKind, LockName, LostReason, Result};
use tokio::sync::Notify;

use super::book::Book;
use super::claim::{Claim, Stage};
use super::{SIDES, Session};
use crate::protocol::Pair;
use crate::protocol::contender::{Contender, End, Step};
use crate::protocol::hold::PairHold;
use crate::protocol::parts::{Act, Part};

/// How long an unreachable old store is left out, while it is only drained.
const SHUNNED: Duration = Duration::from_secs(5);

impl Session {
    /// Tries to acquire the lock, or waits for it. An acquisition that waits never returns `Held`.
    pub(crate) async fn acquire(self: &Arc<Self>, request: &AcquireRequest, waits: bool) -> Result<Attempt> {
        let begun = self.with(|book, now| {
            // RACE: a request that begins before this is woken by the end of the session.
            self.refuse_closed()?;
            let (id, wake) = book.begin(request);
            Ok((id, wake, book.next(request, id, now)))
        });
        let (id, wake, next) = begun?;
        let (asks, read) = (Pair::default(), None);
        let (session, busy, has_asked, over) = (self, None, false, false);
        let backoff = Backoff::of_requests(&self.env);
        let mut acquisition =
            Acquisition { session, request, id, wake, waits, asks, read, busy, has_asked, backoff, over };
        let mut next = next?;
        loop {
            for side in SIDES {
                if let Some(at_once) = next.asks[side] {
                    acquisition.asks[side] = Some(acquisition.asking(side, at_once));
                }
            }
            match next.then {
                Then::Drop(side) => acquisition.asks[side] = None,
                Then::Read => acquisition.read = Some(Box::pin(self.read(Side::Old))),
                Then::Granted(grant) => {
                    acquisition.over = true;
                    return Ok(Attempt::Granted(grant));
                }
                Then::Over(End::Busy(_)) => {
                    let holder = acquisition.busy.take();
                    // RACE: the store may have reported the same holder before it answered, and the process may end then.
                    self.until_noted().await;
                    return Ok(Attempt::Held { holder });
                }
                Then::Over(End::Outside) => {
                    let message = "the store's number of this grant is outside the range of the move: see \
                                   `leasehold migrate status`";
                    return Err(Error::not_applied(ErrorKind::Protocol, message));
                }
                Then::Over(End::Failed(_) | End::Unwanted) => unreachable!("its error was returned"),
                Then::Blind => Box::pin(self.view_or_why()).await?,
                Then::Wait(until) => {
                    let mut over = until.map(|until| self.env.sleep_until(until));
                    let wake = Arc::clone(&acquisition.wake);
                    let mut wake = pin!(wake.notified());
                    let woken = poll_fn(|cx| acquisition.poll_woken(wake.as_mut(), over.as_mut(), cx)).await;
                    next = acquisition.after(woken)?;
                    continue;
                }
            }
            next = acquisition.knowing(|_| ())?;
        }
    }

    /// Requests the lock of a store once that is allowed, with a new owner id every time. A request that `shuns` does not go to
    /// the old store while that is drained and cannot be reached.
    pub(super) async fn ask(
        self: &Arc<Self>,
        side: Side,
        request: &AcquireRequest,
        waits: bool,
        shuns: bool,
    ) -> Result<Attempt> {
        self.until_free_to_ask(side, &request.name, shuns).await?;
        let mut request = request.clone();
        request.owner = self.env.owner_id();
        self.ask_now(side, &request, waits).await
    }

    /// Ends when nothing of `name` is at the store any more (session-1). A request that shuns the old store does not wait for
    /// it while it cannot be reached.
    async fn until_free_to_ask(self: &Arc<Self>, side: Side, name: &LockName, shuns: bool) -> Result<()> {
        loop {
            let (pending, drains, shunned) = self.with(|book, now| {
                (
                    book.pending_cleanup(name, side),
                    book.drains(),
                    shuns && side == Side::Old && book.shuns_old(now),
                )
            });
            if shunned {
                let message = "the old store is not reachable";
                return Err(Error::not_applied(ErrorKind::Unavailable, message));
            }
            let Some(cleanup) = pending else { return Ok(()) };
            match cleanup.answer().await {
                // It is waited for only while it can be reached.
                Err(error) if side == Side::Old && drains && *error.kind() == ErrorKind::Unavailable => {
                    return Err(error);
                }
                _ => cleanup.is_over().await,
            }
        }
    }

    async fn ask_now(&self, side: Side, request: &AcquireRequest, waits: bool) -> Result<Attempt> {
        let backend = &self.open(side)?.backend;
        if waits {
            return backend.acquire(request).await.map(Attempt::Granted);
        }
        Box::pin(self.env.bounded(backend.try_acquire(request))).await
    }
}

struct Acquisition<'a> {
    session: &'a Arc<Session>,
    request: &'a AcquireRequest,
    id: LeaseId,
    wake: Arc<Notify>,
    waits: bool,
    asks: Pair<Option<BoxFuture<'a, Result<Attempt>>>>,
    read: Option<BoxFuture<'a, Result<()>>>,
    busy: Option<Holder>,
    has_asked: bool,
    /// Between places that were lost.
    backoff: Backoff,
    /// It was granted, or another owner has the name.
    over: bool,
}

/// The next actions: first the requests, then the rest.
struct Next {
    /// Where to ask, and whether that may be done at once.
    asks: Pair<Option<bool>>,
    then: Then,
}

enum Then {
    Drop(Side),
    Read,
    Granted(Grant),
    Over(End),
    Blind,
    /// Wait, at most until a part expires.
    Wait(Option<Moment>),
}

enum Woken {
    Answered(Side, Result<Attempt>),
    Read(Result<()>),
    ToLook,
}

impl Acquisition<'_> {
    /// The next actions once the book has learned more.
    fn knowing(&self, learn: impl FnOnce(&mut Book)) -> Result<Next> {
        self.session.with(|book, now| {
            learn(book);
            book.next(self.request, self.id, now)
        })
    }

    /// Ready when something has changed.
    fn poll_woken(
        &mut self,
        wake: Pin<&mut impl Future>,
        over: Option<&mut (impl Future + Unpin)>,
        cx: &mut Context<'_>,
    ) -> Poll<Woken> {
        for side in SIDES {
            if let Some(answer) = polled(&mut self.asks[side], cx) {
                return Poll::Ready(Woken::Answered(side, answer));
            }
        }
        if wake.poll(cx).is_ready() {
            return Poll::Ready(Woken::ToLook);
        }
        if let Some(read) = polled(&mut self.read, cx) {
            return Poll::Ready(Woken::Read(read));
        }
        match over {
            Some(over) => Pin::new(over).poll(cx).map(|_| Woken::ToLook),
            None => Poll::Pending,
        }
    }

    fn after(&mut self, woken: Woken) -> Result<Next> {
        let (request, id) = (self.request, self.id);
        match woken {
            Woken::ToLook => {
                self.session.refuse_closed()?;
                self.knowing(|_| ())
            }
            Woken::Read(read) => {
                read?;
                self.knowing(|book| {
                    book.contending(request, id, |contender| contender.read());
                })
            }
            Woken::Answered(side, Ok(Attempt::Granted(grant))) => {
                self.knowing(|book| book.granted(&request.name, id, side, grant))
            }
            Woken::Answered(side, Ok(Attempt::Held { holder })) => {
                self.busy = self.session.with(|book, _| {
                    book.contending(request, id, |contender| contender.busy(side));
                    let holder = holder?;
                    book.meet(side, &request.name, &holder);
                    Some(book.known_to_all(side, &request.name, holder))
                });
                self.knowing(|_| ())
            }
            Woken::Answered(side, Err(error)) if self.asks_again(side, &error) => {
                self.asks[side] = Some(self.asking_again(side));
                self.knowing(|_| ())
            }
            Woken::Answered(side, Err(error)) => {
                let shunned = self.session.with(|book, now| {
                    let shunned = book.contending(request, id, |contender| {
                        contender.failed(side, *error.kind() == ErrorKind::Unavailable);
                        contender.parts[side] == Part::Shunned
                    });
                    if shunned == Some(true) && !book.shuns_old(now) {
                        book.shunned_until = Some(now + SHUNNED);
                        book.warn_of_shunning();
                    }
                    shunned == Some(true)
                });
                if shunned { self.knowing(|_| ()) } else { Err(error) }
            }
        }
    }
}

impl<'a> Acquisition<'a> {
    /// Whether a lost place is requested anew here (attempt-2).
    fn asks_again(&self, side: Side, error: &Error) -> bool {
        let is_kept = side == Side::New || self.session.with(|book, _| book.drains());
        self.waits && is_kept && error.lost_reason().is_some()
    }

    fn asking(&mut self, side: Side, at_once: bool) -> BoxFuture<'a, Result<Attempt>> {
        let (session, request, waits) = (self.session, self.request, self.waits);
        // The first request has the owner id of the acquisition (attempt-3).
        if at_once && !std::mem::replace(&mut self.has_asked, true) {
            return Box::pin(session.ask_now(side, request, waits));
        }
        Box::pin(session.ask(side, request, waits, true))
    }

    /// The same after a place was lost.
    fn asking_again(&mut self, side: Side) -> BoxFuture<'a, Result<Attempt>> {
        let (session, request, waits) = (self.session, self.request, self.waits);
        let pause = self.backoff.next(&session.env);
        Box::pin(async move {
            session.env.sleep(pause).await;
            session.ask(side, request, waits, true).await
        })
    }
}

/// The answer, if a request is pending and has one. Then no request is pending any more.
fn polled<F: Future + Unpin>(asked: &mut Option<F>, cx: &mut Context<'_>) -> Option<F::Output> {
    match Pin::new(asked.as_mut()?).poll(cx) {
        Poll::Ready(answer) => {
            *asked = None;
            Some(answer)
        }
        Poll::Pending => None,
    }
}

impl Drop for Acquisition<'_> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let (request, id) = (self.request, self.id);
        self.session.with(|book, _| book.let_go(&request.name, id));
    }
}

impl Book {
    fn contending<R>(
        &mut self,
        request: &AcquireRequest,
        id: LeaseId,
        act: impl FnOnce(&mut Contender) -> R,
    ) -> Option<R> {
        let claim = self.claim(&request.name).filter(|claim| claim.id == id)?;
        match &mut claim.stage {
            Stage::Asking { contender, .. } => Some(act(contender)),
            Stage::Holding { .. } => None,
        }
    }

    fn next(&mut self, request: &AcquireRequest, id: LeaseId, now: Moment) -> Result<Next> {
        let mut asks = Pair::default();
        loop {
            if let Some(then) = self.told_by_contender(request, id, now, &mut asks)? {
                return Ok(Next { asks, then });
            }
        }
    }

    /// The next action, with the requests apart; nothing if it is done already.
    fn told_by_contender(
        &mut self,
        request: &AcquireRequest,
        id: LeaseId,
        now: Moment,
        asks: &mut Pair<Option<bool>>,
    ) -> Result<Option<Then>> {
        let (view, name, shuns_old) = (self.view(), &request.name, self.shuns_old(now));
        let slot = self.slots.get_mut(name).filter(|slot| slot.claimed_as() == Some(id));
        let slot = slot.ok_or_else(|| Error::lost(LostReason::Gone))?;
        let Some(Claim { stage: Stage::Asking { contender, lapsed, lost }, parts, .. }) = &mut slot.claim
        else {
            return Err(Error::lost(LostReason::Gone));
        };
        let mut until: Option<Moment> = None;
        for side in SIDES {
            let deadline = parts[side].as_ref().map(|part| self.leases.deadline(side, &part.lease));
            let over = deadline.is_some_and(|deadline| deadline.has_passed(now));
            if let Some(Deadline::At(at)) = deadline.filter(|_| !over) {
                until = Some(until.map_or(at, |until| until.min(at)));
            }
            if std::mem::take(&mut lost[side]) {
                contender.gone(side);
            }
            if std::mem::take(&mut lapsed[side]) || over {
                match contender.unbacked(side) {
                    Some(Act::Drop(side)) => return Ok(Some(Then::Drop(side))),
                    Some(Act::Release(side)) => {
                        self.begin_release(name, side);
                        return Ok(None);
                    }
                    Some(Act::Ask(_)) | None => {}
                }
            }
        }
        // Not before: a request that has failed was made in the earlier view, in which its store may be left out.
        contender.viewed(view);
        loop {
            return Ok(Some(match contender.step() {
                Step::Do(Act::Ask(side)) => {
                    self.leases.keep(parts, &self.events);
                    let shunned = side == Side::Old && shuns_old;
                    asks[side] = Some(!shunned && slot.cleanups[side].is_none());
                    continue;
                }
                Step::Do(Act::Drop(side)) => Then::Drop(side),
                Step::Do(Act::Release(side)) => {
                    self.begin_release(name, side);
                    return Ok(None);
                }
                Step::Read => Then::Read,
                Step::Take { counter } => return Ok(self.take(request, counter).map(Then::Granted)),
                Step::Over(end) => Then::Over(end),
                Step::Wait if view.is_none() => Then::Blind,
                Step::Wait => Then::Wait(until),
            }));
        }
    }

    /// It is a hold from here on.
    fn take(&mut self, request: &AcquireRequest, counter: u64) -> Option<Grant> {
        let (view, name, now, backed) = (self.view(), &request.name, self.leases.now, self.backed());
        let claim = self.slots.get_mut(name)?.claim.as_mut()?;
        for side in SIDES {
            if let Some(part) = &mut claim.parts[side] {
                part.lease.deadline = self.leases.absorb(side, &part.lease, &self.events);
            }
        }
        let Stage::Asking { contender, .. } = &claim.stage else { return None };
        let hold = PairHold::of(contender, view);
        let asks = Pair::default();
        claim.stage = Stage::Holding { hold, counter, told: Deadline::Never, told_over: false, asks };
        let until = claim.trusted_until(claim.trusted(&self.leases, backed), now);
        let ttl = claim.ttl()?;
        let Stage::Holding { hold, told, .. } = &mut claim.stage else { return None };
        *told = until;
        let act = hold.step();
        let lease = Lease::new(claim.id, LeaseScope::Entry, ttl, until);
        let was_asked = SIDES.iter().any(|side| claim.early[*side].asked.is_some());
        self.leases.composites.insert(lease.id, name.clone());
        if was_asked {
            self.pass_on_asked(name);
        }
        if act.is_some() {
            self.act(name, act);
            self.advance(name);
        }
        Some(Grant::new(name.clone(), request.owner, lease, counter))
    }
}
