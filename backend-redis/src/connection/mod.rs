//! A connection to the server that is made again whenever it breaks.
//!
//! One task per link connects, and connects again with growing pauses. A connection has two sockets: one for requests, the
//! wire, and one for messages, of the client crate, in whose task they are handled.
//! Requests go through whatever connection is up; one that breaks, or that is silent for a whole
//! request, takes what was in flight with it, and nothing is repeated here. It is reset, not closed in
//! order: what it has not delivered by then, it never does, unless the network keeps it.
//!
//! The client crate's own reconnecting manager is not used: after it has subscribed again, answers
//! can belong to other requests.
//!
//! # Invariants
//! - **redis.connection-1** Both sockets of a connection lead to one run of the server, and end together. The subscription is
//!   confirmed after the socket of the wire is open, and before the first request is sent over that.
//! - **redis.connection-2** Messages count only if the server that answers requests sends them: a proxy may lead the two
//!   sockets to different servers, and a grant by one of them does not bind the other. So each connection publishes an empty
//!   message to its own inbox, which must reach a subscriber of that server and come back.

mod client;
mod confirming;
mod connected;
mod login;
mod meter;
mod namespace;
mod pause;
mod sentinels;
mod served;
mod slot_listener;
mod slot_pause;
mod state;
mod whereabouts;
mod wire;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::try_join;
use leasehold_core::backend::Backoff;
use leasehold_core::clock::Moment;
use leasehold_core::{Env, Error, ErrorKind, Result};
use redis::aio::{AsyncPushSender, MultiplexedConnection, SendError};
use redis::{AsyncConnectionConfig, PushInfo, PushKind, RedisError, RedisResult, Value};
use tokio::sync::{OnceCell, watch};
use tokio_util::sync::CancellationToken;

use crate::cluster::HashSlot;
use crate::error;

pub(crate) use self::client::Client;
pub(crate) use self::confirming::{Confirming, Copies, too_few_copies};
pub(crate) use self::connected::{Connected, had_ended};
use self::connected::{Connection, Times};
pub(crate) use self::namespace::{Asks, Namespace, as_token_base, record, token_base};
pub(crate) use self::pause::{Pause, ServerPause};
pub(crate) use self::sentinels::{Sentinels, Watched};
pub(crate) use self::served::Left;
pub(crate) use self::slot_pause::{Refuses, SlotPause};
pub(crate) use self::state::ConnectionState;
pub(crate) use self::whereabouts::{Fixed, Whereabouts};
use self::wire::Wire;

/// One link; it is up or down.
#[derive(Debug)]
pub(crate) struct Link {
    env: Env,
    whereabouts: Arc<dyn Whereabouts>,
    /// The channel to subscribe to, if there is one.
    inbox: Option<Inbox>,
    /// The first question to each connection, if a server that may have forgotten holders grants nothing at first.
    pause: Option<Pause>,
    /// The server was a replica last: the next one is used once it says that it is the primary.
    wants_primary: AtomicBool,
    /// The connection, or the reason why there is none.
    up: watch::Sender<Result<Connected>>,
    /// The number that is added to counters, as of the latest connection.
    token_base: AtomicU64,
}

/// The channel of a link, and the receiver of its messages.
#[derive(Clone, Debug)]
pub(crate) struct Inbox {
    pub(crate) channel: String,
    pub(crate) hears: Arc<dyn Hears>,
    /// The namespace of the session, if each connection must be admitted to it.
    pub(crate) keys: Option<Namespace>,
}

/// Receives the events of a link, in the task that reads it.
pub(crate) trait Hears: fmt::Debug + Send + Sync {
    fn hear(&self, event: LinkEvent);
}

/// The news of a link for the session.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// It is up again: messages were missed meanwhile.
    UpAgain,
    /// It is up, for the first time or again, and the user may not subscribe to the inbox, or not publish to it.
    Deaf,
    /// It is up again, and others sign their messages with another key, or the session's own are not signed as theirs.
    OtherKey(String),
    /// A message in the inbox.
    Message(Vec<u8>, Arc<ConnectionState>),
    /// A message in a channel of foreign clients.
    Foreign(String),
    /// A message in the channel of a slot.
    SlotMessage(Vec<u8>, Arc<ConnectionState>),
    /// From here on the channel of a slot is heard over that connection, or is not any more.
    Slot { slot: HashSlot, connection: u64, is_heard: bool },
}

impl LinkEvent {
    /// The warning about [`LinkEvent::Deaf`].
    pub(crate) const UNHEARD: &str = "the user cannot subscribe and publish to the channels of the prefix, so a \
        waiter may learn of its grant up to a third of the ttl late: grant &PREFIX:inbox:*, +subscribe and +publish";
}

impl Link {
    /// A link that is down.
    pub(crate) fn new(
        env: Env,
        whereabouts: Arc<dyn Whereabouts>,
        inbox: Option<Inbox>,
        pause: Option<Pause>,
    ) -> Self {
        let up = watch::Sender::new(Err(lost()));
        Self {
            env,
            whereabouts,
            inbox,
            pause,
            wants_primary: AtomicBool::new(false),
            up,
            token_base: AtomicU64::new(0),
        }
    }

    /// Connects, and stays connected in a task until `closed`; returns what is wrong with the message key, if something is.
    /// [`LinkEvent::Deaf`] comes for later connections only.
    pub(crate) async fn start(self: &Arc<Self>, closed: CancellationToken) -> Result<Option<String>> {
        let (first, other_key) = self.join(self.env.timing().connect_timeout, error::of_opening).await?;
        _ = self.up.send_replace(Ok(first.clone()));
        self.stay_up(Some(first), closed);
        Ok(other_key)
    }

    /// Connects in a task, and stays connected there until `closed`.
    pub(crate) fn start_later(self: &Arc<Self>, closed: CancellationToken) {
        self.stay_up(None, closed);
    }

    fn stay_up(self: &Arc<Self>, first: Option<Connected>, closed: CancellationToken) {
        let link = Arc::clone(self);
        self.env.spawn(async move {
            closed.run_until_cancelled(link.keep_up(first)).await;
            let last = link.up.borrow().clone();
            // Why there was none stays what it is.
            if let Ok(connected) = last {
                _ = link.up.send_replace(Err(lost()));
                // A session may still have it at hand.
                connected.0.state.end();
            }
        });
    }

    /// Ends once the link was up and is not any more.
    pub(crate) async fn lost(&self) {
        let mut up = self.up.subscribe();
        // Without the link nothing is sent.
        _ = up.wait_for(Result::is_ok).await;
        _ = up.wait_for(Result::is_err).await;
    }

    /// Whether the connection that is up brings no messages, as the user may not subscribe or publish to its inbox.
    pub(crate) fn is_deaf(&self) -> bool {
        self.up().is_some_and(|up| up.0.state.is_deaf())
    }

    /// The connection, as soon as there is one.
    ///
    /// # Errors
    ///
    /// Not applied: why there was none until `give_up_at`.
    pub(crate) async fn connected(&self, give_up_at: Moment) -> Result<Connected> {
        if let Some(connected) = self.up() {
            return Ok(connected);
        }
        let mut up = self.up.subscribe();
        let connected = tokio::select! {
            biased;
            up = up.wait_for(|up| up.as_ref().is_ok_and(Connected::is_whole)) => up.ok().and_then(|up| up.clone().ok()),
            () = self.env.sleep_until(give_up_at) => None,
        };
        connected.ok_or_else(|| self.up.borrow().as_ref().err().cloned().unwrap_or_else(lost))
    }

    /// The connection, if there is one.
    pub(crate) fn up(&self) -> Option<Connected> {
        self.up.borrow().as_ref().ok().filter(|up| up.is_whole()).cloned()
    }

    async fn keep_up(&self, first: Option<Connected>) {
        let mut next = first;
        // A request waits for longer than this, so it meets an attempt.
        let longest = self.env.timing().op_timeout * 3 / 4;
        let mut pauses = Backoff::new(FIRST_PAUSE, longest);
        loop {
            let is_first = next.is_some();
            let attempt = match next.take() {
                Some(first) => Ok(first),
                // Short: an attempt that hangs keeps the next one waiting.
                None => self.connect_again().await,
            };
            match attempt {
                Ok(connected) => {
                    _ = self.up.send_replace(Ok(connected.clone()));
                    let Connection { client, up_at, state, .. } = &*connected.0;
                    if let Some(inbox) = self.inbox.as_ref().filter(|_| !is_first) {
                        inbox.hears.hear(if state.is_deaf() { LinkEvent::Deaf } else { LinkEvent::UpAgain });
                    }
                    tokio::select! {
                        () = state.over() => self.whereabouts.doubt(),
                        () = self.whereabouts.left(client) => state.end(),
                        () = self.stay_logged_in(&connected) => {}
                    }
                    self.wants_primary.store(state.is_at_replica(), Ordering::Relaxed);
                    _ = self.up.send_replace(Err(lost()));
                    // A server that accepts and refuses is not asked more often than one that does not.
                    if self.env.now().since(*up_at) > longest {
                        pauses.reset();
                    }
                    tracing::debug!("the connection to the server is lost");
                }
                Err(error) => {
                    tracing::debug!(error = ?format!("{error:#}"), "the server cannot be reached");
                    self.wants_primary.fetch_or(error::is_of_replica(&error), Ordering::Relaxed);
                    _ = self.up.send_replace(Err(error));
                }
            }
            let pause = pauses.next(&self.env);
            let is_lagging = self.wants_primary.load(Ordering::Relaxed);
            let least = if is_lagging { self.env.jittered(2 * AT_REPLICA) } else { Duration::ZERO };
            self.env.sleep(pause.max(least)).await;
        }
    }

    /// A move did not count a session that was disconnected, and may have barred the namespace since.
    async fn connect_again(&self) -> Result<Connected> {
        let (connected, other_key) = self.join(self.env.timing().op_timeout, error::of_connecting).await?;
        if let (Some(said), Some(inbox)) = (other_key, &self.inbox) {
            inbox.hears.hear(LinkEvent::OtherKey(said));
        }
        Ok(connected)
    }

    /// Connects, and is admitted; what is wrong with the message key, if something is.
    async fn join(
        &self,
        bound: Duration,
        failed: fn(RedisError) -> Error,
    ) -> Result<(Connected, Option<String>)> {
        let connected = self.connect(bound, failed).await?;
        // Its requests fail with the connection.
        let other_key = self.admit(&connected, self.env.now() + bound).await?;
        Ok((connected, other_key))
    }

    /// Whether messages count that come over `connected`, and whether the namespace admits the session, if it must; and the
    /// base, which may have been raised while the session was away. The fault of its message key, if it has one.
    async fn admit(&self, connected: &Connected, give_up_at: Moment) -> Result<Option<String>> {
        let Some(inbox) = &self.inbox else { return Ok(None) };
        let reads = async {
            match &inbox.keys {
                Some(namespace) => namespace.admit(&self.env, connected, give_up_at).await,
                None => Ok((0, None)),
            }
        };
        // The message is first, and costs no round trip.
        let (hears, (base, other_key)) =
            try_join(connected.hears_itself(&inbox.channel, give_up_at), reads).await?;
        // It is never lowered.
        self.token_base.fetch_max(base, Ordering::Relaxed);
        let state = &connected.0.state;
        state.is_deaf.store(!hears, Ordering::Relaxed);
        state.is_admitted.store(hears, Ordering::Relaxed);
        Ok(other_key)
    }

    /// The number that is added to counters.
    pub(crate) fn token_base(&self) -> u64 {
        self.token_base.load(Ordering::Relaxed)
    }

    async fn connect(&self, bound: Duration, failed: fn(RedisError) -> Error) -> Result<Connected> {
        tokio::select! {
            biased;
            // Its own bounds come later.
            connected = self.connect_unbounded(self.env.now() + 2 * bound, failed) => connected,
            () = self.env.sleep(bound) => {
                let silent = Error::not_applied(ErrorKind::Unavailable, "cannot connect");
                Err(silent.with_source(format!("no answer within {bound:?}")))
            }
        }
    }

    async fn connect_unbounded(
        &self,
        give_up_at: Moment,
        failed: fn(RedisError) -> Error,
    ) -> Result<Connected> {
        let began_at = self.env.now();
        let client = self.whereabouts.client(give_up_at).await?;
        let (stream, address) = client.dial(None).await.map_err(|error| failed(error.into()))?;
        let opened = try_join(client.log_in(stream), async {
            match &self.inbox {
                Some(inbox) => self.listen(&client, inbox, address).await.map(Some),
                None => Ok(None),
            }
        });
        let (stream, listener) = opened.await.map_err(failed)?;
        let up_at = self.env.now();
        let (state, listener) =
            listener.map_or_else(Default::default, |(listener, state)| (state, Some(listener)));
        let wire = Wire::start(self.env.clone(), stream, Arc::clone(&state));
        let id = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        let slots = OnceCell::new();
        let mut connection =
            Connection { id, client, began_at, up_at, times: Times::Unasked, wire, listener, slots, state };
        if let Some(pause) = &self.pause {
            // It is for a primary to say.
            connection.times = pause.ask(&connection, give_up_at, failed).await?;
        } else if (self.wants_primary.load(Ordering::Relaxed) || self.whereabouts.is_told())
            && !connection.is_primary(give_up_at).await?
        {
            return Err(error::of_replica());
        }
        Ok(Connected(Arc::new(connection)))
    }

    /// Subscribes to the inbox at the server with that address.
    async fn listen(
        &self,
        client: &Client,
        inbox: &Inbox,
        address: Option<SocketAddr>,
    ) -> RedisResult<(MultiplexedConnection, Arc<ConnectionState>)> {
        let state = Arc::new(ConnectionState::default());
        let options = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_push_sender(PushReceiver { inbox: inbox.clone(), state: Arc::clone(&state) });
        let (stream, _) = client.dial(address).await?;
        let (mut listener, driver) = client.connect(stream, options).await?;
        let driving = Arc::clone(&state);
        self.env.spawn(async move {
            tokio::select! {
                biased;
                () = driving.over() => {}
                () = driver => {}
            }
        });
        match listener.subscribe(&inbox.channel).await {
            Err(denied) if error::is_denied(&denied) => state.is_deaf.store(true, Ordering::Relaxed),
            heard => heard?,
        }
        Ok((listener, state))
    }
}

/// Passes on the messages of one connection, in the task that reads it.
struct PushReceiver {
    inbox: Inbox,
    state: Arc<ConnectionState>,
}

impl AsyncPushSender for PushReceiver {
    fn send(&self, PushInfo { kind, data }: PushInfo) -> std::result::Result<(), SendError> {
        let (mut data, Inbox { channel: own, hears, .. }) = (data.into_iter(), &self.inbox);
        if let (PushKind::Message, Some(Value::BulkString(channel)), Some(Value::BulkString(payload))) =
            (kind, data.next(), data.next())
        {
            if channel != own.as_bytes() {
                _ = String::from_utf8(channel).map(|channel| hears.hear(LinkEvent::Foreign(channel)));
            } else if payload.is_empty() {
                self.state.heard_itself.notify_one();
            } else if self.state.is_admitted.load(Ordering::Relaxed) {
                hears.hear(LinkEvent::Message(payload, Arc::clone(&self.state)));
            }
        }
        Ok(())
    }
}

impl Drop for PushReceiver {
    fn drop(&mut self) {
        self.state.end();
    }
}

fn lost() -> Error {
    Error::not_applied(ErrorKind::Unavailable, "the connection was lost, and there is no other yet")
}

/// How many connections this process has made.
static CONNECTIONS: AtomicU64 = AtomicU64::new(0);

/// The first pause between attempts to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The least pause after the server was a replica: a name or a proxy may lead there for a while yet.
const AT_REPLICA: Duration = Duration::from_millis(100);
