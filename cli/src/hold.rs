//! `leasehold hold`: a lock for as long as somebody wants it, told line by line.
//!
//! For programs in any language: start it, read lines, close its standard input to release. Should
//! that program die, its end of the pipe closes, which releases too.

use std::io::{self, IsTerminal, Read};
use std::thread;
use std::time::Duration;

use futures_util::StreamExt;
use leasehold::{GuardState, LockGuard, LockManager, LostReason};
use serde::Serialize;
use tokio::sync::oneshot;

use crate::arguments::{Hold, Store};
use crate::failure::{Exit, Failure};
use crate::signals::Signals;
use crate::{output, store, wait};

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
    let signals = Signals::of_the_end()?;
    let locks = store::open_for(store, &arguments.terms).await?;
    let ended = hold_on(&locks, arguments, signals).await;
    store::close(&locks).await;
    ended
}

async fn hold_on(locks: &LockManager, arguments: &Hold, mut signals: Signals) -> Result<Exit, Failure> {
    let name = &*arguments.name;
    let mut closed = until_stdin_closes(arguments.ignore_stdin);
    if !arguments.terms.attempt {
        output::json(&Line { state: "waiting", name, token: None, remaining_ms: None, reason: None })?;
    }
    let guard = tokio::select! {
        granted = wait::acquire(locks, name, &arguments.terms, &mut signals) => granted?,
        () = &mut closed => return Ok(Exit::SUCCESS),
    };
    let mut changes = guard.changes();
    let told = loop {
        tokio::select! {
            biased;
            Some(state) = changes.next() => {
                // Whoever cannot be told of changes does not hold on.
                if matches!(state, GuardState::Lost(_)) {
                    break Ok(());
                }
                if let Err(failure) = tell(&guard, state) {
                    break Err(failure);
                }
            }
            _signal = signals.next() => break Ok(()),
            () = &mut closed => break Ok(()),
        }
    };
    let token = Some(guard.token().get());
    let last = |state, reason| Line { state, name, token, remaining_ms: Some(0), reason };
    match guard.release().await {
        Ok(()) => {
            output::json(&last("released", None))?;
            told.map(|()| Exit::SUCCESS)
        }
        Err(error) => {
            let Some(reason) = error.lost_reason() else {
                // Not confirmed, so nobody is told that it is released; the lease ends it.
                return Err(error.into());
            };
            output::json(&last("lost", Some(word(reason))))?;
            Err(Failure::lost(format!("the lock {name:?} is lost: {reason}")))
        }
    }
}

fn tell(guard: &LockGuard, state: GuardState) -> Result<(), Failure> {
    let state = if state == GuardState::AtRisk { "at_risk" } else { "held" };
    let remaining = Some(guard.remaining()).filter(|left| *left != Duration::MAX);
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
        _ => "other",
    }
}

/// Ends when standard input does. A terminal that somebody else reads from is not read: the system
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
