//! Waiting for a store and for a lock: until the limit of the options, or until a signal.

use std::io::{self, IsTerminal};
use std::pin::pin;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock, Moment};
use leasehold::{AllGuard, ErrorKind, Lock, LockGuard, LockManager, Mode, all};

use crate::arguments::Terms;
use crate::failure::Failure;
use crate::output;
use crate::signals::Signals;

/// How long is waited in all, counted from when a command began.
#[derive(Debug)]
pub(crate) struct Patience {
    clock: BootClock,
    until: Option<Moment>,
}

impl Patience {
    /// That of a command which begins now.
    pub(crate) fn of(terms: &Terms) -> Self {
        let clock = BootClock::new();
        let wait = if terms.attempt { Some(Duration::ZERO) } else { terms.wait };
        let until = wait.map(|wait| clock.now() + wait);
        Self { clock, until }
    }

    /// The rest of the wait; `None` is without end.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.until.map(|until| until.since(self.clock.now()))
    }
}

/// Takes the lock on the terms given.
///
/// # Cancel safety
///
/// Dropping the future leaves nothing behind at the store.
pub(crate) async fn acquire(
    locks: &LockManager,
    name: &str,
    terms: &Terms,
    patience: &Patience,
    signals: &mut Signals,
) -> Result<LockGuard, Failure> {
    let lock = lock(locks, name, terms, patience)?;
    granted(lock.acquire(), locks, &[name.to_owned()], terms, signals).await
}

/// Takes all of the locks on the terms given, or none, and holds them for `at_least` that long.
///
/// # Cancel safety
///
/// Dropping the future leaves nothing behind at the store.
pub(crate) async fn acquire_all(
    locks: &LockManager,
    names: &[String],
    terms: &Terms,
    at_least: Option<Duration>,
    patience: &Patience,
    signals: &mut Signals,
) -> Result<AllGuard, Failure> {
    let wanted = names.iter().map(|name| {
        let lock = lock(locks, name, terms, patience)?;
        Ok::<_, Failure>(match at_least {
            Some(span) => lock.hold_at_least(span),
            None => lock,
        })
    });
    let mut wanted = all(wanted.collect::<Result<Vec<_>, _>>()?);
    if let Some(left) = patience.left() {
        wanted = wanted.wait(left);
    }
    granted(wanted.acquire(), locks, names, terms, signals).await
}

/// One lock on the terms given.
fn lock(locks: &LockManager, name: &str, terms: &Terms, patience: &Patience) -> Result<Lock, Failure> {
    let mut lock = locks.lock(name)?;
    if let Some(left) = patience.left() {
        lock = lock.wait(left);
    }
    lock = match terms.mode() {
        Mode::SHARED => lock.shared(),
        mode => lock.permits(mode.weight(), mode.capacity()),
    };
    Ok(match &terms.metadata {
        Some(metadata) => lock.metadata(metadata),
        None => lock,
    })
}

/// The result of waiting, unless a signal ends that.
async fn granted<T>(
    acquire: impl Future<Output = leasehold::Result<T>>,
    locks: &LockManager,
    names: &[String],
    terms: &Terms,
    signals: &mut Signals,
) -> Result<T, Failure> {
    let granted = tokio::select! {
        granted = acquire => granted,
        signal = signals.next() => {
            let interrupted = Failure::interrupted(signal.as_raw());
            // A second signal ends the command without waiting for the store.
            tokio::select! {
                () = patiently(crate::store::close(locks), CLOSING) => {}
                _again = signals.next() => {}
            }
            return Err(interrupted);
        }
        () = hint(locks, names) => unreachable!("the hint is for ever"),
    };
    granted.map_err(|error| match error.kind() {
        ErrorKind::Timeout { holder, .. } => {
            let name = error.context("lock").unwrap_or(&names[0]);
            Failure::busy(name, holder.as_ref(), terms.conflict_exit_code).because_of(&error)
        }
        _ => error.into(),
    })
}

/// Reports why the command waits: soon at a terminal, later in a log. Does not end.
async fn hint(locks: &LockManager, names: &[String]) {
    let after = if io::stderr().is_terminal() { HINT_AT_TERMINAL } else { HINT_IN_LOG };
    tokio::time::sleep(after).await;
    // While one of several is waited for, others are held by us already.
    for name in names.iter().filter(|name| !locks.holds(name)) {
        // No answer means no hint.
        let Ok(state) = locks.inspect(name).await else { continue };
        let who = match state.holder() {
            Some(holder) => output::who(holder),
            None if state.contenders > 0 => "no client yet".to_owned(),
            // Free, so it waits for another lock now.
            None => continue,
        };
        output::note(&format!("waiting for {name:?}, held by {who}"));
    }
    std::future::pending().await
}

/// Waits for `end`, and reports after a second that it is waited for.
pub(crate) async fn patiently<T>(end: impl Future<Output = T>, report: &str) -> T {
    let mut end = pin!(end);
    tokio::select! {
        ended = &mut end => return ended,
        _late = at_most(Some(PATIENCE)) => output::note(report),
    }
    end.await
}

/// Ends when that time has passed, and returns how long it was; never without one.
pub(crate) async fn at_most(span: Option<Duration>) -> Duration {
    match span {
        Some(span) => {
            tokio::time::sleep(span).await;
            span
        }
        None => std::future::pending().await,
    }
}

/// After a signal, how long this process waits without a word.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
const CLOSING: &str =
    "waiting for the store to end the session; a second signal ends this command without it";
/// The wait at the end of a hold.
pub(crate) const RELEASING: &str =
    "waiting for the store to confirm the release; without an answer this ends with the lease";

const HINT_AT_TERMINAL: Duration = Duration::from_secs(1);
const HINT_IN_LOG: Duration = Duration::from_secs(5);
