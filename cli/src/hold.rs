//! `leasehold hold`: a lock until standard input closes, with a line per change.
//!
//! For programs in any language: start it, read lines, close its standard input to release. Should
//! that program die, its end of the pipe closes, which releases too.

use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::pin::pin;
use std::thread;
use std::time::Duration;

use futures_util::StreamExt;
use leasehold::{Change, GuardState, LockGuard, LockManager, LostReason};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use tokio::sync::oneshot;

use crate::arguments::{Hold, Store};
use crate::failure::{Exit, Failure};
use crate::signals::Signals;
use crate::store::{self, Place};
use crate::wait::{self, Patience};
use crate::{held, output};

/// One line.
#[derive(Debug, Serialize)]
struct Line<'a> {
    state: &'static str,
    name: &'a str,
    token: Option<u64>,
    /// Milliseconds until the deadline, if the store has one.
    remaining_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

pub(crate) async fn hold(store: &Store, arguments: &Hold) -> Result<Exit, Failure> {
    let mut signals = Signals::of_the_end()?;
    let place = Place::of(store)?;
    held::refuse_nested(&place, &arguments.name)?;
    if !arguments.ignore_stdin && is_at_its_end(&io::stdin()) {
        return Err(Failure::usage(
            "standard input is closed, so the lock would be released at once; keep it open, or use \
             `--ignore-stdin` to hold until a signal",
        ));
    }
    let patience = Patience::of(&arguments.terms);
    let locks = place.open_for(&arguments.terms, &patience, &mut signals).await?;
    let ended = hold_on(&locks, arguments, &patience, signals).await;
    store::close(&locks).await;
    ended
}

async fn hold_on(
    locks: &LockManager,
    arguments: &Hold,
    patience: &Patience,
    mut signals: Signals,
) -> Result<Exit, Failure> {
    let name = &*arguments.name;
    let mut closed = until_stdin_closes(arguments.ignore_stdin);
    if !arguments.terms.attempt {
        output::json(&Line { state: "waiting", name, token: None, remaining_ms: None, reason: None })?;
    }
    let guard = tokio::select! {
        granted = wait::acquire(locks, name, &arguments.terms, patience, &mut signals) => granted?,
        () = &mut closed => return Ok(Exit::SUCCESS),
    };
    let mut changes = guard.changes();
    let mut max_hold = pin!(wait::at_most(arguments.terms.max_hold));
    let told = loop {
        tokio::select! {
            biased;
            Some(change) = changes.next() => {
                let state = match change {
                    Change::State(GuardState::Lost(_)) => break Ok(()),
                    Change::State(GuardState::AtRisk) => "at_risk",
                    Change::State(GuardState::Held) => "held",
                    Change::RevocationRequested(_) => "revocation_requested",
                    _ => continue,
                };
                // Without a reader of the changes the hold ends.
                let grace = guard.grace_left().filter(|_| state == "revocation_requested");
                let left = grace.unwrap_or_else(|| guard.remaining());
                if let Err(failure) = tell(&guard, state, left) {
                    break Err(failure);
                }
            }
            _signal = signals.next() => break Ok(()),
            () = &mut closed => break Ok(()),
            allowed = &mut max_hold => break Err(Failure::max_hold(name, allowed)),
        }
    };
    let token = Some(guard.token().get());
    let last = |state, reason| Line { state, name, token, remaining_ms: Some(0), reason };
    match wait::patiently(guard.release(), wait::RELEASING).await {
        Ok(()) => {
            output::json(&last("released", None))?;
            told.map(|()| Exit::SUCCESS)
        }
        Err(error) => {
            let Some(reason) = error.lost_reason() else {
                // Not confirmed, so no line reports the release; the lease ends it.
                return Err(error.into());
            };
            output::json(&last("lost", Some(word(reason))))?;
            Err(Failure::lost(format!("the lock {name:?} is lost: {reason}")))
        }
    }
}

fn tell(guard: &LockGuard, state: &'static str, left: Duration) -> Result<(), Failure> {
    let remaining = Some(left).filter(|left| *left != Duration::MAX);
    output::json(&Line {
        state,
        name: guard.name().as_str(),
        token: Some(guard.token().get()),
        remaining_ms: remaining.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
        reason: None,
    })
}

fn word(reason: LostReason) -> &'static str {
    match reason {
        LostReason::Expired => "expired",
        LostReason::Gone => "gone",
        LostReason::Released => "released",
        LostReason::Revoked => "revoked",
        LostReason::SessionLost => "session_lost",
        LostReason::Shutdown => "shutdown",
        LostReason::MaxHold => "max_hold",
        _ => "other",
    }
}

/// Whether standard input is at its end. Input is read and dropped: it has no use.
fn is_at_its_end(input: &(impl AsFd + IsTerminal)) -> bool {
    if input.is_terminal() {
        return false;
    }
    let mut waiting = [PollFd::new(input, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let readable = poll(&mut waiting, Some(&now)).is_ok_and(|ready| ready > 0);
    readable && rustix::io::read(input, &mut [0; 1024]).is_ok_and(|bytes| bytes == 0)
}

/// Ends when standard input does. The terminal of another job is not read: the system
/// would stop us, and the lock with us.
fn until_stdin_closes(ignored: bool) -> impl Future<Output = ()> + Unpin {
    let (sender, closed) = oneshot::channel::<()>();
    let stdin = io::stdin();
    let in_foreground = || rustix::termios::tcgetpgrp(&stdin).ok() == Some(rustix::process::getpgrp());
    if ignored || (stdin.is_terminal() && !in_foreground()) {
        std::mem::forget(sender);
    } else {
        // Ends with the process at the latest; a read of standard input cannot be called off.
        thread::spawn(move || {
            let mut ignored = [0; 1024];
            while io::stdin().lock().read(&mut ignored).is_ok_and(|bytes| bytes > 0) {}
            drop(sender);
        });
    }
    Box::pin(async move {
        let _closed = closed.await;
    })
}
