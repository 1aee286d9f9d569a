//! The current session, and the next one when it has ended.

use std::fmt;
use std::sync::Arc;

use leasehold_core::backend::{Events, LeaseId, Reopen, StoreEvent};
use leasehold_core::{Effect, Env, Error, LostReason, Result};
use tokio_util::sync::CancellationToken;

use super::Session;
use crate::config::EtcdConfig;
use crate::connection::Endpoints;
use crate::error;
use crate::keys::Keyspace;

/// The sessions of one manager, one after the other.
pub(crate) struct Sessions {
    pub(crate) env: Env,
    pub(crate) endpoints: Arc<Endpoints>,
    pub(crate) keys: Keyspace,
    pub(super) closing: CancellationToken,
    pub(crate) events: Events,
    current: Reopen<Arc<Session>>,
}

impl Sessions {
    pub(crate) fn new(config: &EtcdConfig, env: Env, events: Events) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            endpoints: Arc::new(Endpoints::new(config, env.clone())?),
            keys: Keyspace::new(&config.prefix),
            closing: CancellationToken::new(),
            events,
            current: Reopen::new(env.clone()),
            env,
        }))
    }

    /// Opens the first session, unless the server is full.
    pub(crate) async fn begin(self: &Arc<Self>) -> Result<()> {
        match self.session().await {
            // Inspecting works; an acquire returns this error.
            Err(error) if error::tells(&error, error::NO_SPACE) => {
                self.events.tell(StoreEvent::Warning(format!("no lock can be acquired: {error:#}").into()));
                Ok(())
            }
            opened => opened.map(drop),
        }
    }

    pub(crate) fn refuse_if_closed(&self) -> Result<()> {
        if self.closing.is_cancelled() { Err(error::closed()) } else { Ok(()) }
    }

    /// The session in use; a new one if that has ended.
    pub(super) async fn session(self: &Arc<Self>) -> Result<Arc<Session>> {
        self.refuse_if_closed()?;
        let sessions = Arc::clone(self);
        let opened = self.current.get(Session::lives, || async move { Session::open(&sessions).await }).await;
        // No lock was requested yet.
        let session = opened.map_err(|error| error.with_effect(Effect::NotApplied))?;
        // RACE: `close` sees this session, or its closing is seen here.
        if let Err(closed) = self.refuse_if_closed() {
            // If it cannot be revoked, it expires.
            let _ = self.close().await;
            return Err(closed);
        }
        Ok(session)
    }

    /// The value of a session's key.
    pub(super) fn says(&self) -> &'static str {
        if self.env.adds_token_base() { "" } else { Keyspace::MOVES }
    }

    /// The lease of the current session, also of an ended one.
    pub(crate) fn own_lease(&self) -> Option<i64> {
        self.current.last().map(|session| session.lease)
    }

    /// The current session, if it has that lease.
    pub(crate) fn of_lease(&self, lease: LeaseId) -> Result<Arc<Session>> {
        let current = self.current.last().filter(|session| session.id() == lease);
        current.ok_or_else(|| Error::lost(LostReason::SessionLost))
    }

    /// The counter of a foreign entry, for show.
    pub(crate) fn shown_counter(&self, create: i64) -> u64 {
        create.unsigned_abs().saturating_add(self.current.last().map_or(0, |session| session.token_base))
    }

    /// Ends a lease at the store, with its keys.
    pub(super) async fn end_lease(&self, lease: i64) -> Result<()> {
        let ended = self.endpoints.ask(|client| async move { client.lease_client().revoke(lease).await });
        match ended.await {
            Err(error) if error.lost_reason().is_some() => Ok(()),
            other => other.map(drop),
        }
    }

    /// Ends the session and everything on it.
    ///
    /// # Cancel safety
    ///
    /// The session ends at the first poll; its lease ends at the store when it is revoked, or expires.
    pub(crate) async fn close(&self) -> Result<()> {
        self.closing.cancel();
        if let Some(session) = self.current.last() {
            session.lose(LostReason::Shutdown);
            self.end_lease(session.lease).await?;
            self.current.take();
        }
        Ok(())
    }
}

/// Sessions that are in use; ends them when dropped.
pub(crate) struct Open(pub(crate) Arc<Sessions>);

impl Open {
    pub(crate) fn unless_closed(&self) -> Result<&Arc<Sessions>> {
        self.0.refuse_if_closed().map(|()| &self.0)
    }
}

impl Drop for Open {
    /// As with a process that dies, the lease expires at the store.
    fn drop(&mut self) {
        self.0.closing.cancel();
        if let Some(session) = self.0.current.take() {
            session.lose(LostReason::Shutdown);
        }
    }
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Open").field("endpoints", &self.0.endpoints.urls).finish_non_exhaustive()
    }
}
