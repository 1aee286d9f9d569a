//! Asks for a lock until it is granted: does what the [`Contender`] says.
//!
//! # Invariants
//! - **attempt-1** Who is dropped, or ends with an error, leaves nothing behind: what is asked is dropped with it, and what was
//!   granted is released by a task (B2).
//! - **attempt-2** A place in a store's queue that is lost there ends the acquisition, and the core asks again; but for one in
//!   the queue of the store moved to, which is asked again from here, as the other store's lock is held meanwhile.
//! - **attempt-3** Every request to a store has an owner id of its own.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use leasehold_core::backend::stage::{Phase, Side};
use leasehold_core::backend::{
    AcquireRequest, Attempt, Backoff, Grant, Holder, Lease, LeaseId, LeaseScope, Mode,
};
use leasehold_core::clock::{Deadline, Moment};
use leasehold_core::{Error, ErrorKind, LockName, Result};
use tokio::sync::Notify;

use super::book::Book;
use super::claim::Stage;
use super::{SIDES, Session};
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
        if request.mode != Mode::Exclusive {
            let message = "while the locks of a namespace are moved, they are exclusive";
            return Err(Error::not_applied(ErrorKind::Unsupported, message));
        }
        self.refuse_closed()?;
        let (id, wake) = self.with(|book, _| book.begin(request));
        let (asks, read, session) = (Pair::default(), None, Arc::clone(self));
        let request = request.clone();
        Acquisition { session, request, id, wake, waits, asks, read, busy: None, over: false }.run().await
    }

    /// Asks a store for what may be asked of it by now (session-1); one that shuns the store that is left does not wait for
    /// it while that cannot be reached.
    pub(super) async fn ask(
        self: &Arc<Self>,
        side: Side,
        request: &AcquireRequest,
        waits: bool,
        shuns: bool,
    ) -> Result<Asked> {
        let mut backoff = Backoff::of_requests(&self.env);
        loop {
            let (owed, drains, shunned) = self.with(|book, now| {
                let owed = book.slots.get(&request.name).and_then(|slot| slot.debts[side].clone());
                let drains = book.view().is_some_and(|view| view.phase == Phase::Drain);
                (owed, drains, shuns && side == Side::Old && book.shuns_old(now))
            });
            if shunned {
                let message = "the store that is left could not be reached a moment ago";
                return Err(Error::not_applied(ErrorKind::Unavailable, message));
            }
            if let Some(debt) = owed {
                match debt.answer().await {
                    // It is waited for only while it can be reached.
                    Err(error) if side == Side::Old && drains && error.lost_reason().is_none() => {
                        return Err(error);
                    }
                    _ => debt.is_over().await,
                }
                continue;
            }
            let backend = &self.open(side)?.backend;
            let mut request = request.clone();
            request.owner = self.env.owner_id();
            if !waits {
                return Ok(match self.env.bounded(backend.try_acquire(&request)).await? {
                    Attempt::Granted(grant) => Asked::Granted(grant),
                    Attempt::Held { holder } => Asked::Busy(holder),
                });
            }
            match backend.acquire(&request).await {
                Err(error) if error.lost_reason().is_some() && side == Side::New => {
                    backoff.pause(&self.env).await
                }
                granted => return Ok(Asked::Granted(granted?)),
            }
        }
    }
}

/// One acquisition under way.
struct Acquisition {
    session: Arc<Session>,
    request: AcquireRequest,
    id: LeaseId,
    wake: Arc<Notify>,
    waits: bool,
    asks: Pair<Option<BoxFuture<'static, Result<Asked>>>>,
    read: Option<BoxFuture<'static, Result<()>>>,
    busy: Option<Holder>,
    /// It was granted, or somebody else has the name.
    over: bool,
}

/// What to do next.
enum Next {
    Again,
    Ask(Side),
    Drop(Side),
    Read,
    Granted(Grant),
    Over(End),
    /// There is no view.
    Blind,
    /// Wait, at most until a part is over.
    Wait(Option<Moment>),
}

impl Acquisition {
    async fn run(mut self) -> Result<Outcome> {
        loop {
            match self.next()? {
                Next::Again => {}
                Next::Ask(side) => self.asks[side] = Some(self.asking(side)),
                Next::Drop(side) => self.asks[side] = None,
                Next::Read => {
                    let session = Arc::clone(&self.session);
                    self.read = Some(Box::pin(async move { session.read(Side::Old).await }));
                }
                Next::Granted(grant) => {
                    self.over = true;
                    return Ok(Outcome::Granted(grant));
                }
                Next::Over(End::Busy(_)) => return Ok(Outcome::Busy(self.busy.take())),
                Next::Over(End::Outside) => {
                    let message = "the store's number of this grant is not among those that the move may give now; \
                                   `leasehold migrate status` shows them";
                    return Err(Error::not_applied(ErrorKind::Protocol, message));
                }
                Next::Over(End::Failed(_) | End::Unwanted) => unreachable!("its error was returned"),
                Next::Blind => self.session.view_or_why().await?,
                Next::Wait(until) => self.wait(until).await?,
            }
        }
    }

    fn next(&mut self) -> Result<Next> {
        let (request, id) = (&self.request, self.id);
        self.session.with(|book, now| book.next(request, id, now))
    }

    fn asking(&self, side: Side) -> BoxFuture<'static, Result<Asked>> {
        let (session, request, waits) = (Arc::clone(&self.session), self.request.clone(), self.waits);
        Box::pin(async move { session.ask(side, &request, waits, true).await })
    }

    /// Until something has changed.
    async fn wait(&mut self, until: Option<Moment>) -> Result<()> {
        let session = Arc::clone(&self.session);
        let (side, answer) = tokio::select! {
            biased;
            answer = answer(&mut self.asks.old) => (Side::Old, answer),
            answer = answer(&mut self.asks.new) => (Side::New, answer),
            () = self.wake.notified() => return session.refuse_closed(),
            read = answer(&mut self.read) => {
                self.read = None;
                read?;
                session.with(|book, _| book.contending(&self.request, self.id, |contender| contender.read()));
                return Ok(());
            }
            () = async {
                match until {
                    Some(until) => session.env.sleep_until(until).await,
                    None => pending().await,
                }
            } => return Ok(()),
        };
        self.asks[side] = None;
        self.answered(side, answer)
    }

    fn answered(&mut self, side: Side, answer: Result<Asked>) -> Result<()> {
        let (request, id) = (&self.request, self.id);
        match answer {
            Ok(Asked::Granted(grant)) => {
                self.session.with(|book, _| book.granted(&request.name, id, side, grant));
                Ok(())
            }
            Ok(Asked::Busy(holder)) => {
                self.busy = self.session.with(|book, _| {
                    book.contending(request, id, |contender| contender.busy(side));
                    if let Some(holder) = &holder {
                        book.met(side, &request.name, holder);
                    }
                    holder.map(|holder| book.known_to_all(side, holder))
                });
                Ok(())
            }
            Err(error) => {
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
                if shunned { Ok(()) } else { Err(error) }
            }
        }
    }
}

/// The answer to what was asked, if something was.
async fn answer<T>(asked: &mut Option<BoxFuture<'static, T>>) -> T {
    match asked {
        Some(asked) => asked.await,
        None => pending().await,
    }
}

impl Drop for Acquisition {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let (request, id) = (&self.request, self.id);
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
        let (view, name) = (self.view(), &request.name);
        let mut over = Vec::new();
        let mut until: Option<Moment> = None;
        for side in SIDES {
            let part = self.claim(name).and_then(|claim| claim.parts[side].as_ref()).map(|part| part.lease);
            let Some(lease) = part else { continue };
            let deadline = self.leases.deadline(side, &lease);
            if deadline.has_passed(now) {
                over.push(side);
            } else if let Deadline::At(at) = deadline {
                until = Some(until.map_or(at, |until| until.min(at)));
            }
        }
        let claim = self.claim(name).filter(|claim| claim.id == id);
        let Some(Stage::Asking { contender, lapsed, lost }) = claim.map(|claim| &mut claim.stage) else {
            return Err(Error::lost(leasehold_core::LostReason::Gone));
        };
        for side in SIDES {
            if std::mem::take(&mut lost[side]) {
                contender.gone(side);
            }
            if std::mem::take(&mut lapsed[side]) || over.contains(&side) {
                match contender.unbacked(side) {
                    Some(Act::Drop(side)) => return Ok(Next::Drop(side)),
                    Some(Act::Release(side)) => {
                        self.owe(name, side);
                        return Ok(Next::Again);
                    }
                    Some(Act::Ask(_)) | None => {}
                }
            }
        }
        contender.viewed(view);
        Ok(match contender.step() {
            Step::Do(Act::Ask(side)) => {
                self.keep_parts(name);
                Next::Ask(side)
            }
            Step::Do(Act::Drop(side)) => Next::Drop(side),
            Step::Do(Act::Release(side)) => {
                self.owe(name, side);
                Next::Again
            }
            Step::Read => Next::Read,
            Step::Take { counter } => self.take(request, counter).map_or(Next::Again, Next::Granted),
            Step::Over(end) => Next::Over(end),
            Step::Wait if view.is_none() => Next::Blind,
            Step::Wait => Next::Wait(until),
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
        let (view, name) = (self.view(), &request.name);
        let claim = self.slots.get_mut(name)?.claim.as_mut()?;
        for side in SIDES {
            if let Some(part) = &mut claim.parts[side] {
                part.lease.deadline = self.leases.absorb(side, &part.lease, &self.events);
            }
        }
        let Stage::Asking { contender, .. } = &claim.stage else { return None };
        let hold = Hold::of(contender, view);
        let asks = Pair::default();
        claim.stage = Stage::Holding { hold, counter, told: Deadline::Never, told_over: false, asks };
        let (trusted, now) = (self.trusted(name), self.leases.now);
        let claim = self.claim(name)?;
        let until = claim.trusted_until(trusted, now);
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
