//! The way to the server: two connections at a time, one for requests and one for renewals and messages.
//!
//! A request that waits for a name never delays a renewal. Both connections are made and replaced together: what one has missed
//! is unknown to both.
//!
//! # Invariants
//! - **postgres.connection-1** Every request has a bound. A request without an answer ends its connections, and is never
//!   cancelled at the server: with synchronous standbys the server would then answer success for what no standby has.
//! - **postgres.connection-2** A failure ends the connections that it was seen on, and no later ones.
//! - **postgres.connection-3** With `replicas=sync` no answer counts after an administrator has cancelled a wait for the standby:
//!   the server warns of it before it answers success. Held by `synchronous_standby_has_every_grant`.

mod hosts;
mod reply;
mod wire;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use leasehold_core::backend::{Credentials, Reopen};
use leasehold_core::{Effect, Env, Error, Result};
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Config};
use tokio_util::sync::CancellationToken;

use crate::certificates::Encryption;
use crate::config::PostgresConfig;
use crate::error;
use crate::schema;

pub(crate) use reply::{Columns, Rows, Values};
pub(crate) use wire::Wire;

/// The receiver of notifications to the channel of this manager.
pub(crate) type OnNotification = Box<dyn Fn(&str) + Send + Sync>;

/// The receiver of what a server sends besides answers. After a break no answer that follows on that connection counts.
type OnMessage = Arc<dyn Fn(AsyncMessage) -> ControlFlow<()> + Send + Sync>;

pub(crate) struct Connections {
    env: Env,
    pub(crate) config: PostgresConfig,
    connections: Config,
    encryption: Option<Encryption>,
    /// 128 random bits, to which nobody else can send; empty if messages are not heard.
    pub(crate) channel: String,
    on_message: OnMessage,
    line: Reopen<Route>,
    generation: AtomicU64,
    /// Messages were heard once.
    hears: Arc<AtomicBool>,
    /// The schema was found to be leasehold's own.
    has_schema: AtomicBool,
    /// So many connection attempts in a row were not answered in time.
    silences: AtomicU32,
}

/// Two connections to one server.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) generation: u64,
    pub(crate) requests: Arc<Wire>,
    /// Renews and listens.
    pub(crate) renewals: Arc<Wire>,
    /// Cancelled once the connections are not in use any more.
    pub(crate) broken: CancellationToken,
}

impl Connections {
    pub(crate) fn new(
        config: &PostgresConfig,
        encryption: Option<Encryption>,
        env: Env,
        on_notification: OnNotification,
    ) -> Self {
        let mut bits = [0; 16];
        env.random(&mut bits);
        let digits: String = bits.iter().map(|byte| format!("{byte:02x}")).collect();
        let channel = if config.listen { format!("lh_{digits}") } else { String::new() };
        let hears = Arc::new(AtomicBool::new(!config.listen));
        let (heard, own, needs_replicas) = (Arc::clone(&hears), channel.clone(), config.needs_replicas);
        let on_message: OnMessage = Arc::new(move |message| {
            match message {
                AsyncMessage::Notification(told) if told.channel() == own => {
                    heard.store(true, Ordering::Relaxed);
                    on_notification(told.payload());
                }
                AsyncMessage::Notice(said) if needs_replicas && error::is_unreplicated(&said) => {
                    tracing::debug!(
                        notice = said.message(),
                        "the connection ends: no standby has the change"
                    );
                    return ControlFlow::Break(());
                }
                _ => {}
            }
            ControlFlow::Continue(())
        });
        Self {
            connections: config.for_connections(env.timing().op_timeout),
            encryption,
            config: config.clone(),
            channel,
            on_message,
            line: Reopen::new(env.clone()),
            generation: AtomicU64::new(0),
            hears,
            has_schema: AtomicBool::default(),
            silences: AtomicU32::default(),
            env,
        }
    }

    /// The cause of a timeout: the failure of the last connection attempt, if there is one.
    pub(crate) fn why_not(&self) -> Error {
        let bound = self.env.timing().connect_timeout;
        self.line.refused().unwrap_or_else(|| error::silent(bound))
    }

    /// The connections in use, made if there are none.
    pub(crate) async fn line(self: &Arc<Self>) -> Result<Route> {
        let server = Arc::clone(self);
        let made =
            self.line.get(|line| !line.broken.is_cancelled(), || async move { server.connect().await });
        // No request was sent but for the connection.
        made.await.map_err(|error| error.with_effect(Effect::NotApplied))
    }

    async fn connect(&self) -> Result<Route> {
        let generation = self.generation.fetch_add(1, Ordering::Relaxed) + 1;
        let bound = self.env.timing().connect_timeout;
        let line = self.env.within(bound, self.first_that_answers(generation)).await;
        let line = line.unwrap_or_else(|| Err(error::silent(bound)))?;
        let guard = line.broken.clone().drop_guard();
        if !self.hears.load(Ordering::Relaxed) {
            are_our_own(&line).await?;
        }
        let listen = async {
            let channel = format!("LISTEN {}", self.channel);
            if self.config.listen { line.renewals.run(&channel).await } else { Ok(()) }
        };
        let ensure = async {
            let is_known = self.has_schema.load(Ordering::Relaxed);
            schema::ensure(&self.config, &line.requests, is_known).await?;
            self.has_schema.store(true, Ordering::Relaxed);
            Ok(())
        };
        tokio::try_join!(listen, ensure)?;
        self.hear_oneself(&line).await?;
        self.prepare(&line).await?;
        guard.disarm();
        Ok(line)
    }

    /// Both connections to the first server that answers, each address in turn.
    async fn first_that_answers(&self, generation: u64) -> Result<Route> {
        let mut config = self.connections.clone();
        if let Some(login) = &self.config.login {
            let Credentials { user, password, .. } = login.ask().await?;
            config.user(user).password(password);
        }
        let addresses = hosts::addresses(&self.env, &config).await?;
        let (timing, number) = (self.env.timing(), u32::try_from(addresses.len()).unwrap_or(u32::MAX));
        let mut refused = error::silent(timing.connect_timeout);
        for address in &addresses {
            // As long as a request: what is sent to a server that is silent for a while may never be answered. Then longer: a busy
            // machine may take that long for two logins.
            let twice = 1 << self.silences.load(Ordering::Relaxed).min(MOST_TWICE);
            let bound = (timing.op_timeout * twice).min(timing.connect_timeout / number.max(1));
            let error = match self.env.within(bound, Box::pin(self.connect_to(address, generation))).await {
                Some(Ok(line)) => {
                    self.silences.store(0, Ordering::Relaxed);
                    return Ok(line);
                }
                Some(Err(error)) => error,
                None => {
                    self.silences.fetch_add(1, Ordering::Relaxed);
                    error::silent(bound)
                }
            };
            // At first a refusal stands: the outage of another address does not mend it. Later the server that was in use may
            // come back.
            if error::may_pass(&refused) || self.has_schema.load(Ordering::Relaxed) {
                refused = error;
            }
        }
        Err(refused)
    }

    async fn connect_to(&self, address: &Config, generation: u64) -> Result<Route> {
        let broken = CancellationToken::new();
        let guard = broken.clone().drop_guard();
        let wire = || {
            let encryption = self.encryption.as_ref();
            Wire::connect(&self.env, address, encryption, &broken, &self.on_message)
        };
        let (requests, renewals) = tokio::try_join!(Box::pin(wire()), Box::pin(wire()))?;
        guard.disarm();
        Ok(Route { generation, requests: Arc::new(requests), renewals: Arc::new(renewals), broken })
    }

    /// Settings and statements of the connections, once it is certain that no pooler passes them on to other clients; and the
    /// standbys.
    async fn prepare(&self, line: &Route) -> Result<()> {
        if self.config.listen {
            // An error of the server comes before our own bound, and then nothing was applied.
            let bound = (self.env.timing().op_timeout * 3 / 4).as_millis().max(1);
            let settings = format!(
                "SET default_transaction_isolation = 'read committed'; SET statement_timeout = {bound}"
            );
            let often =
                schema::OFTEN.map(|function| schema::call(&schema::quoted(&self.config.schema), function));
            tokio::try_join!(
                line.requests.run(&settings),
                line.renewals.run(&settings),
                line.requests.prepare(often.into())
            )?;
        }
        if self.config.needs_replicas {
            let names = line.requests.ask("SELECT current_setting('synchronous_standby_names')", &[]).await?;
            if names.one()?.get::<&str>(0)?.is_empty() {
                return Err(error::no_standby());
            }
        }
        Ok(())
    }

    /// Something in between may take `LISTEN` and pass no message on.
    async fn hear_oneself(&self, line: &Route) -> Result<()> {
        if self.hears.load(Ordering::Relaxed) {
            return Ok(());
        }
        let notify = "SELECT pg_notify($1, 'heard')";
        line.requests.ask(notify, &[(&self.channel, Type::TEXT)]).await?;
        let bound = self.env.timing().op_timeout;
        let give_up_at = self.env.now() + bound;
        while !self.hears.load(Ordering::Relaxed) {
            if give_up_at <= self.env.now() {
                return Err(error::deaf(bound));
            }
            // An answer on that connection comes after the messages before it.
            line.renewals.ask("SELECT 1", &[]).await?;
        }
        Ok(())
    }

    /// Ends the connections.
    pub(crate) fn close(&self) {
        if let Some(line) = self.line.take() {
            line.broken.cancel();
        }
    }
}

/// A pooler in transaction mode may use another connection of the server for each transaction. The one that is free last is used
/// first there: a quiet pooler uses one for both of ours, and after a transaction of the other one changes it.
async fn are_our_own(line: &Route) -> Result<()> {
    let backend =
        async |wire: &Arc<Wire>| wire.ask("SELECT pg_backend_pid()", &[]).await?.one()?.get::<i32>(0);
    let renewing = backend(&line.renewals).await?;
    line.requests.run("BEGIN").await?;
    let asking = backend(&line.requests).await?;
    let is_shared = asking == renewing || backend(&line.renewals).await? != renewing;
    line.requests.run("COMMIT").await?;
    if is_shared || backend(&line.renewals).await? != renewing {
        return Err(error::pooled());
    }
    Ok(())
}

/// The bound of a connection attempt doubles so often at most: one that began before a network came back holds up the next.
const MOST_TWICE: u32 = 2;
