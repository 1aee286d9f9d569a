//! The primary that sentinels name, and how a manager notices that they name another one.
//!
//! Before each attempt to connect all sentinels are asked at once; [`survey`] says which answer is believed. In between, a task
//! has a connection to one sentinel, which announces a fail-over, and asks one in turn every five seconds: the first may be on
//! the wrong side of a cut. News only leads to another survey, so that no single sentinel ends a connection.

mod roster;
mod survey;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{BoxFuture, FusedFuture, join3};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use leasehold_core::backend::{Backoff, Finding, Login, Severity};
use leasehold_core::clock::Moment;
use leasehold_core::{Env, Error, ErrorKind, Result};
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, RedisError, Value};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use self::roster::{Acquaintance, Roster};
use self::survey::{Report, Survey};
use super::client::Client;
use super::whereabouts::{Whereabouts, logging_in};
use crate::config::{Address, MapAddress};
use crate::error;
use crate::scripts::{number, parts, text};

/// The state of a primary before a sentinel is asked.
#[derive(Debug)]
pub(crate) struct Watched {
    /// Of the primary, as the sentinels know it.
    pub(crate) name: String,
    /// The sentinels that were named.
    pub(crate) sentinels: Vec<Address>,
    /// How a sentinel is reached, at any of their addresses.
    pub(crate) sentinel: Client,
    /// How a server is reached, at whatever address they name.
    pub(crate) server: Client,
    pub(crate) login: Option<Login>,
    pub(crate) map: Option<MapAddress>,
}

/// The sentinels of one manager.
pub(crate) struct Sentinels {
    env: Env,
    watched: Watched,
    roster: Mutex<Roster<Address>>,
    /// The largest epoch of all answers. One survey at a time, so that none believes an earlier epoch than another.
    epoch: tokio::sync::Mutex<Option<u64>>,
    primary: watch::Sender<Option<Address>>,
    doubted: Arc<Notify>,
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sentinels").field("watched", &self.watched).finish_non_exhaustive()
    }
}

impl Sentinels {
    /// Watches the primary in a task until `closed`.
    pub(crate) fn start(env: Env, watched: Watched, closed: CancellationToken) -> Arc<Self> {
        let sentinels = Arc::new(Self {
            env: env.clone(),
            roster: Mutex::new(Roster::new(watched.sentinels.clone())),
            watched,
            epoch: tokio::sync::Mutex::default(),
            primary: watch::Sender::new(None),
            doubted: Arc::default(),
        });
        let watching = Arc::clone(&sentinels);
        env.spawn(async move {
            let watch = join3(watching.listen(), watching.ask_in_turn(), watching.look_again());
            closed.run_until_cancelled(watch).await;
        });
        sentinels
    }

    /// Asks all sentinels at once. A quarter of the bound of a request later, what has answered is enough; the first answer is
    /// waited for until `give_up_at`.
    ///
    /// # Errors
    ///
    /// As [`Survey::concluded`].
    async fn find(&self, give_up_at: Moment) -> Result<Address> {
        let mut epoch = self.epoch.lock().await;
        let sentinels = self.all();
        let mut survey = Survey::new(sentinels.len(), *epoch);
        let mut answers: FuturesUnordered<_> =
            sentinels.iter().map(|sentinel| self.ask(sentinel, give_up_at)).collect();
        let mut soon = self.env.sleep(self.env.timing().op_timeout / 4).fuse();
        while survey.settled().is_none() && !(soon.is_terminated() && survey.is_answered()) {
            tokio::select! {
                biased;
                report = answers.next() => match report {
                    Some(report) => survey.add(report),
                    None => break,
                },
                () = &mut soon => {}
            }
        }
        *epoch = survey.epoch;
        let primary = survey.concluded(&self.watched.name)?;
        self.primary.send_if_modified(|known| known.replace(primary.clone()).as_ref() != Some(&primary));
        Ok(primary)
    }

    fn all(&self) -> Vec<Address> {
        self.roster.lock().all()
    }

    /// The answer of one sentinel about the primary. The other sentinels that it knows are asked, too, from the next survey on.
    async fn ask(&self, sentinel: &Address, give_up_at: Moment) -> Report<Address> {
        let silent = || {
            Error::not_applied(ErrorKind::Unavailable, "cannot ask the sentinel")
                .with_source("no answer in time")
        };
        let answer = tokio::select! {
            biased;
            answer = self.ask_unbounded(sentinel) => answer,
            () = self.env.sleep_until(give_up_at) => Err(silent()),
        };
        answer.unwrap_or_else(|error| Report::Failed(error.with_context("server", sentinel)))
    }

    async fn ask_unbounded(&self, sentinel: &Address) -> Result<Report<Address>> {
        let (connection, driver) = self.connect(sentinel, AsyncConnectionConfig::new()).await?;
        let name = Some(&*self.watched.name);
        let question = |what: &str, name: Option<&str>| {
            let (mut connection, mut question) = (connection.clone(), redis::cmd("SENTINEL"));
            question.arg(what).arg(name);
            async move { connection.send_packed_command(&question).await.and_then(Value::extract_error) }
        };
        let (master, others, id) = tokio::select! {
            biased;
            answers = join3(question("MASTER", name), question("SENTINELS", name), question("MYID", None)) => answers,
            () = driver => return Err(refused(broken())),
        };
        match master {
            Err(error) if error.detail().is_some_and(|detail| detail.contains(NO_SUCH_NAME)) => {
                Ok(Report::NoSuchName)
            }
            Err(error) => Err(refused(error)),
            Ok(master) => {
                let (primary, epoch) = self
                    .address_of(&master)
                    .zip(field(&master, "config-epoch").and_then(number))
                    .ok_or_else(|| error::unexpected("of a sentinel"))?;
                // Both need rights, and are not needed to find the primary.
                let id = id.ok().as_ref().and_then(text).map(str::to_owned);
                if let Ok(others) = others {
                    let other =
                        |entry| Some((self.address_of(entry)?, text(field(entry, "runid")?)?.to_owned()));
                    let others = parts(&others).iter().filter_map(other).collect();
                    self.roster.lock().learn(sentinel, epoch, Acquaintance { id: id.clone(), others });
                }
                Ok(Report::Primary(primary, epoch, id))
            }
        }
    }

    /// The address in an entry of a sentinel, as this host reaches it.
    fn address_of(&self, entry: &Value) -> Option<Address> {
        let (host, port) = (text(field(entry, "ip")?)?, number(field(entry, "port")?)?);
        let (host, port) = (host.to_owned(), u16::try_from(port).ok()?);
        Some(match &self.watched.map {
            Some(map) => map.apply(&host, port),
            None => Address::Tcp { host, port },
        })
    }

    async fn connect(
        &self,
        sentinel: &Address,
        options: AsyncConnectionConfig,
    ) -> Result<(MultiplexedConnection, BoxFuture<'static, ()>)> {
        let client = self.watched.sentinel.at(sentinel.clone());
        let (stream, _) = client.dial(None).await.map_err(|error| refused(error.into()))?;
        let connected = client.connect(stream, options.set_response_timeout(None)).await;
        let (connection, driver) = connected.map_err(refused)?;
        Ok((connection, driver.boxed()))
    }

    /// Listens for fail-overs at one sentinel after the other, each until its connection ends.
    async fn listen(&self) {
        let mut pauses = Backoff::new(FIRST_PAUSE, EVERY);
        for turn in 0_usize.. {
            let sentinels = self.all();
            if let Err(error) = self.hear(&sentinels[turn % sentinels.len()], &mut pauses).await {
                tracing::debug!(error = ?format!("{error:#}"), "a sentinel is not listened to");
            }
            pauses.pause(&self.env).await;
        }
    }

    /// Ends with the connection.
    async fn hear(&self, sentinel: &Address, pauses: &mut Backoff) -> Result<()> {
        let doubted = Arc::clone(&self.doubted);
        let hears = move |push: PushInfo| {
            if push.kind == PushKind::Message {
                doubted.notify_one();
            }
            Ok::<_, std::convert::Infallible>(())
        };
        let options = AsyncConnectionConfig::new().set_push_sender(hears);
        let bound = self.env.timing().op_timeout;
        let (mut connection, driver) = tokio::select! {
            biased;
            connected = self.connect(sentinel, options) => connected?,
            () = self.env.sleep(bound) => return Err(refused(broken())),
        };
        let subscribed = async {
            connection.subscribe("+switch-master").await.map_err(refused)?;
            pauses.reset();
            // A fail-over before that was not announced here.
            self.doubt();
            std::future::pending().await
        };
        tokio::select! {
            biased;
            failed = subscribed => failed,
            () = driver => Ok(()),
        }
    }

    /// Asks one sentinel after the other.
    async fn ask_in_turn(&self) {
        for turn in 0_usize.. {
            self.env.sleep(EVERY / 4 + self.env.jittered(EVERY)).await;
            let sentinels = self.all();
            let give_up_at = self.env.now() + EVERY;
            let report = self.ask(&sentinels[turn % sentinels.len()], give_up_at).await;
            if let Report::Primary(primary, ..) = report
                && self.primary.borrow().as_ref() != Some(&primary)
            {
                self.doubt();
            }
        }
    }

    /// Makes a survey whenever there are news, until one finds a primary.
    async fn look_again(&self) {
        loop {
            self.doubted.notified().await;
            let mut pauses = Backoff::new(FIRST_PAUSE, EVERY);
            while let Err(error) = self.find(self.env.now() + EVERY).await {
                tracing::debug!(error = ?format!("{error:#}"), "the primary is not known");
                pauses.pause(&self.env).await;
            }
        }
    }
}

#[async_trait]
impl Whereabouts for Sentinels {
    async fn client(&self, give_up_at: Moment) -> Result<Client> {
        let primary = self.find(give_up_at).await?;
        logging_in(self.watched.server.at(primary), self.watched.login.as_ref()).await
    }

    async fn left(&self, client: &Client) {
        let mut primary = self.primary.subscribe();
        let elsewhere = |primary: &Option<Address>| primary.as_ref().is_some_and(|at| at != client.address());
        if primary.wait_for(elsewhere).await.is_err() {
            std::future::pending().await
        }
    }

    fn is_told(&self) -> bool {
        true
    }

    fn doubt(&self) {
        self.doubted.notify_one();
    }

    async fn diagnose(&self, give_up_at: Moment) -> Option<Finding> {
        let sentinels = self.all();
        let mut answers: FuturesUnordered<_> =
            sentinels.iter().map(|sentinel| self.ask(sentinel, give_up_at)).collect();
        let mut survey = Survey::new(sentinels.len(), None);
        while let Some(report) = answers.next().await {
            survey.add(report);
        }
        let agree = self.primary.borrow().as_ref().map_or(0, |primary| survey.voices_for(primary));
        let asked = survey.asked;
        let (severity, rule) = match asked {
            ..3 => (Severity::Warning, ": fewer than three cannot survive the loss of one"),
            _ if 2 * agree <= asked => (Severity::Warning, ": without a majority no replica is promoted"),
            _ => (Severity::Ok, ""),
        };
        Some(Finding::new(
            severity,
            "sentinels",
            format!("{agree} of {asked} sentinels name the primary{rule}"),
        ))
    }
}

/// The value of a field in an entry.
fn field<'v>(entry: &'v Value, name: &str) -> Option<&'v Value> {
    let Value::Map(fields) = entry else { return None };
    fields.iter().find(|(field, _)| text(field) == Some(name)).map(|(_, value)| value)
}

/// Why a sentinel cannot be asked.
fn refused(error: RedisError) -> Error {
    if error.detail().is_some_and(|detail| detail.contains("unknown command 'SENTINEL'")) {
        return Error::invalid_option("the server is no sentinel: expected the address of a Redis Sentinel");
    }
    let error = error::of_connecting(error);
    if *error.kind() == ErrorKind::Denied {
        let message =
            "the sentinel refused the user or the password: set `sentinel_user` and `sentinel_password`";
        return Error::not_applied(ErrorKind::Denied, message).with_source(format!("{error:#}"));
    }
    error
}

fn broken() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()
}

const NO_SUCH_NAME: &str = "No such master with that name";

/// How often a sentinel is asked, give or take a quarter.
const EVERY: Duration = Duration::from_secs(5);

/// The first pause after a sentinel that is not there.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
