//! The surroundings of every part of the core: the environment, the store, and whether the manager is open.
//!
//! Everything that holds, waits or releases keeps it alive. When the last of these is gone, the manager closes and
//! the session ends.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::backend::LockBackend;
use crate::backend::env::Env;
use crate::backend::panic::waking;
use crate::words::error::{Error, ErrorKind, Result};
use crate::words::name::LockName;

pub(crate) struct Context {
    pub(crate) env: Env,
    /// The backend's own tasks run here.
    pub(crate) store_env: Env,
    pub(crate) backend: Arc<dyn LockBackend>,
    /// Where the store is, for errors.
    server: Option<String>,
    /// How this process is called in the store.
    pub(crate) label: Arc<str>,
    /// The shortest ttl that the store keeps reliably.
    pub(crate) min_ttl: Duration,
    /// Read by every request: a token takes locks.
    is_closed: AtomicBool,
    /// For those that wait for nothing else.
    pub(crate) closing: CancellationToken,
    /// A shutdown waits for no release that is put off.
    pub(crate) hurries: CancellationToken,
    /// A shutdown has closed the session.
    is_closed_down: AtomicBool,
}

impl Context {
    pub(crate) fn new(
        env: Env,
        store_env: Env,
        backend: Arc<dyn LockBackend>,
        server: Option<String>,
        label: Arc<str>,
        min_ttl: Duration,
    ) -> Self {
        let [closing, hurries] = [(); 2].map(|()| CancellationToken::new());
        let [is_closed, is_closed_down] = Default::default();
        Self { env, store_env, backend, server, label, min_ttl, is_closed, closing, hurries, is_closed_down }
    }

    /// Adds to an error of the store where that is.
    pub(crate) fn placed(&self, error: Error) -> Error {
        match &self.server {
            Some(server) => error.with_context("server", server),
            None => error,
        }
    }

    /// Adds to an error of the store where that is, and which lock it is about.
    pub(crate) fn error_about(&self, name: &LockName, error: Error) -> Error {
        self.placed(error).with_context("lock", name)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// The manager is closed for its callers from here on. Its leases are renewed on.
    pub(crate) fn refuse(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.env.call_all();
    }

    /// The manager is closed from here on, as all that wait for it hear.
    pub(crate) fn close(&self) {
        self.refuse();
        waking(|| self.closing.cancel());
    }

    pub(crate) fn refuse_closed(&self) -> Result<()> {
        if self.is_closed() { Err(Self::closed_error()) } else { Ok(()) }
    }

    pub(crate) fn closed_error() -> Error {
        Error::not_applied(ErrorKind::Closed, "the lock manager was shut down")
    }

    /// Runs `request` as [`Env::bounded`] without a bound; cancels it when the manager is shut down.
    pub(crate) async fn until_closed<T: Send>(
        &self,
        request: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let mut request = pin!(request);
        let answer =
            self.env.until(None, || self.is_closed(), |cx| self.env.poll_answer(request.as_mut(), cx));
        answer.await.unwrap_or_else(|| Err(Self::closed_error()))
    }

    /// Runs `request` as [`Env::bounded`]; cancels it when the manager is shut down.
    pub(crate) async fn bounded<T: Send>(
        &self,
        request: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let (mut request, env) = (pin!(request), &self.env);
        let is_over = || self.is_closed() || env.is_gone();
        let answer =
            env.until(Some(env.timing().op_timeout), is_over, |cx| env.poll_answer(request.as_mut(), cx));
        let unanswered = || if self.is_closed() { Self::closed_error() } else { env.unanswered() };
        answer.await.unwrap_or_else(|| Err(unanswered()))
    }

    /// Closes the session, within the bound of a request.
    pub(crate) async fn close_session(&self) -> Result<()> {
        let closed = self.env.bounded(self.backend.close()).await;
        self.is_closed_down.store(true, Ordering::Relaxed);
        closed
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.close();
        // RACE: a shutdown may have been cancelled after the session was closed.
        if *self.is_closed_down.get_mut() {
            return;
        }
        let backend = Arc::clone(&self.backend);
        self.env.spawn(async move {
            if let Err(error) = backend.close().await {
                tracing::warn!(error = ?format!("{error:#}"), "session not closed; it ends with its lease");
            }
        });
    }
}
