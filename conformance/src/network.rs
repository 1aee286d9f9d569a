//! A network between the core and a store: it takes its time, and it can be cut.
//!
//! A request that was sent arrives, whoever stops waiting for it; what it grants to somebody who
//! has left is given back. So a store behind it keeps the contract, with round trips that last.
//!
//! # Invariants
//! - **N1** Deadlines count from the moment the request entered the network, not from when the
//!   store had it (G2).
//! - **N2** An acquisition that was dropped is abandoned at the store one crossing later, also when
//!   its request is still on the way out or its grant on the way back (G8).
//!
//! Not promised: `release` at its first poll, so `RUNTIME_FREE` is taken away.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use lockcore::backend::{
    AcquireRequest, Attempt, Finding, Grant, Holder, LeaseId, LockState, Renewal, Revoke, StoreEvent,
};
use lockcore::clock::Deadline;
use lockcore::{Effect, Env, Error, ErrorKind, Guarantees, LockName, Result};
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use crate::layer::{Below, Layer, Wrap, shared};

/// A network; clones are the same one, so that a case can cut what it has put in place.
#[derive(Clone, Debug)]
pub struct Network {
    line: Arc<Line>,
}

#[derive(Debug)]
struct Line {
    /// One way.
    delay: Duration,
    clean_up: CleanUp,
    is_cut: watch::Sender<bool>,
    lost: Mutex<VecDeque<(Request, Loss)>>,
}

/// The requests of which one can be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the methods of `LockBackend` of that name")]
#[expect(clippy::exhaustive_enums, reason = "as the contract")]
pub enum Request {
    TryAcquire,
    Renew,
    Release,
}

/// What of an exchange gets lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "an exchange has two halves")]
pub enum Loss {
    /// The store never hears of it.
    Request,
    /// The store does it, and nobody hears of that.
    Reply,
}

/// What becomes of an acquisition that was dropped; the wrong answers are mutants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CleanUp {
    /// Abandoned, however late its request arrives.
    UntilDone,
    /// Looked for once, when it is dropped; what arrives later stays.
    Once,
    Never,
}

impl Network {
    /// A network that takes `delay` in each direction.
    pub fn new(delay: Duration) -> Self {
        Self::with_clean_up(delay, CleanUp::UntilDone)
    }

    pub(crate) fn with_clean_up(delay: Duration, clean_up: CleanUp) -> Self {
        let (is_cut, lost) = (watch::Sender::new(false), Mutex::default());
        Self { line: Arc::new(Line { delay, clean_up, is_cut, lost }) }
    }

    /// The wrap that puts this network before a store.
    pub fn wrap(&self) -> Wrap {
        shared(Arc::new(self.clone()))
    }

    /// From here on nothing passes, in either direction. What is sent meanwhile is lost, except
    /// what the store's client repeats by itself: acquisitions and clean-up.
    pub fn cut(&self) {
        self.line.is_cut.send_replace(true);
    }

    /// Everything passes again.
    pub fn restore(&self) {
        self.line.is_cut.send_replace(false);
    }

    /// Loses half of the next exchange of that kind.
    pub fn lose_next(&self, request: Request, loss: Loss) {
        self.line.lost.lock().push_back((request, loss));
    }

    /// An exchange: there, the store's work, and back. It goes on when the caller has left; a
    /// caller whose half was lost waits for ever. `work` hears how long the way there took.
    async fn exchange<T: Send + 'static, W: Future<Output = T> + Send>(
        &self,
        env: &Env,
        request: Option<Request>,
        work: impl FnOnce(Duration) -> W + Send + 'static,
    ) -> T {
        let loss = request.and_then(|request| self.line.loss_of(request));
        let (reply, replied) = oneshot::channel();
        let (line, env_there) = (Arc::clone(&self.line), env.clone());
        env.spawn(async move {
            if line.is_cut() || loss == Some(Loss::Request) {
                return;
            }
            let way = line.delay(&env_there).await;
            let answer = work(way).await;
            line.delay(&env_there).await;
            if !line.is_cut() && loss != Some(Loss::Reply) {
                // A caller who has left needs no answer.
                let _ = reply.send(answer);
            }
        });
        match replied.await {
            Ok(answer) => answer,
            Err(_) => std::future::pending().await,
        }
    }
}

impl Line {
    fn is_cut(&self) -> bool {
        *self.is_cut.borrow()
    }

    /// One way, as often as it takes; how long the last time took.
    async fn cross(&self, env: &Env) -> Duration {
        let mut is_cut = self.is_cut.subscribe();
        // The sender lives in `self`.
        let _ = is_cut.wait_for(|is_cut| !is_cut).await;
        self.delay(env).await
    }

    /// On a busy machine a delay takes longer than that.
    async fn delay(&self, env: &Env) -> Duration {
        let sent_at = env.now();
        env.sleep(self.delay).await;
        env.now().since(sent_at)
    }

    fn loss_of(&self, request: Request) -> Option<Loss> {
        let mut lost = self.lost.lock();
        let place = lost.iter().position(|(lost, _)| *lost == request)?;
        lost.remove(place).map(|(_, loss)| loss)
    }
}

/// N1: what was sent before the store had it, by the time that took.
fn as_sent(deadline: Deadline, way: Duration) -> Deadline {
    match deadline {
        Deadline::At(at) => Deadline::At(at.saturating_sub(way)),
        Deadline::Never => Deadline::Never,
    }
}

/// A grant on its way back; given back to the store if nobody takes it.
struct Parcel {
    line: Arc<Line>,
    below: Below,
    /// How long the request was on its way.
    way: Duration,
    grant: Option<Grant>,
}

impl Parcel {
    fn new(line: &Arc<Line>, below: &Below, way: Duration, grant: Grant) -> Self {
        Self { line: Arc::clone(line), below: below.clone(), way, grant: Some(grant) }
    }

    fn take(mut self) -> Grant {
        let mut grant = self.grant.take().expect("a parcel is taken once");
        grant.lease.deadline = as_sent(grant.lease.deadline, self.way);
        grant
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        let Some(grant) = self.grant.take() else {
            return;
        };
        if self.line.clean_up != CleanUp::UntilDone {
            return;
        }
        let (line, below) = (Arc::clone(&self.line), self.below.clone());
        self.below.env.spawn(async move {
            line.cross(&below.env).await;
            // The lease ends what even this cannot.
            let _ = below.backend.release(&grant).await;
        });
    }
}

#[async_trait]
impl Layer for Network {
    fn guarantees(&self, below: &Below) -> Guarantees {
        below.backend.guarantees() - Guarantees::RUNTIME_FREE
    }

    async fn try_acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Attempt> {
        let (line, there, request) = (Arc::clone(&self.line), below.clone(), request.clone());
        let attempt = self.exchange(&below.env, Some(Request::TryAcquire), move |way| async move {
            Ok(match there.backend.try_acquire(&request).await? {
                Attempt::Granted(grant) => Ok(Parcel::new(&line, &there, way, grant)),
                Attempt::Held { holder } => Err(holder),
            })
        });
        let attempt: Result<_> = attempt.await;
        Ok(match attempt? {
            Ok(parcel) => Attempt::Granted(parcel.take()),
            Err(holder) => Attempt::Held { holder },
        })
    }

    async fn acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Grant> {
        let (line, there, request) = (Arc::clone(&self.line), below.clone(), request.clone());
        let (mut reply, replied) = oneshot::channel::<Result<Parcel>>();
        below.env.spawn(async move {
            let way = line.cross(&there.env).await;
            let found_once = line.clean_up == CleanUp::Once && reply.is_closed();
            let granted = tokio::select! {
                biased;
                granted = there.backend.acquire(&request) => granted,
                () = async {
                    reply.closed().await;
                    line.cross(&there.env).await;
                }, if line.clean_up != CleanUp::Never && !found_once => return,
            };
            let parcel = granted.map(|grant| Parcel::new(&line, &there, way, grant));
            line.cross(&there.env).await;
            // A caller who has left drops the parcel, which gives the grant back.
            let _ = reply.send(parcel);
        });
        match replied.await {
            Ok(parcel) => parcel.map(Parcel::take),
            Err(_) => Err(Error::new(ErrorKind::Unavailable, Effect::Unknown, "the runtime is gone")),
        }
    }

    async fn renew(&self, below: &Below, leases: &[LeaseId]) -> Vec<Renewal> {
        let (there, leases) = (Arc::clone(&below.backend), leases.to_vec());
        let renewed = move |way| async move {
            let as_sent = |answer| match answer {
                Renewal::Until(deadline) => Renewal::Until(as_sent(deadline, way)),
                other => other,
            };
            there.renew(&leases).await.into_iter().map(as_sent).collect()
        };
        self.exchange(&below.env, Some(Request::Renew), renewed).await
    }

    async fn release(&self, below: &Below, grant: &Grant) -> Result<()> {
        let (there, grant) = (Arc::clone(&below.backend), grant.clone());
        self.exchange(&below.env, Some(Request::Release), move |_| async move { there.release(&grant).await })
            .await
    }

    fn events(&self, below: &Below) -> BoxStream<'static, StoreEvent> {
        let (line, env) = (Arc::clone(&self.line), below.env.clone());
        below
            .backend
            .events()
            .then(move |event| {
                let (line, env) = (Arc::clone(&line), env.clone());
                async move {
                    let way = line.cross(&env).await;
                    match event {
                        StoreEvent::LeaseOpened(mut lease) => {
                            lease.deadline = as_sent(lease.deadline, way);
                            StoreEvent::LeaseOpened(lease)
                        }
                        other => other,
                    }
                }
            })
            .boxed()
    }

    async fn inspect(&self, below: &Below, name: &LockName) -> Result<LockState> {
        let (there, name) = (Arc::clone(&below.backend), name.clone());
        self.exchange(&below.env, None, move |_| async move { there.inspect(&name).await }).await
    }

    async fn list(&self, below: &Below, prefix: &str) -> Result<Vec<LockState>> {
        let (there, prefix) = (Arc::clone(&below.backend), prefix.to_owned());
        self.exchange(&below.env, None, move |_| async move { there.list(&prefix).await }).await
    }

    async fn revoke(&self, below: &Below, name: &LockName, how: Revoke) -> Result<Option<Holder>> {
        let (there, name) = (Arc::clone(&below.backend), name.clone());
        self.exchange(&below.env, None, move |_| async move { there.revoke(&name, how).await }).await
    }

    async fn diagnose(&self, below: &Below) -> Result<Vec<Finding>> {
        let there = Arc::clone(&below.backend);
        self.exchange(&below.env, None, move |_| async move { there.diagnose().await }).await
    }

    async fn close(&self, below: &Below) -> Result<()> {
        let there = Arc::clone(&below.backend);
        self.exchange(&below.env, None, move |_| async move { there.close().await }).await
    }
}
