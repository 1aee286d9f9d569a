//! The current session, and the next one when it has ended.

use std::fmt;
use std::sync::{Arc, Weak};

use leasehold_core::backend::{Backoff, Events, LeaseId, Reopen, StoreEvent};
use leasehold_core::clock::Moment;
use leasehold_core::{Effect, Env, Error, LostReason, Result};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::Session;
use crate::config::PostgresConfig;
use crate::connection::{Connections, OnNotification};
use crate::error;
use crate::protocol::Notice;
use crate::schema;

/// The sessions of one manager, one after the other.
pub(crate) struct Sessions {
    pub(crate) env: Env,
    pub(crate) server: Arc<Connections>,
    /// As statements have it.
    pub(crate) schema: String,
    pub(super) closing: CancellationToken,
    pub(crate) events: Events,
    current: Reopen<Arc<Session>>,
    /// The notification queue is full: no notification is sent before that.
    tells_from: Mutex<Moment>,
}

impl Sessions {
    pub(crate) fn new(config: &PostgresConfig, env: Env, events: Events) -> Result<Arc<Self>> {
        let encryption = config.encryption()?;
        Ok(Arc::new_cyclic(|sessions: &Weak<Self>| {
            let sessions = Weak::clone(sessions);
            let on_notification: OnNotification = Box::new(move |text| {
                let session = sessions.upgrade().and_then(|sessions| sessions.current.last());
                if let Some((session, message)) = session.zip(Notice::read(text)) {
                    session.hears(message);
                }
            });
            Self {
                server: Arc::new(Connections::new(config, encryption, env.clone(), on_notification)),
                schema: schema::quoted(&config.schema),
                closing: CancellationToken::new(),
                events,
                current: Reopen::new(env.clone()),
                tells_from: Mutex::new(env.now()),
                env,
            }
        }))
    }

    pub(crate) fn refuse_if_closed(&self) -> Result<()> {
        if self.closing.is_cancelled() { Err(error::closed()) } else { Ok(()) }
    }

    /// Opens the first session. A server that is not there yet, or does not get to a request in time, is asked again until the
    /// bound of opening: no lock was requested.
    pub(crate) async fn begin(self: &Arc<Self>) -> Result<()> {
        let (bound, mut last) = (self.env.timing().connect_timeout, None);
        let repeated = async {
            let mut pauses = Backoff::of_requests(&self.env);
            loop {
                match self.session().await {
                    Err(error) if error::may_pass(&error) => last = Some(error),
                    begun => return begun.map(drop),
                }
                pauses.pause(&self.env).await;
            }
        };
        let begun = self.env.within(bound, repeated).await;
        begun.unwrap_or_else(|| Err(error::not_opened(bound, last.unwrap_or_else(|| self.server.why_not()))))
    }

    /// The session in use; a new one if that has ended.
    pub(crate) async fn session(self: &Arc<Self>) -> Result<Arc<Session>> {
        self.refuse_if_closed()?;
        let sessions = Arc::clone(self);
        let opened = self.current.get(Session::lives, || async move { Session::open(&sessions).await }).await;
        // No lock was requested yet.
        let session = opened.map_err(|error| error.with_effect(Effect::NotApplied))?;
        // RACE: `close` sees this session, or its closing is seen here.
        if let Err(closed) = self.refuse_if_closed() {
            // If it cannot be ended, it expires.
            let _ = self.close().await;
            return Err(closed);
        }
        Ok(session)
    }

    /// The current session, if it has that lease.
    pub(crate) fn of_lease(&self, lease: LeaseId) -> Result<Arc<Session>> {
        let current = self.current.last().filter(|session| session.id() == lease);
        current.ok_or_else(|| Error::lost(LostReason::SessionLost))
    }

    /// The number of the current session, also of an ended one.
    pub(crate) fn own_number(&self) -> i64 {
        self.current.last().map_or(0, |session| session.number)
    }

    /// Whether a change notifies those who hold by it; each decides by its channel whether it is notified.
    pub(crate) fn tells(&self) -> bool {
        *self.tells_from.lock() <= self.env.now()
    }

    /// After that error nobody is notified for one ttl: waiters look by themselves.
    pub(crate) fn note_full_queue(&self, error: &Error) {
        if error::is_full_queue(error) && self.tells() {
            *self.tells_from.lock() = self.env.now() + self.env.timing().ttl;
            let warning = "the notification queue of the server is full: waiters look by themselves for a while; a client that \
                           listens is in an open transaction";
            self.events.tell(StoreEvent::Warning(warning.into()));
        }
    }

    /// Ends the session and everything in it.
    ///
    /// # Cancel safety
    ///
    /// The session ends at the first poll; at the server when the request arrives, or when the lease ends.
    pub(crate) async fn close(&self) -> Result<()> {
        self.closing.cancel();
        let ended = match self.current.last() {
            Some(session) => {
                session.lose(LostReason::Shutdown);
                session.end_at_the_store().await
            }
            None => Ok(()),
        };
        if ended.is_ok() {
            self.current.take();
        }
        self.server.close();
        ended
    }
}

/// Sessions that are in use; ends them when dropped.
pub(crate) struct OpenSessions(pub(crate) Arc<Sessions>);

impl OpenSessions {
    pub(crate) fn unless_closed(&self) -> Result<&Arc<Sessions>> {
        self.0.refuse_if_closed().map(|()| &self.0)
    }
}

impl Drop for OpenSessions {
    /// As with a process that dies, the session expires at the server.
    fn drop(&mut self) {
        self.0.closing.cancel();
        if let Some(session) = self.0.current.take() {
            session.lose(LostReason::Shutdown);
        }
        self.0.server.close();
    }
}

impl fmt::Debug for OpenSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenSessions").field("servers", &self.0.server.config.hosts()).finish_non_exhaustive()
    }
}
