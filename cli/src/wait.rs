//! Waiting for a lock: for as long as the terms say, or until a signal comes.

use std::io::{self, IsTerminal};
use std::time::Duration;

use leasehold::{ErrorKind, LockGuard, LockManager};

use crate::arguments::Terms;
use crate::failure::Failure;
use crate::output;
use crate::signals::Signals;

/// Takes the lock on the terms given.
///
/// # Cancel safety
///
/// Dropping the future leaves nothing behind at the store.
pub(crate) async fn acquire(
    locks: &LockManager,
    name: &str,
    terms: &Terms,
    signals: &mut Signals,
) -> Result<LockGuard, Failure> {
    let mut lock = locks.lock(name)?;
    if terms.attempt {
        lock = lock.wait(Duration::ZERO);
    } else if let Some(wait) = terms.wait {
        lock = lock.wait(wait);
    }
    if let Some(metadata) = &terms.metadata {
        lock = lock.metadata(metadata);
    }
    let granted = tokio::select! {
        granted = lock.acquire() => granted,
        signal = signals.next() => {
            let interrupted = Failure::interrupted(signal.as_raw());
            // A second signal does not wait for the store to hear of it.
            tokio::select! {
                () = crate::store::close(locks) => {}
                _again = signals.next() => {}
            }
            return Err(interrupted);
        }
        () = hint(locks, name) => unreachable!("the hint is for ever"),
    };
    granted.map_err(|error| match error.kind() {
        ErrorKind::Timeout { holder, .. } => Failure::busy(name, holder.as_ref(), terms.conflict_exit_code),
        _ => error.into(),
    })
}

/// Tells whoever sits at the terminal why nothing happens. Does not end.
async fn hint(locks: &LockManager, name: &str) {
    if io::stderr().is_terminal() {
        tokio::time::sleep(HINT_AFTER).await;
        // No answer means no hint.
        if let Ok(state) = locks.inspect(name).await {
            let who = state.holder.as_ref().map_or_else(|| "nobody yet".to_owned(), output::who);
            let line = format!("leasehold: waiting for {name:?}, held by {who}");
            output::complain(&output::safe(&line));
        }
    }
    std::future::pending().await
}

const HINT_AFTER: Duration = Duration::from_secs(1);
