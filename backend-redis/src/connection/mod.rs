//! A connection to the server that is made again whenever it breaks.
//!
//! One task per link connects, hears what arrives unasked, and connects again with growing pauses.
//! Requests go through whatever connection is up; one that breaks, or that is silent for a whole
//! request, takes what was in flight with it, and nothing is repeated here. It is reset, not closed in
//! order: what it has not delivered by then, it never does, unless the network keeps it.
//!
//! The client crate's own reconnecting manager is not used: after it has subscribed again, answers
//! can belong to other requests.

mod confirming;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::backend::Backoff;
use leasehold_core::clock::Moment;
use leasehold_core::{Effect, Env, Error, ErrorKind, Result};
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, PushInfo, PushKind, RedisError, Value};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::error;
use crate::keys::Keys;
use crate::scripts::{self, Script};

pub(crate) use self::confirming::{Confirming, too_few_replicas};

/// One link; it is up or down.
#[derive(Debug)]
pub(crate) struct Link {
    env: Env,
    client: Client,
    /// The channel to hear, if this link is to hear.
    inbox: Option<String>,
    up: watch::Sender<Option<Connected>>,
    connections: AtomicU64,
    /// Why it is down.
    failure: Mutex<Option<Error>>,
}

/// A link while it is up; cheap to clone.
#[derive(Clone)]
pub(crate) struct Connected {
    env: Env,
    /// Unlike that of any other connection of the link.
    id: u64,
    up_at: Moment,
    connection: MultiplexedConnection,
    broken: CancellationToken,
    /// When an answer was last read, on `Env`'s clock.
    heard_at: Arc<AtomicU64>,
}

/// What a link tells the session.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// It is up again: what was said meanwhile went unheard.
    UpAgain,
    /// It is up, for the first time or again, and may not hear its inbox.
    Deaf,
    /// A message in the inbox.
    Message(Vec<u8>),
}

impl Link {
    /// A link that is down.
    pub(crate) fn new(env: Env, client: Client, inbox: Option<String>) -> Self {
        let (up, connections) = (watch::Sender::new(None), AtomicU64::new(0));
        Self { env, client, inbox, up, connections, failure: Mutex::new(None) }
    }

    /// Connects, and stays connected in a task until `closed`; `tell` hears what there is to hear.
    ///
    /// # Errors
    ///
    /// When the first attempt fails.
    pub(crate) async fn start(
        self: &Arc<Self>,
        closed: CancellationToken,
        tell: impl Fn(LinkEvent) + Send + Sync + 'static,
    ) -> Result<()> {
        let first = self.connect(self.env.timing().connect_timeout, error::of_opening).await?;
        self.up.send_replace(Some(first.0.clone()));
        let link = Arc::clone(self);
        self.env.spawn(async move {
            closed.run_until_cancelled(link.keep_up(first, tell)).await;
            if let Some(connected) = link.up.send_replace(None) {
                connected.broken.cancel();
            }
        });
        Ok(())
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
            up = up.wait_for(|up| up.as_ref().is_some_and(Connected::is_whole)) => up.ok().and_then(|up| up.clone()),
            () = self.env.sleep_until(give_up_at) => None,
        };
        connected.ok_or_else(|| {
            let failure = self.failure.lock().clone();
            failure.unwrap_or_else(|| {
                Error::not_applied(
                    ErrorKind::Unavailable,
                    "the connection was lost, and there is no other yet",
                )
            })
        })
    }

    /// The connection, if there is one.
    pub(crate) fn up(&self) -> Option<Connected> {
        self.up.borrow().as_ref().filter(|up| up.is_whole()).cloned()
    }

    async fn keep_up(&self, first: (Connected, Pushes), tell: impl Fn(LinkEvent) + Send + Sync) {
        let mut next = Some(first);
        // A request waits for longer than this, so it meets an attempt.
        let longest = self.env.timing().op_timeout * 3 / 4;
        let mut pauses = Backoff::new(FIRST_PAUSE, longest);
        loop {
            let is_first = next.is_some();
            let attempt = match next.take() {
                Some(first) => Ok(first),
                // Short: an attempt that hangs keeps the next one waiting.
                None => self.connect(self.env.timing().op_timeout, error::of_connecting).await,
            };
            match attempt {
                Ok((connected, mut pushes)) => {
                    let up_at = connected.up_at;
                    *self.failure.lock() = None;
                    let broken = connected.broken.clone();
                    self.up.send_replace(Some(connected));
                    if pushes.deaf {
                        tell(LinkEvent::Deaf);
                    } else if !is_first {
                        tell(LinkEvent::UpAgain);
                    }
                    tokio::select! {
                        () = broken.cancelled() => {}
                        () = pushes.hear(&tell) => {}
                    }
                    broken.cancel();
                    self.up.send_replace(None);
                    // A server that accepts and refuses is not asked more often than one that does not.
                    if self.env.now().since(up_at) > longest {
                        pauses.reset();
                    }
                    tracing::debug!("the connection to the server is lost");
                }
                Err(error) => {
                    tracing::debug!(error = %format_args!("{error:#}"), "the server cannot be reached");
                    *self.failure.lock() = Some(error);
                }
            }
            pauses.pause(&self.env).await;
        }
    }

    async fn connect(&self, bound: Duration, failed: fn(RedisError) -> Error) -> Result<(Connected, Pushes)> {
        let give_up_at = self.env.now() + bound;
        let (push, pushed) = mpsc::unbounded_channel();
        let options = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(BUFFERED)
            .set_push_sender(push);
        let connection = tokio::select! {
            biased;
            connection = self.client.get_multiplexed_async_connection_with_config(&options) => {
                connection.map_err(failed)?
            }
            () = self.env.sleep_until(give_up_at) => {
                let silent = Error::not_applied(ErrorKind::Unavailable, "cannot connect");
                return Err(silent.with_source(format!("no answer within {bound:?}")));
            }
        };
        let (broken, heard_at) = (CancellationToken::new(), Arc::new(AtomicU64::new(0)));
        let id = self.connections.fetch_add(1, Ordering::Relaxed);
        let up_at = self.env.now();
        let connected = Connected { env: self.env.clone(), id, up_at, connection, broken, heard_at };
        let deaf = match &self.inbox {
            None => false,
            Some(inbox) => {
                let subscribed = connected.subscribe(inbox, give_up_at).await;
                match subscribed.map_err(|error| error.with_effect(Effect::NotApplied))? {
                    Ok(()) => false,
                    Err(denied) if error::is_denied(&denied) => true,
                    Err(other) => return Err(failed(other)),
                }
            }
        };
        Ok((connected, Pushes { pushed, deaf }))
    }
}

impl Connected {
    /// Which connection of its link it is.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn up_at(&self) -> Moment {
        self.up_at
    }

    fn is_whole(&self) -> bool {
        !self.broken.is_cancelled()
    }

    async fn subscribe(&self, inbox: &str, give_up_at: Moment) -> Result<Result<(), RedisError>> {
        let mut connection = self.connection.clone();
        self.bounded(give_up_at, async { Ok(connection.subscribe(inbox).await) }).await
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
        match self.ask_raw(call, give_up_at).await? {
            Err(error) if error::wants_the_text(&error) => {
                self.ask(&script.with_text(call), give_up_at).await
            }
            answer => answer.map_err(error::of),
        }
    }

    async fn ask_raw(&self, command: &Cmd, give_up_at: Moment) -> Result<Result<Value, RedisError>> {
        let mut connection = self.connection.clone();
        let answer =
            self.bounded(give_up_at, async { Ok(command.query_async(&mut connection).await) }).await?;
        if let Err(error) = &answer
            && error::wants_another_server(error)
        {
            self.broken.cancel();
        }
        Ok(answer)
    }

    /// Sends commands together; the answers in order, errors of the server among them.
    ///
    /// # Errors
    ///
    /// Unknown when the server did not answer.
    pub(crate) async fn ask_all(&self, commands: &Pipeline, give_up_at: Moment) -> Result<Vec<Value>> {
        let mut connection = self.connection.clone();
        let answers =
            async { connection.send_packed_commands(commands, 0, commands.len()).await.map_err(error::of) };
        let answers = self.bounded(give_up_at, answers).await?;
        let elsewhere = |answer: &Value| {
            let Value::ServerError(error) = answer else { return false };
            error::wants_another_server(&error.clone().into())
        };
        if answers.iter().any(elsewhere) {
            self.broken.cancel();
        }
        Ok(answers)
    }

    /// Until the answer, the end of the connection, or `give_up_at`; then the connection is given up
    /// too, if it was silent since the request was sent: a peer that vanished sends no word of it.
    async fn bounded<T>(&self, give_up_at: Moment, answer: impl Future<Output = Result<T>>) -> Result<T> {
        let sent_at = self.env.now();
        tokio::select! {
            biased;
            answer = answer => {
                self.heard_at.fetch_max(self.env.now().as_nanos(), Ordering::Relaxed);
                answer
            }
            () = self.broken.cancelled() => Err(unanswered("the connection was lost before the answer")),
            () = async { self.env.sleep_until(give_up_at).await } => {
                if self.heard_at.load(Ordering::Relaxed) < sent_at.as_nanos() {
                    self.broken.cancel();
                }
                Err(unanswered("the server did not answer in time"))
            }
        }
    }
}

impl fmt::Debug for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connected").field("broken", &self.broken.is_cancelled()).finish_non_exhaustive()
    }
}

/// What arrives unasked on one connection.
#[derive(Debug)]
struct Pushes {
    pushed: mpsc::UnboundedReceiver<PushInfo>,
    deaf: bool,
}

impl Pushes {
    /// Hears until the connection ends.
    async fn hear(&mut self, tell: &(impl Fn(LinkEvent) + Send + Sync)) {
        while let Some(PushInfo { kind, data }) = self.pushed.recv().await {
            match (kind, data.into_iter().nth(1)) {
                (PushKind::Disconnection, _) => return,
                (PushKind::Message, Some(Value::BulkString(payload))) => tell(LinkEvent::Message(payload)),
                _ => {}
            }
        }
    }
}

/// The base as the server has it: a key that an administrator sets, or nobody.
pub(crate) async fn token_base(connected: &Connected, keys: &Keys, give_up_at: Moment) -> Result<u64> {
    let key = keys.token_base();
    match connected.ask(redis::cmd("GET").arg(&key), give_up_at).await? {
        Value::Nil => Ok(0),
        value => as_token_base(&value, &key),
    }
}

/// What stands in `key`.
pub(crate) fn as_token_base(value: &Value, key: &str) -> Result<u64> {
    scripts::number(value)
        .ok_or_else(|| Error::invalid_option(format!("the key {key:?} is not a whole number")))
}

fn unanswered(message: &str) -> Error {
    Error::new(ErrorKind::Unavailable, Effect::Unknown, message)
}

/// The first pause between attempts to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// How many requests may wait to be written.
const BUFFERED: usize = 1024;
