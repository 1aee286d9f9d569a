//! A held lock, and how its holder is notified of its end.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
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
use crate::words::error::Result;
use crate::words::loss::{GuardState, LostReason};
use crate::words::mode::Mode;
use crate::words::name::LockName;
use crate::words::token::FencingToken;

/// A held lock, until it is released, dropped or lost.
///
/// The manager renews the lock in the background. It can still be lost: the store does not answer, the
/// process is stopped, or an administrator revokes it. So call [`ensure_held`](Self::ensure_held) before
/// acting, watch [`lost`](Self::lost) while acting, and give [`token`](Self::token) to the resource,
/// which then refuses a late writer.
///
/// Dropping a guard releases it in the background, without blocking and without a result;
/// [`release`](Self::release) returns one. `let _ = lock.acquire().await?` drops the guard at once.
#[must_use = "a guard that is dropped at once releases the lock"]
pub struct LockGuard {
    held: Hold,
}

impl LockGuard {
    pub(crate) fn new(held: Hold) -> Self {
        Self { held }
    }

    /// Returns the name of the lock.
    pub fn name(&self) -> &LockName {
        &self.ownership().grant.name
    }

    /// Returns how the lock is held.
    pub fn mode(&self) -> Mode {
        self.ownership().mode
    }

    /// Returns the fencing token (G3); give it to the resource.
    ///
    /// No other guard has it. It is larger than every earlier token of this name whose guard this guard
    /// excludes. Guards that hold at the same time, as readers do, are not fenced off from each other.
    pub fn token(&self) -> FencingToken {
        self.held.token
    }

    /// Returns the time until the present deadline; zero once lost, [`Duration::MAX`] without a lease.
    /// A [revocation deadline](Self::revocation_deadline) and `max_hold` count, too.
    pub fn remaining(&self) -> Duration {
        self.ownership().remaining(self.held.now())
    }

    /// Fails if the lock is not held at this instant (G2): one clock read and one atomic load, no I/O.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost): the lock is lost, or its deadline has passed.
    pub fn ensure_held(&self) -> Result<()> {
        if self.ownership().is_held(self.held.now()) {
            return Ok(());
        }
        Err(self.held.found_lost(LostReason::Expired))
    }

    /// Returns the present state of the guard.
    pub fn state(&self) -> GuardState {
        self.ownership().state(self.held.now())
    }

    /// Returns a future that ends when this guard is no longer held, also by its release.
    ///
    /// It ends before the store can grant the lock to another client, as long as timers fire. After a
    /// suspend of the host [`ensure_held`](Self::ensure_held) may fail earlier.
    pub fn lost(&self) -> Lost {
        Lost::new(self.watch())
    }

    /// Returns a stream of the changes of this guard; the first item is its present state.
    ///
    /// A slow reader misses states in between, but never the last one or a revocation request. The stream
    /// ends after the last state.
    pub fn changes(&self) -> Changes {
        Changes::new(self.watch())
    }

    /// Returns the deadline of a requested revocation, if there is one: release the lock before it.
    /// At that deadline it is lost ([`LostReason::Revoked`]).
    pub fn revocation_deadline(&self) -> Option<Deadline> {
        self.ownership().revocation_deadline().map(Deadline::At)
    }

    /// Returns the rest of the grace period of a requested revocation; zero when it has ended.
    pub fn grace_left(&self) -> Option<Duration> {
        Some(self.ownership().revocation_deadline()?.since(self.held.now()))
    }

    /// Waits for the first request to revoke the lock and returns its deadline; `None` if the guard ends
    /// before that. A later request may set an earlier deadline:
    /// [`revocation_deadline`](Self::revocation_deadline) and [`remaining`](Self::remaining) show it.
    ///
    /// # Cancel safety
    ///
    /// A future made later returns the same.
    pub fn revocation_requested(&self) -> impl Future<Output = Option<Deadline>> + Send + 'static + use<> {
        revocation_requested(self.watch())
    }

    /// Renews the lease now, in addition to the watchdog.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Lost`](crate::ErrorKind::Lost): the lock is lost.
    /// - [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable): the store did not answer; the lock is
    ///   held until the deadline as before.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the renewal's outcome open and does not change the guard.
    pub async fn renew(&self) -> Result<()> {
        self.ensure_held()?;
        self.held.lock.renew_now(self.ownership()).await?;
        self.ensure_held()
    }

    /// Begins work, polls it for as long as the lock is held, and returns its result if it was held at its end.
    pub(super) async fn while_held<Fut: Future>(&self, begin: impl FnOnce() -> Fut) -> Result<Fut::Output> {
        let Some(_work) = self.ownership().begin_work() else {
            return Err(self.held.found_lost(LostReason::Expired));
        };
        // After the token, so dropped before it.
        let (mut lost, mut work) = (self.lost(), pin!(begin()));
        let done = poll_fn(|cx| {
            // Woken by `lost`, decided by the clock: timers stop while a host is suspended.
            let _told = Pin::new(&mut lost).poll(cx);
            self.ensure_held()?;
            work.as_mut().poll(cx).map(Ok)
        });
        let done = done.await?;
        self.ensure_held()?;
        Ok(done)
    }

    /// Releases the lock after work that was done; what fails then is logged.
    pub(super) async fn release_after_work(self) {
        let name = self.name().clone();
        if let Err(error) = self.release().await {
            let error = format!("{error:#}");
            tracing::warn!(lock = %name, ?error, "lock not released cleanly after the work");
        }
    }

    /// Releases the lock, to the next local waiter or to the store, and returns whether it is confirmed.
    ///
    /// Before a [`hold_at_least`](crate::Lock::hold_at_least) has passed, `Ok` confirms nothing yet: the name stays held, and
    /// is released at the store later, in the background.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Lost`](crate::ErrorKind::Lost): the lock was lost before.
    /// - The store's last error: the store did not confirm the release until the deadline. The lease has
    ///   ended the lock then.
    ///
    /// On a store with one session for all locks, the lock ends only with the session. Such a release is
    /// repeated for at most one ttl, and not after [`ErrorKind::Denied`](crate::ErrorKind::Denied). Then
    /// the session is ended, with all its other holds ([`LostReason::SessionLost`]).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the release continues in the background. If it is not polled, the release
    /// continues there as soon as another local caller waits for the lock.
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

    pub(super) fn watch(&self) -> watch::Receiver<Standing> {
        self.ownership().watch(self.token().index())
    }

    pub(super) fn hold_at_least(&mut self, span: Duration) {
        self.held.hold_at_least(span);
    }

    pub(super) fn hold(&self) -> &Hold {
        &self.held
    }

    fn ownership(&self) -> &Arc<Ownership> {
        &self.held.ownership
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

/// A change of a guard; see [`LockGuard::changes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Change {
    /// The guard is in this state now.
    State(GuardState),
    /// A revocation was requested: the lock is lost at this deadline. The state changes independently of
    /// this: the guard may be at risk, too.
    RevocationRequested(Deadline),
}

/// The stream of the changes of a guard; see [`LockGuard::changes`].
#[must_use = "streams do nothing unless polled"]
pub struct Changes {
    standings: Pin<Box<dyn Stream<Item = Standing> + Send + Sync>>,
    /// The last standing that was reported.
    last: Option<Standing>,
    next: Option<Change>,
}

/// Ends with the deadline of the first requested revocation, or with the guard.
pub(super) async fn revocation_requested(mut standings: watch::Receiver<Standing>) -> Option<Deadline> {
    let is_notified = |standing: &Standing| standing.revocation_deadline.is_some() || standing.is_lost();
    standings.wait_for(is_notified).await.ok()?.revocation_deadline.map(Deadline::At)
}

/// The present standing, and then each new one.
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

impl Changes {
    pub(super) fn new(watch: watch::Receiver<Standing>) -> Self {
        Self { standings: standings(watch), last: None, next: None }
    }
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
            let last = self.last.replace(now);
            let state = last.is_none_or(|last| last.state != now.state).then_some(Change::State(now.state));
            let is_new = last.is_none_or(|last| last.revocation_deadline != now.revocation_deadline);
            let requested = now.revocation_deadline.filter(|_| is_new);
            let requested = requested.map(|at| Change::RevocationRequested(Deadline::At(at)));
            // How it ended is the last word.
            let (first, second) = if now.is_lost() { (requested, state) } else { (state, requested) };
            self.next = second;
            if first.is_some() {
                return Poll::Ready(first);
            }
        }
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("last", &self.last).finish_non_exhaustive()
    }
}

/// The future that ends with the reason of a loss; see [`LockGuard::lost`].
///
/// # Cancel safety
///
/// It may be dropped, and polled again also after it has ended: it keeps the reason. A clone ends with the
/// same reason.
#[must_use = "futures do nothing unless polled"]
pub struct Lost {
    standings: watch::Receiver<Standing>,
    /// Made when it is first polled; boxed so that `Lost` is `Sync`.
    waiting: Option<ReusableBoxFuture<'static, LostReason>>,
}

impl Lost {
    pub(super) fn new(standings: watch::Receiver<Standing>) -> Self {
        Self { standings, waiting: None }
    }
}

impl Future for Lost {
    type Output = LostReason;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<LostReason> {
        let Self { standings, waiting } = &mut *self;
        if let GuardState::Lost(reason) = standings.borrow().state {
            return Poll::Ready(reason);
        }
        waiting.get_or_insert_with(|| ReusableBoxFuture::new(ended(standings.clone()))).poll(cx)
    }
}

impl Clone for Lost {
    fn clone(&self) -> Self {
        Self::new(self.standings.clone())
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lost").field("state", &self.standings.borrow().state).finish()
    }
}
