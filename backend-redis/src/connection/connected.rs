//! A connection that is up: requests go over its wire, subscriptions over its listener.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::{join_all, try_join};
use leasehold_core::backend::Credentials;
use leasehold_core::clock::Moment;
use leasehold_core::{Effect, Error, ErrorKind, Result};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};
use tokio::sync::OnceCell;

use super::client::Client;
use super::slot_pause::SlotTimes;
use super::state::ConnectionState;
use super::wire::{self, Refusals, Wire};
use super::{Asks, lost};
use crate::config::Address;
use crate::error;
use crate::scripts::{self, Call, ReignTimes};

/// A link while it is up; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Connected(pub(super) Arc<Connection>);

#[derive(Debug)]
pub(super) struct Connection {
    /// Unlike that of any other connection.
    pub(super) id: u64,
    /// Leads to its server.
    pub(super) client: Client,
    /// Its credentials were asked for later.
    pub(super) began_at: Moment,
    pub(super) up_at: Moment,
    /// The arguments of scripts, if the server may have forgotten holders.
    pub(super) times: Times,
    pub(super) wire: Arc<Wire>,
    /// Brings messages, to a link with an inbox.
    pub(super) listener: Option<MultiplexedConnection>,
    /// Brings messages of slots, once one is subscribed to.
    pub(super) slots: OnceCell<MultiplexedConnection>,
    pub(super) state: Arc<ConnectionState>,
}

/// The arguments for the scripts of a connection.
#[derive(Debug)]
pub(super) enum Times {
    /// Nothing pauses.
    Unasked,
    Server(ReignTimes),
    /// By slot.
    Slots(SlotTimes),
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.state.end();
    }
}

impl Connected {
    /// Which connection it is.
    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }

    pub(crate) fn up_at(&self) -> Moment {
        self.0.up_at
    }

    /// Where it leads to.
    pub(crate) fn address(&self) -> &Address {
        self.0.client.address()
    }

    pub(super) fn is_whole(&self) -> bool {
        !self.0.state.is_over()
    }

    /// Until when nothing is granted over it, if that was asked.
    pub(crate) fn paused_until(&self) -> Option<u64> {
        match &self.0.times {
            Times::Unasked => None,
            Times::Server(times) => Some(times.paused_until),
            Times::Slots(slots) => slots.paused_until(),
        }
    }

    /// Sends one command and waits for its answer until `give_up_at`.
    pub(crate) async fn ask(&self, command: &Cmd, give_up_at: Moment) -> Result<Value> {
        let answer = self.0.wire.ask(give_up_at, |out, _, _| command.write_packed_command(out));
        self.0.understood(answer.await?.extract_error()).map_err(error::of)
    }

    /// Runs a script, with the last argument of this connection.
    pub(crate) fn run(&self, call: &Call, give_up_at: Moment) -> impl Future<Output = Result<Value>> + Send {
        self.0.run(call, give_up_at, false)
    }

    /// As [`Connected::run`]; with `is_asking` on a slot that may be on its way to this server of a cluster.
    pub(crate) fn run_on_slot(
        &self,
        call: &Call,
        give_up_at: Moment,
        is_asking: bool,
    ) -> impl Future<Output = Result<Value>> + Send {
        self.0.run(call, give_up_at, is_asking)
    }

    /// As [`Connected::ask`], on a slot that may be on its way to this server of a cluster.
    pub(crate) async fn ask_asking(&self, command: &Cmd, give_up_at: Moment) -> Result<Value> {
        let mut answers = self.ask_all(&[redis::cmd("ASKING"), command.clone()], give_up_at).await?;
        let answer = answers.pop().ok_or_else(|| error::unexpected("to ASKING"))?;
        answer.extract_error().map_err(error::of)
    }

    /// Sends commands together; the answers in order, errors of the server among them.
    pub(crate) async fn ask_all(&self, commands: &[Cmd], give_up_at: Moment) -> Result<Vec<Value>> {
        let pack = |index: usize, out: &mut Vec<u8>, _: &mut _, _| commands[index].write_packed_command(out);
        let answers = self.0.wire.ask_all(give_up_at, commands.len(), pack).await?;
        self.0.all_understood(&answers);
        Ok(answers)
    }

    /// Runs scripts with a command behind them, in one piece, which is made when they are sent. The results of the scripts in
    /// order, errors of the server among the answers, and the answer to the command. A script fails alone that is not sent.
    pub(crate) async fn run_all<'c>(
        &self,
        calls: &mut [(&'c Call, &'c mut Refusals)],
        command: impl FnOnce(Moment) -> Cmd,
        give_up_at: Moment,
    ) -> Result<(Vec<Result<Value>>, Value)> {
        let told = join_all(calls.iter().map(|(call, _)| self.0.told(call, give_up_at, false))).await;
        let sent_at = self.0.wire.env.now();
        let command = command(sent_at);
        let mut sent: Vec<_> = calls
            .iter_mut()
            .zip(&told)
            .filter_map(|(call, told)| Some((call, told.as_ref().ok()?.as_ref().ok()?)))
            .collect();
        let count = sent.len();
        let pack = |index: usize, out: &mut Vec<u8>, texts: &mut _, number| match sent.get_mut(index) {
            Some(((call, refusals), last)) => refusals.pack((call, **last), out, (texts, number)),
            None => command.write_packed_command(out),
        };
        let answers = self.0.wire.ask_all(give_up_at, count + 1, pack).await?;
        self.0.all_understood(&answers);
        let mut answers = answers.into_iter();
        let mut next = || answers.next().ok_or_else(|| error::unexpected("to scripts"));
        let mut all = Vec::with_capacity(calls.len());
        for ((call, _), told) in calls.iter().zip(told) {
            let answer = match told {
                Ok(Ok(_)) => next()?,
                Ok(Err(refused)) => {
                    self.0.all_understood(std::slice::from_ref(&refused));
                    refused
                }
                Err(unsent) => {
                    all.push(Err(unsent));
                    continue;
                }
            };
            self.0.answered(call, sent_at, &answer);
            all.push(Ok(answer));
        }
        Ok((all, next()?))
    }

    /// Whether messages to `channel` come from the server that answers requests (redis.connection-2); `false` where the user
    /// has no right to find out.
    ///
    /// # Errors
    ///
    /// As of a request; `Unavailable` if the other socket leads to another server.
    pub(super) async fn hears_itself(&self, channel: &str, give_up_at: Moment) -> Result<bool> {
        let Connection { wire, state, .. } = &*self.0;
        if state.is_deaf() {
            return Ok(false);
        }
        let reached = match self.ask(redis::cmd("PUBLISH").arg(channel).arg(""), give_up_at).await {
            Err(error) if *error.kind() == ErrorKind::Denied => return Ok(false),
            // It has changed nothing.
            reached => reached.map_err(|error| error.with_effect(Effect::NotApplied))?,
        };
        // Messages also reach subscribers at replicas, and the subscriber here may be a connection that was lost before.
        let heard_by = give_up_at.min(wire.env.now() + wire.env.timing().op_timeout);
        let is_heard = matches!(reached, Value::Int(1..))
            && tokio::select! {
                biased;
                () = state.heard_itself.notified() => true,
                () = state.over() => return Err(lost()),
                () = wire.env.sleep_until(heard_by) => false,
            };
        if is_heard { Ok(true) } else { Err(apart()) }
    }

    /// Subscribes to a channel; returns whether that is allowed.
    pub(crate) async fn hear(&self, channel: &str, give_up_at: Moment) -> Result<bool> {
        let heard = self.listening(give_up_at, async |listener| listener.subscribe(channel).await);
        match heard.await? {
            Err(denied) if error::is_denied(&denied) => Ok(false),
            heard => heard.map(|()| true).map_err(error::of),
        }
    }

    /// Logs in again on both sockets, beside the requests in flight.
    ///
    /// # Errors
    ///
    /// `Denied` if the server refuses the credentials: it goes on with those before.
    pub(super) async fn log_in(&self, Credentials { user, password, .. }: &Credentials) -> Result<()> {
        let wire = &self.0.wire;
        let give_up_at = wire.env.now() + wire.env.timing().op_timeout;
        let mut login = redis::cmd("AUTH");
        login.arg(user).arg(password);
        let hearing = async {
            if self.0.listener.is_none() {
                return Ok(());
            }
            let ask = async |listener: &mut MultiplexedConnection| listener.send_packed_command(&login).await;
            let answer = self.listening(give_up_at, ask).await?;
            answer.and_then(Value::extract_error).map(drop).map_err(error::of)
        };
        try_join(self.ask(&login, give_up_at), hearing).await.map(drop)
    }

    /// Unsubscribes from a channel.
    pub(crate) async fn hear_no_more(&self, channel: &str, give_up_at: Moment) -> Result<()> {
        let left = self.listening(give_up_at, async |listener| listener.unsubscribe(channel).await);
        left.await?.map_err(error::of)
    }

    /// Asks the listener until `give_up_at`, when it is silent unless the request began late (redis.wire-7).
    async fn listening<T>(
        &self,
        give_up_at: Moment,
        ask: impl AsyncFnOnce(&mut MultiplexedConnection) -> RedisResult<T>,
    ) -> Result<RedisResult<T>> {
        let mut listener = self.0.listener.clone().ok_or_else(lost)?;
        self.0.bounded(give_up_at, ask(&mut listener)).await
    }
}

impl Connection {
    /// The answer of a listener until `give_up_at`, when it is silent unless the request began late.
    pub(super) async fn bounded<T>(&self, give_up_at: Moment, asking: impl Future<Output = T>) -> Result<T> {
        let Self { wire, state, .. } = self;
        let silent_from = wire.env.now() + wire.env.timing().op_timeout / 2;
        tokio::select! {
            biased;
            answer = asking => Ok(answer),
            () = state.over() => Err(wire::lost()),
            () = async { wire.env.sleep_until(give_up_at).await } => {
                if silent_from <= wire.env.now() {
                    state.end();
                }
                Err(wire::overdue())
            }
        }
    }

    /// With `is_asking` behind the word that the slot may be on its way here, which counts for one request.
    pub(super) async fn run(&self, call: &Call, give_up_at: Moment, is_asking: bool) -> Result<Value> {
        let told = match self.told(call, give_up_at, is_asking).await? {
            Ok(told) => told,
            Err(refused) => return self.understood(refused.extract_error()).map_err(error::of),
        };
        let sent_at = matches!(self.times, Times::Slots(_)).then(|| self.wire.env.now());
        let answer = self.run_with(call, told, give_up_at, is_asking).await?;
        if let Some(sent_at) = sent_at {
            self.answered(call, sent_at, &answer);
        }
        self.understood(answer.extract_error()).map_err(error::of)
    }

    /// The last argument of `call`; the server's error if it refuses to say that.
    async fn told(
        &self,
        call: &Call,
        give_up_at: Moment,
        is_asking: bool,
    ) -> Result<std::result::Result<Option<ReignTimes>, Value>> {
        match &self.times {
            Times::Unasked => Ok(Ok(None)),
            Times::Server(times) => Ok(Ok(Some(*times))),
            Times::Slots(slots) => slots.of(self, call, give_up_at, is_asking).await,
        }
    }

    fn answered(&self, call: &Call, sent_at: Moment, answer: &Value) {
        if let Times::Slots(slots) = &self.times {
            slots.answered(call, sent_at, !matches!(answer, Value::ServerError(_)));
        }
    }

    /// As [`Connection::run`], with that last argument; an error of the server as it is.
    pub(super) async fn run_with(
        &self,
        call: &Call,
        last: Option<ReignTimes>,
        give_up_at: Moment,
        is_asking: bool,
    ) -> Result<Value> {
        let mut refusals = Refusals::default();
        loop {
            let call = (call, last);
            let mut pack =
                |out: &mut Vec<u8>, texts: &mut _, number| refusals.pack(call, out, (texts, number));
            let answer = if is_asking {
                let asking = redis::cmd("ASKING");
                let both = |index, out: &mut Vec<u8>, texts: &mut _, number| match index {
                    0 => asking.write_packed_command(out),
                    _ => pack(out, texts, number),
                };
                self.wire.ask_all(give_up_at, 2, both).await?.pop().unwrap_or(Value::Nil)
            } else {
                self.wire.ask(give_up_at, pack).await?
            };
            let Value::ServerError(refused) = &answer else { return Ok(answer) };
            if !refusals.one_more(&Err(refused.clone().into())) {
                return Ok(answer);
            }
        }
    }

    /// Whether the server says that it is the primary; `true` where the user has no right to ask.
    ///
    /// # Errors
    ///
    /// Not applied.
    pub(super) async fn is_primary(&self, give_up_at: Moment) -> Result<bool> {
        let role = redis::cmd("ROLE");
        let answer = self.wire.ask(give_up_at, |out, _, _| role.write_packed_command(out)).await;
        match answer.map_err(|error| error.with_effect(Effect::NotApplied))?.extract_error() {
            Ok(role) => Ok(scripts::parts(&role).first().and_then(scripts::text) == Some("master")),
            Err(denied) if error::is_denied(&denied) => Ok(true),
            Err(refused) => Err(error::of_connecting(refused)),
        }
    }

    /// A server that is no primary any more is left.
    fn understood(&self, answer: RedisResult<Value>) -> RedisResult<Value> {
        if answer.as_ref().is_err_and(error::wants_another_server) {
            self.state.end_at_replica();
        }
        answer
    }

    fn all_understood(&self, answers: &[Value]) {
        let elsewhere = |answer: &Value| {
            let Value::ServerError(error) = answer else { return false };
            error::wants_another_server(&error.clone().into())
        };
        if answers.iter().any(elsewhere) {
            self.state.end_at_replica();
        }
    }
}

#[async_trait]
impl Asks for Connected {
    async fn ask_about(&self, _key: &str, command: &Cmd, give_up_at: Moment) -> Result<Value> {
        self.ask(command, give_up_at).await
    }
}

fn apart() -> Error {
    let message = "cannot use the connection: its requests and its messages reached different servers; let a proxy \
                   send all connections to the primary";
    Error::not_applied(ErrorKind::Unavailable, message)
}

/// A request that was not sent, as its connection had ended by then.
pub(super) fn ended() -> Error {
    lost().with_source(ENDED)
}

/// Why a request was not sent that the next connection can carry.
const ENDED: &str = "the connection ended before the request was sent";

pub(crate) fn had_ended(error: &Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.to_string() == ENDED)
}
