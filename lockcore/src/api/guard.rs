//! A held lock, and how its holder learns that it is over.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use futures_util::{StreamExt, stream};
use tokio::sync::watch;
use tokio_util::sync::ReusableBoxFuture;

use crate::clock::Deadline;
use crate::core::holds::Hold;
use crate::core::ownership::{Ownership, Standing, ended};
use crate::words::error::{Error, Result};
use crate::words::loss::{GuardState, LostReason};
use crate::words::mode::Mode;
use crate::words::name::LockName;
use crate::words::token::FencingToken;

/// A held lock: yours until it is released, dropped, or lost.
///
/// The manager renews it in the background. It can be lost all the same (the store fell silent,
/// the process was stopped, an administrator revoked it), so ask [`ensure_held`](Self::ensure_held)
/// before acting, watch [`lost`](Self::lost) while acting, and give the resource
/// [`token`](Self::token), which makes it refuse whoever comes too late.
///
/// Dropping a guard releases it in the background, without blocking and without saying whether that
/// worked; [`release`](Self::release) says. Note that `let _ = lock.acquire().await?` drops at once.
#[must_use = "a guard that is dropped at once releases the lock"]
pub struct LockGuard {
    held: Hold,
}

impl LockGuard {
    pub(crate) fn new(held: Hold) -> Self {
        Self { held }
    }

    /// The name of the lock.
    pub fn name(&self) -> &LockName {
        &self.ownership().grant().name
    }

    /// How it is held.
    pub fn mode(&self) -> Mode {
        self.ownership().mode()
    }

    /// Larger than every token of this name that was given out before to a guard that this one excludes, and no
    /// other guard's (G3); give it to the resource. Those of guards that hold together, as permits do, fence none
    /// of them off.
    pub fn token(&self) -> FencingToken {
        self.held.token()
    }

    /// The time left before the deadline, as it stands now; zero once lost, [`Duration::MAX`] on a
    /// store without leases. A [revocation deadline](Self::revocation_deadline) and `max_hold` count.
    pub fn remaining(&self) -> Duration {
        self.ownership().remaining(self.held.now())
    }

    /// Whether the lock is held at this instant (G2): one clock read and one atomic load, no I/O.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) from the deadline on, whether or not anybody has
    /// noticed before, and for ever after.
    pub fn ensure_held(&self) -> Result<()> {
        if self.ownership().is_held(self.held.now()) {
            return Ok(());
        }
        Err(self.found_lost())
    }

    /// How the guard stands now.
    pub fn state(&self) -> GuardState {
        self.ownership().state(self.held.now())
    }

    /// A future that ends when this guard is not held any more, releasing included. Early or on
    /// time, never after the store can grant the lock to others, as long as timers fire; a host that
    /// was suspended is told by [`ensure_held`](Self::ensure_held) first.
    pub fn lost(&self) -> Lost {
        Lost { standings: self.watch(), told: Told::NotAsked }
    }

    /// What changes for this guard, how it stands now first. A slow reader misses states in between,
    /// never the last one, nor that it was asked for; the stream ends after the last state, and says so as
    /// often as it is asked.
    pub fn changes(&self) -> Changes {
        Changes { standings: standings(self.watch()), told: None, next: None }
    }

    /// Returns the deadline of a requested revocation, if there is one: release the lock before it.
    /// At that deadline it is lost ([`LostReason::Revoked`]).
    pub fn revocation_deadline(&self) -> Option<Deadline> {
        self.ownership().asked().map(Deadline::At)
    }

    /// Returns the rest of the grace period of a requested revocation; zero when it has ended.
    pub fn grace_left(&self) -> Option<Duration> {
        Some(self.ownership().asked()?.since(self.held.now()))
    }

    /// Waits for the first request to revoke the lock and returns its deadline; `None` if the guard ends
    /// before that. A later request may set an earlier deadline:
    /// [`revocation_deadline`](Self::revocation_deadline) and [`remaining`](Self::remaining) show it.
    ///
    /// # Cancel safety
    ///
    /// A future made later returns the same.
    pub fn revocation_requested(&self) -> impl Future<Output = Option<Deadline>> + Send + 'static + use<> {
        let mut standings = self.watch();
        async move {
            loop {
                let Standing { state, asked } = *standings.borrow_and_update();
                if asked.is_some() || matches!(state, GuardState::Lost(_)) {
                    return asked.map(Deadline::At);
                }
                // The sender goes only after its last word.
                standings.changed().await.ok()?;
            }
        }
    }

    /// From now on the guard is lost ([`LostReason::MaxHold`]) when it was held for `span`.
    pub(crate) fn hold_at_most(&self, span: Duration) {
        self.held.hold_at_most(span);
    }

    /// Renews now, besides the watchdog.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the lock is gone;
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) when the store did not answer: then
    /// the lock is held until the deadline as before.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the renewal's outcome open; the guard stays as it was.
    pub async fn renew(&self) -> Result<()> {
        self.ensure_held()?;
        self.held.renew_now().await?;
        self.ensure_held()
    }

    /// Releases the lock, to the next one of this process or to the store, and says whether that
    /// is certain.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the lock was gone before;
    /// the store's last error when it did not confirm until the deadline, after which the lease has
    /// ended the lock. On a store with one session for all locks, only the end of the session would
    /// end it: such a release is repeated for at most one ttl, and not at all once it is refused for
    /// good ([`ErrorKind::Denied`](crate::ErrorKind::Denied)); then the session is given up, with every
    /// other hold on it ([`LostReason::SessionLost`]).
    ///
    /// # Cancel safety
    ///
    /// Once called, dropping the future midway lets the release go on in the background. Once polled, it
    /// goes on there as well as soon as others of this process wait for the lock.
    ///
    /// # Examples
    ///
    /// A guard is released once; a second time does not compile:
    ///
    /// ```compile_fail,E0382
    /// # async fn twice(guard: leasehold_core::LockGuard) -> leasehold_core::Result<()> {
    /// guard.release().await?;
    /// guard.release().await
    /// # }
    /// ```
    pub async fn release(self) -> Result<()> {
        self.held.release().await
    }

    fn watch(&self) -> watch::Receiver<Standing> {
        self.ownership().watch(self.token().index())
    }

    fn ownership(&self) -> &Arc<Ownership> {
        self.held.ownership()
    }

    #[cold]
    fn found_lost(&self) -> Error {
        Error::lost(self.held.found_lost()).with_context("lock", self.name())
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("name", self.name())
            .field("token", &self.token())
            .field("state", &self.state())
            .field("deadline_in", &Some(self.remaining()).filter(|left| *left != Duration::MAX))
            .finish()
    }
}

/// What has changed for a guard; see [`LockGuard::changes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Change {
    /// It stands like this now.
    State(GuardState),
    /// A revocation was requested: the lock is lost at this deadline. The state changes independently of
    /// this: the guard may be at risk, too.
    RevocationRequested(Deadline),
}

/// What changes for a guard; see [`LockGuard::changes`].
#[must_use = "streams do nothing unless polled"]
pub struct Changes {
    standings: Pin<Box<dyn Stream<Item = Standing> + Send + Sync>>,
    /// What was told so far.
    told: Option<Standing>,
    next: Option<Change>,
}

/// The standing now, and then whatever it changes to.
fn standings(
    mut standings: watch::Receiver<Standing>,
) -> Pin<Box<dyn Stream<Item = Standing> + Send + Sync>> {
    standings.mark_changed();
    let standings = stream::unfold(standings, async |mut standings| {
        standings.changed().await.ok()?;
        let now = *standings.borrow_and_update();
        Some((now, standings))
    });
    Box::pin(standings.fuse())
}

impl Stream for Changes {
    type Item = Change;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Change>> {
        loop {
            if let Some(next) = self.next.take() {
                return Poll::Ready(Some(next));
            }
            let Some(now) = ready!(Pin::new(&mut self.standings).poll_next(cx)) else {
                return Poll::Ready(None);
            };
            let told = self.told.replace(now);
            let state = told.is_none_or(|told| told.state != now.state).then_some(Change::State(now.state));
            let asked = now.asked.filter(|_| told.is_none_or(|told| told.asked != now.asked));
            let asked = asked.map(|at| Change::RevocationRequested(Deadline::At(at)));
            // How it ended is the last word.
            let is_over = matches!(now.state, GuardState::Lost(_));
            let (first, second) = if is_over { (asked, state) } else { (state, asked) };
            self.next = second;
            if first.is_some() {
                return Poll::Ready(first);
            }
        }
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("told", &self.told).finish_non_exhaustive()
    }
}

/// Ends, with the reason, when its guard is not held any more; see [`LockGuard::lost`].
///
/// # Cancel safety
///
/// May be dropped, and polled again at will, also after it has ended: it keeps the reason. A clone
/// starts afresh and ends alike.
#[must_use = "futures do nothing unless polled"]
pub struct Lost {
    standings: watch::Receiver<Standing>,
    told: Told,
}

enum Told {
    NotAsked,
    /// Boxed so that the whole may be shared, though it is polled by one.
    Waiting(ReusableBoxFuture<'static, LostReason>),
    Already(LostReason),
}

impl Future for Lost {
    type Output = LostReason;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<LostReason> {
        loop {
            self.told = match &mut self.told {
                Told::NotAsked => Told::Waiting(ReusableBoxFuture::new(ended(self.standings.clone()))),
                Told::Waiting(waiting) => Told::Already(ready!(waiting.poll(cx))),
                Told::Already(reason) => return Poll::Ready(*reason),
            };
        }
    }
}

impl Clone for Lost {
    fn clone(&self) -> Self {
        Self { standings: self.standings.clone(), told: Told::NotAsked }
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lost").field("state", &self.standings.borrow().state).finish()
    }
}
