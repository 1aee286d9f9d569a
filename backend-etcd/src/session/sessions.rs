//! The current session, and the next one when it is over.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::backend::{Events, Grant, LeaseId, Renewal, StoreEvent};
use leasehold_core::{Effect, Env, Error, LostReason, Result};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::{Session, detached};
use crate::config::EtcdConfig;
use crate::connection::Endpoints;
use crate::error;
use crate::keys::Keyspace;

/// What one manager has to do with a cluster.
pub(crate) struct Sessions {
    pub(crate) env: Env,
    pub(crate) endpoints: Arc<Endpoints>,
    pub(crate) keys: Keyspace,
    pub(super) closing: CancellationToken,
    pub(crate) events: Events,
    current: Mutex<Option<Arc<Session>>>,
    /// Why a session could not be opened the last time.
    opening: tokio::sync::Mutex<Option<Error>>,
    /// How often one could not.
    refused: AtomicU64,
    token_base: AtomicU64,
}

impl Sessions {
    pub(crate) fn new(config: &EtcdConfig, env: Env, events: Events) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            endpoints: Arc::new(Endpoints::new(config, env.clone())?),
            keys: Keyspace::new(config.key_prefix()),
            closing: CancellationToken::new(),
            events,
            current: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            refused: AtomicU64::new(0),
            token_base: AtomicU64::new(0),
            env,
        }))
    }

    /// Opens the first session, unless the server is full.
    pub(crate) async fn begin(self: &Arc<Self>) -> Result<()> {
        match self.session().await {
            // It can still be looked at; whoever wants a lock is told why there is none.
            Err(error) if error::is_for_space(&error) => {
                self.events.tell(StoreEvent::Warning(format!("no lock can be taken: {error:#}").into()));
                Ok(())
            }
            opened => opened.map(drop),
        }
    }

    pub(crate) fn refuse_if_closed(&self) -> Result<()> {
        if self.closing.is_cancelled() { Err(error::closed()) } else { Ok(()) }
    }

    /// The session in use; a new one if that is over.
    pub(super) async fn session(self: &Arc<Self>) -> Result<Arc<Session>> {
        self.refuse_if_closed()?;
        if let Some(session) = self.living() {
            return Ok(session);
        }
        // Opened in a task of its own: whoever asked first may be polled no more, and the others need it.
        let (sessions, refused) = (Arc::clone(self), self.refused.load(Ordering::Relaxed));
        detached(&self.env, async move { sessions.open(refused).await }).await
    }

    /// Opens a session, unless another has, or has just failed to.
    async fn open(self: Arc<Self>, refused: u64) -> Result<Arc<Session>> {
        let mut opening = self.opening.lock().await;
        if let Some(session) = self.living() {
            return Ok(session);
        }
        if let Some(error) = opening.as_ref()
            && self.refused.load(Ordering::Relaxed) != refused
        {
            return Err(error.clone());
        }
        // No lock is asked for before there is a session.
        let opened = Session::open(&self).await.map_err(|error| error.with_effect(Effect::NotApplied));
        let session = opened.inspect_err(|error| {
            *opening = Some(error.clone());
            self.refused.fetch_add(1, Ordering::Relaxed);
        })?;
        self.token_base.store(session.token_base, Ordering::Relaxed);
        *self.current.lock() = Some(Arc::clone(&session));
        // RACE: `close` sees the session in its place, or its closing is seen here.
        if let Err(closed) = self.refuse_if_closed() {
            // If it cannot be revoked, it expires.
            let _ = self.close().await;
            self.end();
            return Err(closed);
        }
        Ok(session)
    }

    fn living(&self) -> Option<Arc<Session>> {
        let current = self.current.lock().clone();
        current.filter(Session::lives)
    }

    /// The lease of the current session, be it over or not.
    pub(crate) fn own_lease(&self) -> Option<i64> {
        self.current.lock().as_ref().map(|session| session.lease)
    }

    fn of_lease(&self, lease: LeaseId) -> Option<Arc<Session>> {
        self.current.lock().clone().filter(|session| session.id() == lease)
    }

    pub(crate) async fn renew(&self, lease: LeaseId) -> Renewal {
        match self.of_lease(lease) {
            Some(session) => session.renew().await,
            None => Renewal::Gone(LostReason::SessionLost),
        }
    }

    pub(crate) async fn release(&self, grant: &Grant) -> Result<()> {
        match self.of_lease(grant.lease.id) {
            Some(session) => session.release(grant).await,
            None => Err(Error::lost(LostReason::SessionLost)),
        }
    }

    /// The core trusts a session no more.
    pub(crate) fn give_up(&self, lease: LeaseId) {
        if let Some(session) = self.of_lease(lease) {
            session.lose(LostReason::SessionLost);
        }
    }

    /// The counter of a foreign entry, for show.
    pub(crate) fn shown_counter(&self, create: i64) -> u64 {
        create.unsigned_abs().saturating_add(self.token_base.load(Ordering::Relaxed))
    }

    /// Ends the session and everything on it.
    ///
    /// # Cancel safety
    ///
    /// The session is over at the first poll; its lease ends at the store when it is revoked, or
    /// expires.
    pub(crate) async fn close(&self) -> Result<()> {
        let Some(session) = self.end() else {
            return Ok(());
        };
        // Asked again, it is revoked again.
        session.revoke_lease().await.inspect_err(|_error| *self.current.lock() = Some(session))
    }

    /// Lets everything go as a process does that dies: its lease ends it at the store.
    pub(crate) fn end(&self) -> Option<Arc<Session>> {
        self.closing.cancel();
        let session = self.current.lock().take()?;
        session.lose(LostReason::Shutdown);
        Some(session)
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions")
            .field("endpoints", &self.endpoints)
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}
