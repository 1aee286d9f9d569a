//! Asks for a lock until it is granted: does what the [`Contender`] says.
//!
//! # Invariants
//! - **attempt-1** Who is dropped, or ends with an error, leaves nothing behind: what is asked is dropped with it, and what was
//!   granted is released by a task (B2).
//! - **attempt-2** A place in a store's queue that is lost there ends the acquisition, and the core asks again; but for one in
//!   the queue of the store moved to, which is asked again from here, as the other store's lock is held meanwhile.
//! - **attempt-3** Every request to a store has an owner id of its own.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use leasehold_core::backend::stage::{Phase, Side};
use leasehold_core::backend::{AcquireRequest, Attempt, Backoff, Grant, Holder, Lease, LeaseId, LeaseScope};
use leasehold_core::clock::{Deadline, Moment};
use leasehold_core::{Error, ErrorKind, LockName, Result};

use super::book::Book;
use super::claim::{Claim, Stage};
use super::watched::Wake;
use super::{SIDES, Session, closed};
use crate::protocol::Pair;
use crate::protocol::contender::{End, Step};
use crate::protocol::hold::Hold;
use crate::protocol::parts::{Act, Part};

/// What an acquisition came to.
pub(crate) enum Outcome {
    Granted(Grant),
    /// One that does not wait was told so.
    Busy(Option<Holder>),
}

/// How a store is asked.
#[derive(Clone, Copy)]
pub(super) struct How {
    /// For as long as it takes.
    pub(super) waits: bool,
    /// The store that is left is not asked while it cannot be reached, if it is only drained.
    pub(super) shuns: bool,
}

/// What a store answered.
pub(super) enum Asked {
    Granted(Grant),
    Busy(Option<Holder>),
}

/// How long a store that is left is not asked again after it could not be reached, while it is only drained.
const SHUNNED: Duration = Duration::from_secs(5);

impl Session {
    /// Takes the lock, or, if that is wanted, waits for it.
    pub(crate) async fn acquire(self: &Arc<Self>, request: &AcquireRequest, waits: bool) -> Result<Outcome> {
        let begun = self.with(|book, now| {
            (!book.closed).then(|| {
                let (id, wake) = book.begin(request);
                (id, wake, book.next(request, id, now))
            })
        });
        let (id, wake, next) = begun.ok_or_else(closed)?;
        let (asks, read) = (Pair::default(), None);
        let (session, busy, has_asked, over) = (self, None, false, false);
        let mut acquisition =
            Acquisition { session, request, id, wake, waits, asks, read, busy, has_asked, over };
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
                    return Ok(Outcome::Granted(grant));
                }
                Then::Over(End::Busy(_)) => return Ok(Outcome::Busy(acquisition.busy.take())),
                Then::Over(End::Outside) => {
                    let message = "the store's number of this grant is not among those that the move may give now; \
                                   `leasehold migrate status` shows them";
                    return Err(Error::not_applied(ErrorKind::Protocol, message));
                }
                Then::Over(End::Failed(_) | End::Unwanted) => unreachable!("its error was returned"),
                Then::Blind => Box::pin(self.view_or_why()).await?,
                Then::Wait(until) => {
                    let mut over = until.map(|until| self.env.sleep_until(until));
                    let woken = poll_fn(|cx| acquisition.poll_woken(over.as_mut(), cx)).await;
                    next = acquisition.after(woken)?;
                    continue;
                }
            }
            next = acquisition.knowing(|_| ())?;
        }
    }

    /// Asks a store once it may be asked, as somebody else every time.
    pub(super) async fn ask(
        self: &Arc<Self>,
        side: Side,
        request: &AcquireRequest,
        how: How,
    ) -> Result<Asked> {
        let mut backoff = Backoff::of_requests(&self.env);
        loop {
            self.until_free_to_ask(side, &request.name, how).await?;
            let mut request = request.clone();
            request.owner = self.env.owner_id();
            match self.ask_now(side, &request, how.waits).await {
                Err(error) if how.asks_again(side, &error) => backoff.pause(&self.env).await,
                answer => return answer,
            }
        }
    }

    /// The same of one that may be asked now, the first time as the request says.
    async fn ask_first(self: &Arc<Self>, side: Side, request: &AcquireRequest, how: How) -> Result<Asked> {
        match self.ask_now(side, request, how.waits).await {
            Err(error) if how.asks_again(side, &error) => {
                Backoff::of_requests(&self.env).pause(&self.env).await;
                Box::pin(self.ask(side, request, how)).await
            }
            answer => answer,
        }
    }

    /// Ends when nothing of `name` is at the store any more (session-1); one that shuns the store that is left does not wait
    /// for it while that cannot be reached.
    async fn until_free_to_ask(self: &Arc<Self>, side: Side, name: &LockName, how: How) -> Result<()> {
        loop {
            let (owed, drains, shunned) = self.with(|book, now| {
                let drains = book.view().is_some_and(|view| view.phase == Phase::Drain);
                (book.owed(name, side), drains, how.shuns && side == Side::Old && book.shuns_old(now))
            });
            if shunned {
                let message = "the store that is left could not be reached a moment ago";
                return Err(Error::not_applied(ErrorKind::Unavailable, message));
            }
            let Some(debt) = owed else { return Ok(()) };
            match debt.answer().await {
                // It is waited for only while it can be reached.
                Err(error) if side == Side::Old && drains && error.lost_reason().is_none() => {
                    return Err(error);
                }
                _ => debt.is_over().await,
            }
        }
    }

    async fn ask_now(&self, side: Side, request: &AcquireRequest, waits: bool) -> Result<Asked> {
        let backend = &self.opened(side)?.backend;
        if waits {
            return backend.acquire(request).await.map(Asked::Granted);
        }
        Ok(match Box::pin(self.env.bounded(backend.try_acquire(request))).await? {
            Attempt::Granted(grant) => Asked::Granted(grant),
            Attempt::Held { holder } => Asked::Busy(holder),
        })
    }
}

impl How {
    /// Whether a place that was lost is asked for anew from here (attempt-2).
    fn asks_again(self, side: Side, error: &Error) -> bool {
        self.waits && side == Side::New && error.lost_reason().is_some()
    }
}

/// One acquisition under way.
struct Acquisition<'a> {
    session: &'a Arc<Session>,
    request: &'a AcquireRequest,
    id: LeaseId,
    wake: Arc<Wake>,
    waits: bool,
    asks: Pair<Option<BoxFuture<'a, Result<Asked>>>>,
    read: Option<BoxFuture<'a, Result<()>>>,
    busy: Option<Holder>,
    has_asked: bool,
    /// It was granted, or somebody else has the name.
    over: bool,
}

/// What to do: first to ask, then the rest.
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
    /// There is no view.
    Blind,
    /// Wait, at most until a part is over.
    Wait(Option<Moment>),
}

/// One thing that the contender says.
enum Told {
    Ask(Side),
    /// It was done.
    Done,
    Then(Then),
}

/// What ends a wait.
enum Woken {
    Answered(Side, Result<Asked>),
    Read(Result<()>),
    ToLook,
}

impl Acquisition<'_> {
    /// What to do once the book knows something more.
    fn knowing(&self, learn: impl FnOnce(&mut Book)) -> Result<Next> {
        self.session.with(|book, now| {
            learn(book);
            book.next(self.request, self.id, now)
        })
    }

    /// Ready when something has changed.
    fn poll_woken(&mut self, over: Option<&mut (impl Future + Unpin)>, cx: &mut Context<'_>) -> Poll<Woken> {
        for side in SIDES {
            if let Some(answer) = polled(&mut self.asks[side], cx) {
                return Poll::Ready(Woken::Answered(side, answer));
            }
        }
        if self.wake.poll_told(cx).is_ready() {
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
            Woken::Answered(side, Ok(Asked::Granted(grant))) => {
                self.knowing(|book| book.granted(&request.name, id, side, grant))
            }
            Woken::Answered(side, Ok(Asked::Busy(holder))) => {
                self.busy = self.session.with(|book, _| {
                    book.contending(request, id, |contender| contender.busy(side));
                    if let Some(holder) = &holder {
                        book.met(side, &request.name, holder);
                    }
                    holder.map(|holder| book.known_to_all(side, holder))
                });
                self.knowing(|_| ())
            }
            Woken::Answered(side, Err(error)) => {
                let shunned = self.session.with(|book, now| {
                    let shunned = book.contending(request, id, |contender| {
                        contender.failed(side);
                        contender.parts()[side] == Part::Shunned
                    });
                    if shunned == Some(true)
                        && *error.kind() == ErrorKind::Unavailable
                        && !book.shuns_old(now)
                    {
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
    fn asking(&mut self, side: Side, at_once: bool) -> BoxFuture<'a, Result<Asked>> {
        let (session, request, how) = (self.session, self.request, How { waits: self.waits, shuns: true });
        // Who asks for the first time is whom the request names (attempt-3).
        if at_once && !std::mem::replace(&mut self.has_asked, true) {
            Box::pin(session.ask_first(side, request, how))
        } else {
            Box::pin(session.ask(side, request, how))
        }
    }
}

/// The answer to what was asked, if something was and that is there. Then nothing is asked any more.
fn polled<T>(asked: &mut Option<BoxFuture<'_, T>>, cx: &mut Context<'_>) -> Option<T> {
    match asked.as_mut()?.as_mut().poll(cx) {
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
        self.session.with(|book, _| {
            if book.claim(&request.name).is_some_and(|claim| claim.id == id) {
                book.let_go(&request.name);
            }
        });
    }
}

impl Book {
    fn contending<R>(
        &mut self,
        request: &AcquireRequest,
        id: LeaseId,
        act: impl FnOnce(&mut crate::protocol::contender::Contender) -> R,
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
            match self.told_by_contender(request, id, now)? {
                Told::Ask(side) => {
                    let shunned = side == Side::Old && self.shuns_old(now);
                    asks[side] = Some(!shunned && self.owed(&request.name, side).is_none());
                }
                Told::Done => {}
                Told::Then(then) => return Ok(Next { asks, then }),
            }
        }
    }

    fn told_by_contender(&mut self, request: &AcquireRequest, id: LeaseId, now: Moment) -> Result<Told> {
        let (view, name) = (self.view(), &request.name);
        let claim = self.slots.get_mut(name).and_then(|slot| slot.claim.as_deref_mut());
        let claim = claim.filter(|claim| claim.id == id);
        let Some(Claim { stage: Stage::Asking { contender, lapsed, lost }, parts, .. }) = claim else {
            return Err(Error::lost(leasehold_core::LostReason::Gone));
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
                    Some(Act::Drop(side)) => return Ok(Told::Then(Then::Drop(side))),
                    Some(Act::Release(side)) => {
                        self.owe(name, side);
                        return Ok(Told::Done);
                    }
                    Some(Act::Ask(_)) | None => {}
                }
            }
        }
        contender.viewed(view);
        Ok(match contender.step() {
            Step::Do(Act::Ask(side)) => {
                self.keep_parts(name);
                Told::Ask(side)
            }
            Step::Do(Act::Drop(side)) => Told::Then(Then::Drop(side)),
            Step::Do(Act::Release(side)) => {
                self.owe(name, side);
                Told::Done
            }
            Step::Read => Told::Then(Then::Read),
            Step::Take { counter } => match self.take(request, counter) {
                Some(grant) => Told::Then(Then::Granted(grant)),
                None => Told::Done,
            },
            Step::Over(end) => Told::Then(Then::Over(end)),
            Step::Wait if view.is_none() => Told::Then(Then::Blind),
            Step::Wait => Told::Then(Then::Wait(until)),
        })
    }

    /// What is held while another store is asked is renewed by the core.
    fn keep_parts(&mut self, name: &LockName) {
        let Some(claim) = self.slots.get(name).and_then(|slot| slot.claim.as_ref()) else { return };
        for side in SIDES {
            if let Some(part) =
                claim.parts[side].as_ref().filter(|part| part.lease.scope == LeaseScope::Entry)
            {
                self.leases.announce(side, part.lease, &self.events);
            }
        }
    }

    /// It is a hold from here on.
    fn take(&mut self, request: &AcquireRequest, counter: u64) -> Option<Grant> {
        let (view, name, now, backed) = (self.view(), &request.name, self.leases.now, self.backed());
        let claim = self.slots.get_mut(name)?.claim.as_deref_mut()?;
        for side in SIDES {
            if let Some(part) = &mut claim.parts[side] {
                part.lease.deadline = self.leases.absorb(side, &part.lease, &self.events);
            }
        }
        let Stage::Asking { contender, .. } = &claim.stage else { return None };
        let hold = Hold::of(contender, view);
        let asks = Pair::default();
        claim.stage = Stage::Holding { hold, counter, told: Deadline::Never, told_over: false, asks };
        let until = claim.trusted_until(claim.trusted(&self.leases, backed), now);
        if let Stage::Holding { told, .. } = &mut claim.stage {
            *told = until;
        }
        let ttl = claim.ttl()?;
        let lease = Lease::new(claim.id, LeaseScope::Entry, ttl, until);
        self.leases.composites.insert(lease.id, name.clone());
        self.pass_on_asked(name);
        self.advance(name);
        Some(Grant::new(name.clone(), request.owner, lease, counter))
    }
}
