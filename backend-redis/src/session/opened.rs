//! A session as whoever has opened it has it, and its end: the same with one server and with several.

use std::ops::Deref;
use std::sync::Arc;

use leasehold_core::clock::Moment;
use leasehold_core::{Effect, Env, Error, ErrorKind, Result};
use tokio_util::task::TaskTracker;

/// What can be opened.
pub(crate) trait Ends {
    /// Sends nothing any more.
    fn cut(&self);
}

/// With the last of these a session is cut, and leases end what is left.
#[derive(Debug)]
pub(crate) struct Opened<S: Ends>(pub(crate) Arc<S>);

impl<S: Ends> Deref for Opened<S> {
    type Target = Arc<S>;

    fn deref(&self) -> &Arc<S> {
        &self.0
    }
}

impl<S: Ends> Drop for Opened<S> {
    fn drop(&mut self) {
        self.cut();
    }
}

/// Waits for what is being released while a session ends, until `give_up_at`.
///
/// # Errors
///
/// Unknown when not all of that was confirmed.
pub(crate) async fn released(leaving: &TaskTracker, env: &Env, give_up_at: Moment) -> Result<()> {
    leaving.close();
    tokio::select! {
        biased;
        () = leaving.wait() => Ok(()),
        () = env.sleep_until(give_up_at) => {
            let message = "it was not confirmed that everything was released; leases end it";
            Err(Error::new(ErrorKind::Unavailable, Effect::Unknown, message))
        }
    }
}
