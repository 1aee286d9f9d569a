//! A connection to the server that is made again whenever it breaks.
//!
//! One task per link connects, and connects again with growing pauses; what arrives unasked is told where it
//! arrives, by whoever reads.
//! Requests go through whatever connection is up; one that breaks, or that is silent for a whole
//! request, takes what was in flight with it, and nothing is repeated here. It is reset, not closed in
//! order: what it has not delivered by then, it never does, unless the network keeps it.
//!
//! The client crate's own reconnecting manager is not used: after it has subscribed again, answers
//! can belong to other requests. Its task that reads and writes is: callers who do that themselves spare a wake-up,
//! and pay as much for passing the duty on.

mod alarm;
mod client;
mod confirming;
mod flights;
mod meter;
mod namespace;
mod pause;

use std::borrow::Cow;
use std::fmt;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::TryFutureExt;
use leasehold_core::backend::Backoff;
use leasehold_core::clock::Moment;
use leasehold_core::{Env, Error, ErrorKind, Result};
use redis::aio::{AsyncPushSender, MultiplexedConnection, SendError};
use redis::{AsyncConnectionConfig, Cmd, Pipeline, PushInfo, PushKind, RedisError, Value};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::flights::Flights;
use crate::error;
use crate::scripts::Script;

pub(crate) use self::alarm::Alarm;
pub(crate) use self::client::Client;
pub(crate) use self::confirming::{Confirming, too_few_replicas};
pub(crate) use self::namespace::{Namespace, as_token_base, record, token_base};
pub(crate) use self::pause::Pause;

/// One link; it is up or down.
#[derive(Debug)]
pub(crate) struct Link {
    env: Env,
    client: Client,
    /// What is to be heard, if anything is.
    inbox: Option<Inbox>,
    /// What each connection is asked, if a server that has restarted grants nothing at first.
    pause: Option<Pause>,
    /// What is up, or why nothing is.
    up: watch::Sender<Result<Connected>>,
    connections: AtomicU64,
    /// What is added to counters, as of the latest connection.
    token_base: AtomicU64,
}

/// The channel of a link that hears, and who is told.
#[derive(Clone, Debug)]
pub(crate) struct Inbox {
    pub(crate) channel: String,
    pub(crate) hears: Arc<dyn Hears>,
    /// The namespace of whoever hears, if each connection must be admitted to it.
    pub(crate) keys: Option<Namespace>,
}

/// Who is told what a link hears, where it arrives.
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
    /// It may not hear its inbox.
    is_deaf: bool,
    /// Until when nothing is granted, by the server's clock, if it may have forgotten who holds.
    paused_until: Option<u64>,
    connection: MultiplexedConnection,
    flights: Arc<Flights>,
    /// Whether its messages are passed on: those that grant are counted with the base that was read over it.
    admitted: Arc<AtomicBool>,
    /// With it the task ends that reads and writes, as it does with the connection.
    closed: CancellationToken,
    _whole: DropGuard,
}

/// What a link tells the session.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// It is up again: what was said meanwhile went unheard.
    UpAgain,
    /// It is up, for the first time or again, and may not hear its inbox.
    Deaf,
    /// It is up again, and others sign their messages with another key, or the session's own are not signed as theirs.
    OtherKey(String),
    /// A message in the inbox.
    Message(Vec<u8>),
    /// A message in that channel, which is strangers'.
    Stranger(String),
}

impl LinkEvent {
    /// What administrators are told of [`LinkEvent::Deaf`].
    pub(crate) const UNHEARD: &str =
        "the user may not hear its channel: contenders learn of their turn within a third of the ttl";
}

impl Link {
    /// A link that is down.
    pub(crate) fn new(env: Env, client: Client, inbox: Option<Inbox>, pause: Option<Pause>) -> Self {
        let up = watch::Sender::new(Err(lost()));
        Self { env, client, inbox, pause, up, connections: AtomicU64::new(0), token_base: AtomicU64::new(0) }
    }

    /// Connects, and stays connected in a task until `closed`. Whether it may not hear its inbox is told of later
    /// connections.
    ///
    /// # Errors
    ///
    /// When the first attempt fails.
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

    /// Whether the connection that is up may not hear its inbox.
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

    /// Whoever was away was not counted, and the namespace may have been barred since.
    async fn connect_again(&self) -> Result<Connected> {
        let bound = self.env.timing().op_timeout;
        let connected = self.connect(bound, error::of_connecting).await?;
        let watched = async {
            connected.0.flights.watch().await;
            // Whoever asks hears of it.
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
    ///
    /// # Errors
    ///
    /// As [`Namespace::admit`].
    pub(crate) async fn admit(&self, connected: &Connected, give_up_at: Moment) -> Result<Option<String>> {
        let mut other_key = None;
        if let Some(namespace) = self.inbox.as_ref().and_then(|inbox| inbox.keys.as_ref()) {
            let (base, other) = namespace.admit(&self.env, connected, give_up_at).await?;
            // It is never lowered.
            self.token_base.fetch_max(base, Ordering::Relaxed);
            other_key = other;
        }
        connected.0.admitted.store(true, Ordering::Relaxed);
        Ok(other_key)
    }

    /// What is wrong with the message key of the session, if something is. It only reads.
    ///
    /// # Errors
    ///
    /// As [`Namespace::read_other_key`].
    pub(crate) async fn other_key(
        &self,
        connected: &Connected,
        give_up_at: Moment,
    ) -> Result<Option<String>> {
        match self.inbox.as_ref().and_then(|inbox| inbox.keys.as_ref()) {
            Some(namespace) => namespace.read_other_key(connected, give_up_at).await,
            None => Ok(None),
        }
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
        let flights = Arc::new(Flights::new(self.env.clone()));
        let must_be_admitted = self.inbox.as_ref().is_some_and(|inbox| inbox.keys.is_some());
        let admitted = Arc::new(AtomicBool::new(!must_be_admitted));
        let options = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(BUFFERED)
            .set_push_sender(Ear {
                inbox: self.inbox.clone(),
                flights: Arc::clone(&flights),
                admitted: Arc::clone(&admitted),
            });
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
            admitted,
            closed,
            _whole: whole,
        })))
    }
}

/// What arrives unasked on one connection is told where it arrives; it goes with the connection.
struct Ear {
    inbox: Option<Inbox>,
    flights: Arc<Flights>,
    /// What is dropped before, [`LinkEvent::UpAgain`] makes up for.
    admitted: Arc<AtomicBool>,
}

impl AsyncPushSender for Ear {
    fn send(&self, PushInfo { kind, data }: PushInfo) -> std::result::Result<(), SendError> {
        let mut data = data.into_iter();
        if !self.admitted.load(Ordering::Relaxed) {
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
                hears.hear(LinkEvent::Message(payload));
            } else if let Ok(channel) = String::from_utf8(channel) {
                hears.hear(LinkEvent::Stranger(channel));
            }
        }
        Ok(())
    }
}

impl Drop for Ear {
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
    ///
    /// # Errors
    ///
    /// As the server's table, or unknown when it did not answer.
    pub(crate) async fn ask(&self, command: &Cmd, give_up_at: Moment) -> Result<Value> {
        self.ask_raw(command, give_up_at).await?.map_err(error::of)
    }

    /// Runs a script by its hash, or by its text if the server has not got it.
    ///
    /// # Errors
    ///
    /// As [`Connected::ask`].
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

    /// The call of a script, with what all are told that go over this connection.
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
        let Connection { connection, flights, .. } = &*self.0;
        let mut connection = connection.clone();
        let answer =
            pin!(async { Ok(connection.send_packed_command(command).await.and_then(Value::extract_error)) });
        let answer = flights.bounded(give_up_at, answer).await?;
        if let Err(error) = &answer
            && error::wants_another_server(error)
        {
            flights.give_up();
        }
        Ok(answer)
    }

    /// Hears a channel from now on; whether that is allowed.
    ///
    /// # Errors
    ///
    /// As [`Connected::ask`].
    pub(crate) async fn hear(&self, channel: &str, give_up_at: Moment) -> Result<bool> {
        let Connection { connection, flights, .. } = &*self.0;
        let mut connection = connection.clone();
        let heard = pin!(async {
            match connection.subscribe(channel).await {
                Err(denied) if error::is_denied(&denied) => Ok(false),
                heard => heard.map(|()| true).map_err(error::of),
            }
        });
        flights.bounded(give_up_at, heard).await
    }

    /// Hears a channel no more.
    ///
    /// # Errors
    ///
    /// As [`Connected::ask`].
    pub(crate) async fn hear_no_more(&self, channel: &str, give_up_at: Moment) -> Result<()> {
        let Connection { connection, flights, .. } = &*self.0;
        let mut connection = connection.clone();
        let left = pin!(async { connection.unsubscribe(channel).await.map_err(error::of) });
        flights.bounded(give_up_at, left).await
    }

    /// Sends commands together; the answers in order, errors of the server among them.
    ///
    /// # Errors
    ///
    /// Unknown when the server did not answer.
    pub(crate) async fn ask_all(&self, commands: &Pipeline, give_up_at: Moment) -> Result<Vec<Value>> {
        let Connection { connection, flights, .. } = &*self.0;
        let mut connection = connection.clone();
        let answers = async { connection.send_packed_commands(commands, 0, commands.len()).await };
        let answers = pin!(answers.map_err(error::of));
        let answers = flights.bounded(give_up_at, answers).await?;
        let elsewhere = |answer: &Value| {
            let Value::ServerError(error) = answer else { return false };
            error::wants_another_server(&error.clone().into())
        };
        if answers.iter().any(elsewhere) {
            flights.give_up();
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
