//! The way to the cluster: one connection at a time, to a member that answers.
//!
//! The client crate spreads its requests over all endpoints, also those that are unavailable. So there is one client for
//! one endpoint. If that fails or does not answer, the next request goes to the next endpoint, on a connection of its
//! own. Every request that is sent here may be sent again.
//!
//! # Invariants
//! - **etcd.connection-1** Every attempt has a bound, connecting included.
//! - **etcd.connection-2** A failure moves on from the connection it was seen on, and from no later one.
//! - **etcd.connection-3** A slow request does not replace a connection that answers other requests.
//! - **etcd.connection-4** A refusal by TLS of all endpoints is final until one of them has answered for the first time.
//!   After that it is an outage like any other: only etcd itself refuses a user.

mod connector;
mod gathered;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use etcd_client::{Client, GetOptions, GetResponse, Txn, TxnResponse};
use leasehold_core::backend::{Backoff, Credentials, Login, Reopen};
use leasehold_core::{Effect, Env, Error, ErrorKind, Result};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;

use crate::config::EtcdConfig;
use crate::error;

pub(crate) struct Endpoints {
    env: Env,
    pub(crate) urls: Vec<String>,
    endpoints: Vec<Endpoint>,
    credentials: Option<Credentials>,
    login: Option<Login>,
    /// The bound of one attempt: a third of a request's, if there are other endpoints.
    pub(crate) bound: Duration,
    link: Reopen<Link>,
    turn: Mutex<Turn>,
    /// Permits for requests: more at a time would wait at the server, which would seem not to answer.
    room: Semaphore,
}

#[derive(Clone, Copy)]
struct Turn {
    /// Counts the connections, and selects their endpoint.
    generation: usize,
    /// How many endpoints in a row have refused us since one has answered.
    denials: usize,
    /// An endpoint has answered at least once.
    is_known: bool,
}

#[derive(Clone)]
pub(crate) struct Link {
    /// Shared: the client crate copies the channels of all its services with it.
    pub(crate) client: Arc<Client>,
    pub(crate) generation: usize,
    /// Cancelled once the connection is not in use any more.
    pub(crate) left: CancellationToken,
    answered: Arc<AtomicU64>,
}

/// The effect of a request without a reply.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Silence {
    /// The connection is replaced: renewals of the session, which wait behind no other request.
    IsOfTheMember,
    /// The connection is replaced if it has answered no other request meanwhile.
    MayBeOfTheRequest,
}

impl Endpoints {
    pub(crate) fn new(config: &EtcdConfig, env: Env) -> Result<Self> {
        let urls = config.endpoint_urls()?;
        let request = env.timing().op_timeout;
        let bound = if urls.len() > 1 { request / 3 } else { request };
        // Not every client begins with the first one.
        let mut bits = [0; 1];
        env.random(&mut bits);
        let generation = usize::from(bits[0]) % urls.len();
        Ok(Self {
            endpoints: connector::endpoints(config, &urls, bound)?,
            credentials: config.credentials.clone(),
            login: config.login.clone(),
            link: Reopen::new(env.clone()),
            turn: Mutex::new(Turn { generation, denials: 0, is_known: false }),
            room: Semaphore::new(AT_ONCE),
            env,
            urls,
            bound,
        })
    }

    /// Adds the endpoint of that number to an error.
    pub(crate) fn at(&self, index: usize, error: Error) -> Error {
        let url = &self.urls[index % self.urls.len()];
        error.with_context("server", url.split_once("://").map_or(url.as_str(), |(_, host)| host))
    }

    /// The cause of a timeout: the failure of the last connection attempt, if there is one.
    pub(crate) fn why_not(&self, bound: Duration) -> Error {
        self.link.refused().unwrap_or_else(|| error::silent(bound)).with_effect(Effect::NotApplied)
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.urls[0].starts_with("https://")
    }

    /// The connection in use, made if there is none.
    pub(crate) async fn link(self: &Arc<Self>) -> Result<Link> {
        let endpoints = Arc::clone(self);
        let made =
            self.link.get(|link| !link.left.is_cancelled(), || async move { endpoints.next_link().await });
        // No request was sent but for the connection.
        made.await.map_err(|error| error.with_effect(Effect::NotApplied))
    }

    async fn next_link(&self) -> Result<Link> {
        let generation = self.turn.lock().generation;
        let made = self.connect(generation).await;
        let client = made.map_err(|error| self.refused(generation, error))?;
        Ok(Link { client, generation, left: CancellationToken::new(), answered: Arc::default() })
    }

    /// A connection to one endpoint, besides the one in use.
    pub(crate) async fn connect(&self, index: usize) -> Result<Arc<Client>> {
        let endpoint = &self.endpoints[index % self.endpoints.len()];
        // Boxed: the future is large.
        let connecting = Box::pin(async {
            let asked = match &self.login {
                Some(login) => Some(login.ask().await?),
                None => None,
            };
            connector::connect(endpoint, asked.as_ref().or(self.credentials.as_ref())).await
        });
        let made = self.env.within(self.bound, connecting).await;
        let made = made.unwrap_or_else(|| Err(error::silent(self.bound)));
        made.map(Arc::new).map_err(|error| self.at(index, error.with_effect(Effect::NotApplied)))
    }

    /// A connection failed: the next request goes to the next endpoint.
    pub(crate) fn failed(&self, generation: usize) {
        self.move_on(generation, |_| 0);
    }

    /// Replaces that connection, if it is in use still. `denials` counts on from the number so far.
    fn move_on(&self, generation: usize, denials: impl FnOnce(usize) -> usize) -> Turn {
        let mut turn = self.turn.lock();
        if turn.generation == generation {
            (turn.generation, turn.denials) = (generation + 1, denials(turn.denials));
            if let Some(link) = self.link.last().filter(|link| link.generation == generation) {
                link.left.cancel();
            }
            let server = &self.urls[generation % self.urls.len()];
            tracing::debug!(server, "switching to the next endpoint");
        }
        *turn
    }

    /// An endpoint refused the connection, or is not reachable: the error, which is `Denied` once all have refused.
    fn refused(&self, generation: usize, error: Error) -> Error {
        let by_tls = error::is_refused_by_tls(&error);
        if !by_tls && *error.kind() != ErrorKind::Denied {
            self.failed(generation);
            return error;
        }
        let Turn { denials, is_known, .. } = self.move_on(generation, |before| before + 1);
        let is_final = denials >= self.urls.len() && !(by_tls && is_known);
        error.with_kind(if is_final { ErrorKind::Denied } else { ErrorKind::Unavailable })
    }

    /// The server at the other end of `link` has answered.
    fn answered(&self, link: &Link) {
        if link.answered.fetch_add(1, Ordering::Relaxed) > 0 {
            return;
        }
        let mut turn = self.turn.lock();
        turn.is_known = true;
        if turn.generation == link.generation {
            turn.denials = 0;
        }
    }

    /// One attempt of a request, the connection it may need included.
    ///
    /// # Cancel safety
    ///
    /// A request that was sent may be carried out.
    pub(crate) async fn call<T: Send, F>(
        self: &Arc<Self>,
        silence: Silence,
        act: impl FnOnce(Arc<Client>) -> F + Send,
    ) -> Result<T>
    where
        F: Future<Output = Result<T, etcd_client::Error>> + Send,
    {
        let over = self.env.now() + self.bound;
        let ready = async {
            let room = match silence {
                Silence::IsOfTheMember => None,
                Silence::MayBeOfTheRequest => {
                    Some(self.room.acquire().await.map_err(|_closed| error::closed())?)
                }
            };
            Ok::<_, Error>((room, self.link().await?))
        };
        let ready = self.env.within(self.bound, ready).await;
        let (_room, link) =
            ready.ok_or_else(|| error::silent(self.bound).with_effect(Effect::NotApplied))??;
        let (sent_at, before) = (self.env.now(), link.answered.load(Ordering::Relaxed));
        // Boxed: the client's futures are large, and most of those around them only wait.
        let acted = Box::pin(act(Arc::clone(&link.client)));
        let Some(answer) = self.env.within(over.since(sent_at), acted).await else {
            // After a slow connect the member had no time to answer.
            let had_time = self.env.now().since(sent_at) >= self.bound / 2;
            let answers_others = link.answered.load(Ordering::Relaxed) != before;
            if had_time && (silence == Silence::IsOfTheMember || !answers_others) {
                self.failed(link.generation);
            }
            return Err(self.at(link.generation, error::silent(self.bound)));
        };
        if answer.as_ref().err().is_none_or(error::is_answer) {
            self.answered(&link);
        }
        answer.map_err(|error| self.at(link.generation, self.failure(&link, error)))
    }

    /// The meaning of an error on `link`; replaces the connection if another one may do better.
    fn failure(&self, link: &Link, error: etcd_client::Error) -> Error {
        // Connected while authentication was disabled: another connection authenticates. So does one with the next
        // credentials, where those of this connection have changed.
        let is_nameless =
            error::says(&error, error::WHO) && (self.credentials.is_some() || self.login.is_some());
        if is_nameless || (error::says(&error, error::REFUSED) && self.login.is_some()) {
            self.failed(link.generation);
            return error::nameless(error);
        }
        if !error::is_about_the_member(&error) {
            return error::of_client(error);
        }
        if !self.is_encrypted() || link.answered.load(Ordering::Relaxed) > 0 {
            self.failed(link.generation);
            return error::of_client(error);
        }
        let refused = self.refused(link.generation, error::of_first_request(error));
        let is_final = *refused.kind() == ErrorKind::Denied;
        if is_final { refused.with_effect(Effect::NotApplied) } else { refused }
    }

    /// A request that may be repeated, until it is answered or the bound of a request has passed.
    pub(crate) async fn ask<T, F>(self: &Arc<Self>, act: impl Fn(Arc<Client>) -> F + Send + Sync) -> Result<T>
    where
        T: Send,
        F: Future<Output = Result<T, etcd_client::Error>> + Send,
    {
        let bound = self.env.timing().op_timeout;
        let give_up_at = self.env.now() + bound;
        let mut pauses = backoff(&self.env);
        let mut last: Option<Error> = None;
        loop {
            let attempt = self.call(Silence::MayBeOfTheRequest, &act);
            match self.env.within(give_up_at.since(self.env.now()), attempt).await {
                None => return Err(last.unwrap_or_else(|| error::silent(bound))),
                Some(Err(error)) if error::may_pass(&error) && self.env.now() < give_up_at => {
                    // The request may have been applied if any attempt may.
                    let unknown = last.is_some_and(|last| last.effect() == Effect::Unknown);
                    last = Some(if unknown { error.with_effect(Effect::Unknown) } else { error });
                    pauses.pause(&self.env).await;
                }
                Some(answer) => return answer,
            }
        }
    }

    /// Reads, as [`ask`](Self::ask) does.
    pub(crate) async fn get(self: &Arc<Self>, key: Vec<u8>, options: GetOptions) -> Result<GetResponse> {
        self.ask(|client| {
            let (key, options) = (key.clone(), options.clone());
            async move { client.kv_client().get(key, Some(options)).await }
        })
        .await
    }

    /// A transaction that may be repeated, as [`ask`](Self::ask) does.
    pub(crate) async fn txn(self: &Arc<Self>, txn: Txn) -> Result<TxnResponse> {
        self.ask(|client| {
            let txn = txn.clone();
            async move { client.kv_client().txn(txn).await }
        })
        .await
    }
}

/// Pauses between attempts, all short: a cluster with a new leader is used again soon.
pub(crate) fn backoff(env: &Env) -> Backoff {
    let bound = env.timing().op_timeout;
    Backoff::new(bound / 32, bound / 4)
}

/// So many requests are in flight at the same time, without renewals and streams.
const AT_ONCE: usize = 128;
