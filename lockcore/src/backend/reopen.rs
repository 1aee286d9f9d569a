//! A connection or session that is opened by the first caller that needs it.
//!
//! # Invariants
//! - **reopen-1** At most one opening is pending. Other callers wait for it, and get the same error if it fails.
//! - **reopen-2** A pending opening does not depend on its caller: it continues in its own task, because the caller
//!   may not be polled any more while others need it.

use std::future::Future;

use tokio::sync::watch;

use crate::backend::env::Env;
use crate::words::error::{Error, Result};

/// A connection or a session, and the next one when it serves no longer.
#[derive(Debug)]
pub struct Reopen<T> {
    env: Env,
    state: watch::Sender<OpenState<T>>,
}

#[derive(Debug)]
struct OpenState<T> {
    /// The last session that was opened.
    opened: Option<T>,
    /// Why none could be opened after it.
    refused: Option<Error>,
    /// How often opening has ended, in either way.
    attempts: u64,
    is_opening: bool,
    /// The pending opening is not wanted any more.
    was_taken: bool,
}

impl<T: Clone + Send + Sync + 'static> Reopen<T> {
    /// Nothing is open yet.
    pub fn new(env: Env) -> Self {
        let state =
            OpenState { opened: None, refused: None, attempts: 0, is_opening: false, was_taken: false };
        Self { env, state: watch::Sender::new(state) }
    }

    /// Returns the last opened one, whether it serves or not.
    pub fn last(&self) -> Option<T> {
        self.state.borrow().opened.clone()
    }

    /// Takes it away, also a pending opening: its waiters are refused.
    pub fn take(&self) -> Option<T> {
        let mut taken = None;
        self.state.send_modify(|state| (taken, state.was_taken) = (state.opened.take(), state.is_opening));
        taken
    }

    /// Why the last attempt to open failed.
    pub fn refused(&self) -> Option<Error> {
        self.state.borrow().refused.clone()
    }

    /// Returns the open one if it `serves`; otherwise opens one, or waits for the pending opening.
    ///
    /// # Errors
    ///
    /// Those of `open`; [`ErrorKind::Closed`](crate::ErrorKind::Closed) once the manager's runtime is gone.
    ///
    /// # Cancel safety
    ///
    /// The opening continues for the other callers, and for later ones.
    pub async fn get<F>(&self, serves: impl Fn(&T) -> bool, open: impl FnOnce() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        if let Some(opened) = self.last().filter(&serves) {
            return Ok(opened);
        }
        let (mut opened, mut before, mut is_first) = (None, 0, false);
        self.state.send_if_modified(|state| {
            // RACE: an attempt may have ended just now.
            opened = state.opened.clone().filter(&serves);
            before = state.attempts;
            is_first = opened.is_none() && !std::mem::replace(&mut state.is_opening, true);
            false
        });
        if let Some(opened) = opened {
            return Ok(opened);
        }
        if is_first {
            let (attempt, opening) = (Attempt { state: self.state.clone(), outcome: None }, open());
            self.env.spawn(attempt.ends_with(opening));
        }
        let mut states = self.state.subscribe();
        // The sender is here.
        let ended = states.wait_for(|state| state.attempts != before).await;
        let state = ended.map_err(|_| Env::gone_error())?;
        match (&state.refused, &state.opened) {
            (None, Some(opened)) => Ok(opened.clone()),
            (refused, _) => Err(refused.clone().unwrap_or_else(Env::gone_error)),
        }
    }
}

/// A pending opening, until it is dropped.
struct Attempt<T> {
    state: watch::Sender<OpenState<T>>,
    outcome: Option<Result<T>>,
}

impl<T: Send + Sync> Attempt<T> {
    async fn ends_with(mut self, opening: impl Future<Output = Result<T>> + Send) {
        self.outcome = Some(opening.await);
    }
}

impl<T> Drop for Attempt<T> {
    fn drop(&mut self) {
        let outcome = self.outcome.take().unwrap_or_else(|| Err(Env::gone_error()));
        let mut unwanted = None;
        self.state.send_modify(|state| {
            (state.is_opening, state.attempts) = (false, state.attempts + 1);
            match outcome {
                Ok(opened) if std::mem::take(&mut state.was_taken) => {
                    (unwanted, state.refused) = (Some(opened), Some(Env::gone_error()));
                }
                Ok(opened) => (state.opened, state.refused) = (Some(opened), None),
                Err(error) => (state.was_taken, state.refused) = (false, Some(error)),
            }
        });
        // Not with the state locked: it may be the last reference to its owner.
        drop(unwanted);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::sync::Semaphore;

    use super::*;
    use crate::Timing;
    use crate::words::error::ErrorKind;

    /// Opens numbers, each once it is let; even ones are refused.
    struct Door {
        way: Reopen<u64>,
        opened: Arc<AtomicU64>,
        lets: Arc<Semaphore>,
    }

    impl Door {
        fn new() -> Self {
            let way = Reopen::new(Env::new(Timing::for_ttl(Timing::DEFAULT_TTL)).unwrap());
            Self { way, opened: Arc::default(), lets: Arc::new(Semaphore::new(0)) }
        }

        async fn get(&self, serves: impl Fn(&u64) -> bool) -> Result<u64> {
            let open = || {
                let number = self.opened.fetch_add(1, Ordering::SeqCst) + 1;
                let lets = Arc::clone(&self.lets);
                async move {
                    lets.acquire().await.unwrap().forget();
                    match number % 2 {
                        0 => Err(Error::not_applied(ErrorKind::Unavailable, number.to_string())),
                        _ => Ok(number),
                    }
                }
            };
            self.way.get(serves, open).await
        }
    }

    /// reopen-1
    #[tokio::test]
    async fn those_who_ask_together_are_told_the_same() {
        let door = Door::new();
        for (serves, outcome) in [(false, Ok(1)), (true, Ok(1)), (false, Err("2")), (false, Ok(3))] {
            door.lets.add_permits(usize::from(!serves));
            let (one, other) = tokio::join!(door.get(|_| serves), door.get(|_| serves));
            for told in [one, other] {
                assert_eq!(told.map_err(|error| error.to_string()), outcome.map_err(str::to_owned));
            }
        }
        assert_eq!((door.opened.load(Ordering::SeqCst), door.way.last()), (3, Some(3)));
        assert_eq!(door.way.take(), Some(3));
        assert!(door.way.last().is_none() && door.way.refused().is_none());
    }

    /// reopen-2
    #[tokio::test]
    async fn first_caller_may_leave() {
        let door = Door::new();
        {
            let mut first = std::pin::pin!(door.get(|_| true));
            assert!(futures_util::poll!(&mut first).is_pending());
        }
        door.lets.add_permits(1);
        assert_eq!(door.get(|_| true).await.unwrap(), 1);
    }

    /// Neither an open nor a pending one returns after it was taken; a later one is kept.
    #[tokio::test]
    async fn session_being_opened_is_removed_with_the_rest() {
        let door = Door::new();
        {
            let mut waiting = std::pin::pin!(door.get(|_| true));
            assert!(futures_util::poll!(&mut waiting).is_pending());
            assert!(door.way.take().is_none());
            door.lets.add_permits(3);
            assert_eq!(*waiting.await.unwrap_err().kind(), ErrorKind::Closed);
            assert!(door.way.last().is_none());
        }
        // Even numbers are refused.
        assert!(door.get(|_| true).await.is_err());
        assert_eq!(door.get(|_| true).await.unwrap(), 3);
        assert_eq!(door.way.last(), Some(3));
    }

    /// A task that is dropped with its runtime ends the wait of its callers.
    #[tokio::test]
    async fn an_attempt_that_is_dropped_is_an_answer() {
        let door = Door::new();
        let waiting = door.get(|_| true);
        let drops = async {
            tokio::task::yield_now().await;
            door.lets.close();
        };
        let (told, ()) = tokio::join!(waiting, drops);
        assert_eq!(*told.unwrap_err().kind(), ErrorKind::Closed);
    }
}
