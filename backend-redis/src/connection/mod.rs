//! A connection to the server that is made again whenever it breaks.
//!
//! One task per link connects, and connects again with growing pauses. Pushed messages are handled in the task that reads
//! the connection.
//! Requests go through whatever connection is up; one that breaks, or that is silent for a whole
//! request, takes what was in flight with it, and nothing is repeated here. It is reset, not closed in
//! order: what it has not delivered by then, it never does, unless the network keeps it.
//!
//! The client crate's own reconnecting manager is not used: after it has subscribed again, answers
//! can belong to other requests. Its task that reads and writes is: callers who do that themselves spare a wake-up,
//! and pay as much for passing the duty on.

mod client;
mod confirming;
mod flights;
mod meter;
mod namespace;
mod pause;
mod timer;

use std::borrow::Cow;
use std::fmt;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::backend::Backoff;
use leasehold_core::clock::Moment;
use leasehold_core::{Env, Error, ErrorKind, Result};
use redis::aio::{AsyncPushSender, MultiplexedConnection, SendError};
use redis::{AsyncConnectionConfig, Cmd, Pipeline, PushInfo, PushKind, RedisError, Value};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::error;
use crate::scripts::Script;

pub(crate) use self::client::Client;
pub(crate) use self::confirming::{Confirming, too_few_replicas};
pub(crate) use self::flights::Flights;
pub(crate) use self::namespace::{Namespace, as_token_base, record, token_base};
pub(crate) use self::pause::Pause;
pub(crate) use self::timer::Timer;

/// One link; it is up or down.
#[derive(Debug)]
pub(crate) struct Link {
    env: Env,
    client: Client,
    /// The channel to subscribe to, if there is one.
    inbox: Option<Inbox>,
    /// What each connection is asked, if a server that has restarted grants nothing at first.
    pause: Option<Pause>,
    /// What is up, or why nothing is.
    up: watch::Sender<Result<Connected>>,
    connections: AtomicU64,
    /// What is added to counters, as of the latest connection.
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

/// A link while it is up; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Connected(Arc<Connection>);

#[derive(Debug)]
struct Connection {
    /// Unlike that of any other connection of the link.
    id: u64,
    up_at: Moment,
    /// The user may not subscribe to the inbox.
    is_deaf: bool,
    /// Until when nothing is granted, by the server's clock, if the server may have forgotten holders.
    paused_until: Option<u64>,
    connection: MultiplexedConnection,
    flights: Arc<Flights>,
    /// With it the task ends that reads and writes, as it does with the connection.
    closed: CancellationToken,
    _whole: DropGuard,
}

/// What a link tells the session.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// It is up again: messages were missed meanwhile.
    UpAgain,
    /// It is up, for the first time or again, and the user may not subscribe to the inbox.
    Deaf,
    /// It is up again, and others sign their messages with another key, or the session's own are not signed as theirs.
    OtherKey(String),
    /// A message in the inbox.
    Message(Vec<u8>, Arc<Flights>),
    /// A message in a channel of foreign clients.
    Foreign(String),
}

impl LinkEvent {
    /// The warning about [`LinkEvent::Deaf`].
    pub(crate) const UNHEARD: &str =
        "the user may not hear its channel: contenders learn of their turn within a third of the ttl";
}

impl Link {
    /// A link that is down.
    pub(crate) fn new(env: Env, client: Client, inbox: Option<Inbox>, pause: Option<Pause>) -> Self {
        let up = watch::Sender::new(Err(lost()));
        Self { env, client, inbox, pause, up, connections: AtomicU64::new(0), token_base: AtomicU64::new(0) }
    }

    /// Connects, and stays connected in a task until `closed`. [`LinkEvent::Deaf`] comes for later connections only.
    pub(crate) async fn start(self: &Arc<Self>, closed: CancellationToken) -> Result<()> {
        let first = self.connect(self.env.timing().connect_timeout, error::of_opening).await?;
        _ = self.up.send_replace(Ok(first.clone()));
        let link = Arc::clone(self);
        self.env.spawn(async move {
            closed.run_until_cancelled(link.keep_up(first)).await;
            let last = link.up.borrow().clone();
            // Why there was none stays what it is.
            if let Ok(connected) = last {
                _ = link.up.send_replace(Err(lost()));
                connected.0.flights.give_up();
                // A session may still have it at hand.
                connected.0.closed.cancel();
            }
        });
        Ok(())
    }

    /// Whether the connection that is up may not subscribe to its inbox.
    pub(crate) fn is_deaf(&self) -> bool {
        self.up().is_some_and(|up| up.0.is_deaf)
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

    async fn keep_up(&self, first: Connected) {
        let mut next = Some(first);
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
                    let Connection { up_at, is_deaf, flights, .. } = &*connected.0;
                    if let Some(inbox) = self.inbox.as_ref().filter(|_| !is_first) {
                        inbox.hears.hear(if *is_deaf { LinkEvent::Deaf } else { LinkEvent::UpAgain });
                    }
                    flights.watch().await;
                    _ = self.up.send_replace(Err(lost()));
                    // A server that accepts and refuses is not asked more often than one that does not.
                    if self.env.now().since(*up_at) > longest {
                        pauses.reset();
                    }
                    tracing::debug!("the connection to the server is lost");
                }
                Err(error) => {
                    tracing::debug!(error = ?format!("{error:#}"), "the server cannot be reached");
                    _ = self.up.send_replace(Err(error));
                }
            }
            pauses.pause(&self.env).await;
        }
    }

    /// A move did not count a session that was disconnected, and may have barred the namespace since.
    async fn connect_again(&self) -> Result<Connected> {
        let bound = self.env.timing().op_timeout;
        let connected = self.connect(bound, error::of_connecting).await?;
        let watched = async {
            connected.0.flights.watch().await;
            // The requests of `admit` fail with it.
            pending().await
        };
        tokio::select! {
            biased;
            admitted = self.admit(&connected, self.env.now() + bound) => {
                if let (Some(said), Some(inbox)) = (admitted?, &self.inbox) {
                    inbox.hears.hear(LinkEvent::OtherKey(said));
                }
            }
            () = watched => {}
        }
        Ok(connected)
    }

    /// Whether the namespace admits the session over `connected`, if it must; and the base, which may have been raised while
    /// the session was away. What is wrong with its message key, if something is.
    pub(crate) async fn admit(&self, connected: &Connected, give_up_at: Moment) -> Result<Option<String>> {
        let mut other_key = None;
        if let Some(namespace) = self.inbox.as_ref().and_then(|inbox| inbox.keys.as_ref()) {
            let (base, other) = namespace.admit(&self.env, connected, give_up_at).await?;
            // It is never lowered.
            self.token_base.fetch_max(base, Ordering::Relaxed);
            other_key = other;
        }
        connected.0.flights.admitted.store(true, Ordering::Relaxed);
        Ok(other_key)
    }

    /// What is added to counters.
    pub(crate) fn token_base(&self) -> u64 {
        self.token_base.load(Ordering::Relaxed)
    }

    async fn connect(&self, bound: Duration, failed: fn(RedisError) -> Error) -> Result<Connected> {
        tokio::select! {
            biased;
            connected = self.connect_unbounded(failed) => connected,
            () = self.env.sleep(bound) => {
                let silent = Error::not_applied(ErrorKind::Unavailable, "cannot connect");
                Err(silent.with_source(format!("no answer within {bound:?}")))
            }
        }
    }

    async fn connect_unbounded(&self, failed: fn(RedisError) -> Error) -> Result<Connected> {
        let must_be_admitted = self.inbox.as_ref().is_some_and(|inbox| inbox.keys.is_some());
        let flights = Arc::new(Flights::new(self.env.clone(), !must_be_admitted));
        let options = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(BUFFERED)
            .set_push_sender(PushReceiver { inbox: self.inbox.clone(), flights: Arc::clone(&flights) });
        let (mut connection, driver) = self.client.connect(options).await.map_err(failed)?;
        let (up_at, closed) = (self.env.now(), CancellationToken::new());
        let whole = closed.clone().drop_guard();
        let driving = closed.clone();
        self.env.spawn(async move { _ = driving.run_until_cancelled(driver).await });
        let is_deaf = match &self.inbox {
            None => false,
            Some(inbox) => match connection.subscribe(&inbox.channel).await {
                Ok(()) => false,
                Err(denied) if error::is_denied(&denied) => true,
                Err(other) => return Err(failed(other)),
            },
        };
        let paused_until = match &self.pause {
            None => None,
            Some(pause) => Some(pause.ask(&mut connection, failed).await?),
        };
        let id = self.connections.fetch_add(1, Ordering::Relaxed);
        Ok(Connected(Arc::new(Connection {
            id,
            up_at,
            is_deaf,
            paused_until,
            connection,
            flights,
            closed,
            _whole: whole,
        })))
    }
}

/// Passes on the messages of one connection, in the task that reads it.
struct PushReceiver {
    inbox: Option<Inbox>,
    flights: Arc<Flights>,
}

impl AsyncPushSender for PushReceiver {
    fn send(&self, PushInfo { kind, data }: PushInfo) -> std::result::Result<(), SendError> {
        let mut data = data.into_iter();
        if !self.flights.admitted.load(Ordering::Relaxed) {
            return Ok(());
        }
        if let (
            PushKind::Message,
            Some(Value::BulkString(channel)),
            Some(Value::BulkString(payload)),
            Some(Inbox { channel: own, hears, .. }),
        ) = (kind, data.next(), data.next(), &self.inbox)
        {
            if channel == own.as_bytes() {
                hears.hear(LinkEvent::Message(payload, Arc::clone(&self.flights)));
            } else if let Ok(channel) = String::from_utf8(channel) {
                hears.hear(LinkEvent::Foreign(channel));
            }
        }
        Ok(())
    }
}

impl Drop for PushReceiver {
    fn drop(&mut self) {
        self.flights.give_up();
    }
}

impl Connected {
    /// Which connection of its link it is.
    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }

    pub(crate) fn up_at(&self) -> Moment {
        self.0.up_at
    }

    fn is_whole(&self) -> bool {
        !self.0.flights.is_given_up()
    }

    /// Sends one command and waits for its answer until `give_up_at`.
    pub(crate) async fn ask(&self, command: &Cmd, give_up_at: Moment) -> Result<Value> {
        self.ask_raw(command, give_up_at).await?.map_err(error::of)
    }

    /// Runs a script by its hash, or by its text if the server has not got it.
    pub(crate) async fn run(&self, script: &Script, call: &Cmd, give_up_at: Moment) -> Result<Value> {
        let call = self.told(call);
        match self.ask_raw(&call, give_up_at).await? {
            Err(error) if error::wants_the_text(&error) => {
                // Rare, and large.
                Box::pin(async { self.ask(&script.with_text(&call), give_up_at).await }).await
            }
            answer => answer.map_err(error::of),
        }
    }

    /// The call of a script, with the last argument of this connection.
    fn told<'c>(&self, call: &'c Cmd) -> Cow<'c, Cmd> {
        match self.0.paused_until {
            None => Cow::Borrowed(call),
            Some(until) => {
                let mut told = call.clone();
                told.arg(until);
                Cow::Owned(told)
            }
        }
    }

    /// Until when nothing is granted over it, if that was asked.
    pub(crate) fn paused_until(&self) -> Option<u64> {
        self.0.paused_until
    }

    async fn ask_raw(&self, command: &Cmd, give_up_at: Moment) -> Result<Result<Value, RedisError>> {
        let answer = self.bounded(give_up_at, |mut connection| async move {
            Ok(connection.send_packed_command(command).await.and_then(Value::extract_error))
        });
        let answer = answer.await?;
        if answer.as_ref().is_err_and(error::wants_another_server) {
            self.0.flights.give_up();
        }
        Ok(answer)
    }

    /// As [`Flights::bounded`].
    async fn bounded<T, F: Future<Output = Result<T>>>(
        &self,
        give_up_at: Moment,
        request: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<T> {
        let Connection { connection, flights, .. } = &*self.0;
        flights.bounded(give_up_at, pin!(request(connection.clone()))).await
    }

    /// Subscribes to a channel; returns whether that is allowed.
    pub(crate) async fn hear(&self, channel: &str, give_up_at: Moment) -> Result<bool> {
        let heard = self.bounded(give_up_at, |mut connection| async move {
            match connection.subscribe(channel).await {
                Err(denied) if error::is_denied(&denied) => Ok(false),
                heard => heard.map(|()| true).map_err(error::of),
            }
        });
        heard.await
    }

    /// Unsubscribes from a channel.
    pub(crate) async fn hear_no_more(&self, channel: &str, give_up_at: Moment) -> Result<()> {
        let left = self.bounded(give_up_at, |mut connection| async move {
            connection.unsubscribe(channel).await.map_err(error::of)
        });
        left.await
    }

    /// Sends commands together; the answers in order, errors of the server among them.
    pub(crate) async fn ask_all(&self, commands: &Pipeline, give_up_at: Moment) -> Result<Vec<Value>> {
        let answers = self.bounded(give_up_at, |mut connection| async move {
            connection.send_packed_commands(commands, 0, commands.len()).await.map_err(error::of)
        });
        let answers = answers.await?;
        let elsewhere = |answer: &Value| {
            let Value::ServerError(error) = answer else { return false };
            error::wants_another_server(&error.clone().into())
        };
        if answers.iter().any(elsewhere) {
            self.0.flights.give_up();
        }
        Ok(answers)
    }
}

fn lost() -> Error {
    Error::not_applied(ErrorKind::Unavailable, "the connection was lost, and there is no other yet")
}

/// The first pause between attempts to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// How many requests may wait to be written.
const BUFFERED: usize = 1024;
