//! What a case gets: a namespace of the store under test, contenders on it, and time.
//!
//! A process is a [`LockManager`] with a session of its own, or a raw [`Session`]. Every duration
//! derives from the ttl, so the same case runs in virtual and in real time.

#![expect(clippy::missing_errors_doc, reason = "an error is the failure of the case")]

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use leasehold_core::backend::{LockState, StoreConfig};
use leasehold_core::clock::{Clock, Moment};
use leasehold_core::{
    Builder, Entropy, Env, Error, Guarantees, Lock, LockGuard, LockManager, OsEntropy, Timing,
};
use parking_lot::Mutex;

use crate::bugs::Mutation;
use crate::failure::{Failure, Outcome};
use crate::host::HostClock;
use crate::layer::Wrap;
use crate::network::Network;
use crate::session::Session;
use crate::subject::{Pace, Subject};

/// The surroundings of one case; clones are the same store.
#[derive(Clone)]
pub struct World {
    shared: Arc<Shared>,
    /// What lies between this view's sessions and the store, the nearest to the store first.
    between: Vec<Wrap>,
}

struct Shared {
    subject: Arc<dyn Subject>,
    namespace: String,
    mutation: Option<Mutation>,
    clock: Arc<dyn Clock>,
    /// A manager, which keeps its session alive.
    observer: LockManager,
    graves: Mutex<Vec<Box<dyn Any + Send>>>,
}

impl World {
    pub(crate) async fn open(subject: Arc<dyn Subject>, mutation: Option<Mutation>) -> Outcome<Self> {
        let namespace = namespace();
        let clock = subject.pace().clock();
        let mut store = subject.config(&namespace);
        if let Some(mutation) = &mutation {
            store = mutation.around(store);
        }
        let observer = LockManager::builder(store).ttl(subject.pace().ttl()).clock(Arc::clone(&clock));
        let observer = observer.build().await?;
        let shared = Shared { subject, namespace, mutation, clock, observer, graves: Mutex::default() };
        Ok(Self { shared: Arc::new(shared), between: Vec::new() })
    }

    /// What the store promises.
    pub fn guarantees(&self) -> Guarantees {
        self.shared.observer.guarantees()
    }

    /// A view of the same store with `wrap` between it and every session opened from there.
    #[must_use]
    pub fn behind(&self, wrap: Wrap) -> Self {
        let mut world = self.clone();
        world.between.push(wrap);
        world
    }

    /// The way to the store, mutation included.
    pub fn config(&self) -> Box<dyn StoreConfig> {
        let shared = &self.shared;
        let mut config = shared.subject.config(&shared.namespace);
        for wrap in &self.between {
            config = wrap(config);
        }
        match &shared.mutation {
            Some(mutation) => mutation.around(config),
            None => config,
        }
    }

    /// A process: a manager on a session of its own.
    pub async fn manager(&self) -> Outcome<LockManager> {
        self.manager_with(|builder| builder).await
    }

    /// A process with options of its own.
    pub async fn manager_with(
        &self,
        configure: impl FnOnce(Builder) -> Builder + Send,
    ) -> Outcome<LockManager> {
        let builder = LockManager::builder(self.config())
            .ttl(self.ttl())
            .clock(Arc::clone(&self.shared.clock))
            .owner_label("a process of the kit");
        Ok(configure(builder).build().await?)
    }

    /// A process at some distance from the store, and the network between them.
    pub async fn far(&self) -> Outcome<(Network, LockManager)> {
        let network = Network::new(self.crossing());
        let manager = self.behind(network.wrap()).manager().await?;
        Ok((network, manager))
    }

    /// What a network takes in each direction.
    pub fn crossing(&self) -> Duration {
        self.ttl() / 3_000
    }

    /// A session of the raw contract, whose leases are not renewed.
    pub async fn session(&self) -> Outcome<Session> {
        self.session_in(self.env()?).await
    }

    /// A session that takes part in a move.
    pub async fn moving_session(&self) -> Outcome<Session> {
        self.session_in(self.env()?.without_token_base()).await
    }

    fn env(&self) -> Outcome<Env> {
        Ok(Env::new(Timing::for_ttl(self.ttl()))?.with_clock(Arc::clone(&self.shared.clock)))
    }

    async fn session_in(&self, env: Env) -> Outcome<Session> {
        let backend = self.config().open(env.clone()).await?;
        Ok(Session::new(self.clone(), backend, env))
    }

    /// A host with a clock of its own, which gains `ppm` millionths on the others'; and how its
    /// processes read that.
    pub fn host(&self, ppm: i32) -> (HostClock, Arc<dyn Clock>) {
        let host = HostClock::new(Arc::clone(&self.shared.clock), ppm);
        let as_read: Arc<dyn Clock> = match &self.shared.mutation {
            Some(Mutation::Clock(mutate)) => mutate(host.clone()),
            _ => Arc::new(host.clone()),
        };
        (host, as_read)
    }

    /// `lock`, to be held for `span` at most.
    pub fn bounded(&self, lock: Lock, span: Duration) -> Lock {
        Mutation::bound(self.shared.mutation.as_ref())(lock, span)
    }

    /// Runs `work` under `lock`.
    pub(crate) async fn with<T>(
        &self,
        lock: &Lock,
        work: impl AsyncFnOnce(&LockGuard) -> T,
    ) -> leasehold_core::Result<T> {
        if !matches!(self.shared.mutation, Some(Mutation::Work)) {
            return lock.with(work).await;
        }
        let guard = lock.acquire().await?;
        match select(pin!(work(&guard)), guard.lost()).await {
            Either::Left((done, _)) => Ok(done),
            Either::Right((reason, _)) => Err(Error::lost(reason)),
        }
    }

    /// The ttl of every lease of the case.
    pub fn ttl(&self) -> Duration {
        self.shared.subject.pace().ttl()
    }

    /// What managers take off a lease of `ttl`.
    pub fn margin_of(&self, ttl: Duration) -> Duration {
        Timing::for_ttl(self.ttl()).margin(ttl)
    }

    /// Enough for a few requests, much less than a lease: nothing that is done in time leans on an
    /// expiry.
    pub fn soon(&self) -> Duration {
        self.ttl() / 3
    }

    /// Enough for one request, and too little for anything that takes time on purpose.
    pub fn moment(&self) -> Duration {
        self.ttl() / 30
    }

    /// How long after a process died the next one may have to wait (G6).
    pub fn takeover(&self) -> Duration {
        self.ttl() + self.shared.subject.expiry_granularity() + Duration::from_secs(1)
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.clock
    }

    /// The time.
    pub fn now(&self) -> Moment {
        self.shared.clock.now()
    }

    /// Lets `span` pass. For properties that are about time; never to wait for something.
    pub async fn pass(&self, span: Duration) {
        self.shared.clock.sleep_until(self.now() + span).await;
    }

    /// Lets what has been started get as far as it can.
    pub async fn settle(&self) {
        self.pass(self.moment()).await;
    }

    /// What `work` comes to, within `bound`.
    pub async fn within<T>(
        &self,
        bound: Duration,
        what: &str,
        work: impl Future<Output = T> + Send,
    ) -> Outcome<T> {
        tokio::select! {
            biased;
            done = work => Ok(done),
            longest = self.outlast(bound) => {
                let late = longest.saturating_sub(bound / self.steps());
                Err(Failure::new(format!("{what}: not within {bound:?}, in steps that were up to {late:?} late")))
            }
        }
    }

    /// Lets `bound` pass. In real time it counts only while this process runs, in steps: each counts once, however late the
    /// machine is, which also delays the work that is waited for. Returns how long the longest step took.
    async fn outlast(&self, bound: Duration) -> Duration {
        let mut longest = Duration::ZERO;
        for _ in 0..self.steps() {
            let began = self.now();
            self.pass(bound / self.steps()).await;
            longest = longest.max(self.now().since(began));
        }
        longest
    }

    fn steps(&self) -> u32 {
        if self.pace() == Pace::Virtual { 1 } else { 32 }
    }

    /// What a task comes to, within `bound`.
    pub async fn joined<T>(
        &self,
        bound: Duration,
        what: &str,
        task: impl Future<Output = Outcome<Outcome<T>>> + Send,
    ) -> Outcome<T> {
        self.within(bound, what, task).await??
    }

    /// Waits until `holds` says yes, for `bound` at most.
    pub async fn eventually<F: Future<Output = Outcome<bool>> + Send>(
        &self,
        bound: Duration,
        what: &str,
        mut holds: impl FnMut() -> F + Send,
    ) -> Outcome {
        let polled = async {
            while !holds().await? {
                self.pass(self.ttl() / 300).await;
            }
            Ok(())
        };
        self.within(bound, what, polled).await?
    }

    /// The state of a lock, as another process sees it.
    pub async fn inspect(&self, name: &str) -> Outcome<LockState> {
        Ok(self.shared.observer.inspect(name).await?)
    }

    /// The states of all locks, as another process sees them.
    pub async fn list(&self) -> Outcome<Vec<LockState>> {
        Ok(self.shared.observer.list("").await?)
    }

    /// Waits until `contenders` processes wait for `name` at the store, the holder not counted.
    pub async fn queued(&self, name: &str, contenders: usize) -> Outcome {
        self.queued_within(self.soon(), name, contenders).await
    }

    /// The same, for `bound` at most.
    pub(crate) async fn queued_within(&self, bound: Duration, name: &str, contenders: usize) -> Outcome {
        if !self.guarantees().contains(Guarantees::FIFO) {
            // A store without a queue cannot show waiters.
            self.settle().await;
            return Ok(());
        }
        self.eventually(bound, &format!("{contenders} contenders queue"), || async {
            Ok(self.inspect(name).await?.contenders == contenders)
        })
        .await
    }

    /// Waits until nothing is held or waited for, for `bound` at most.
    pub async fn empty(&self, bound: Duration, after: &str) -> Outcome {
        let emptied = self.eventually(bound, after, || async { Ok(self.list().await?.is_empty()) }).await;
        if let Err(failure) = emptied {
            let left = self.list().await?;
            return Err(Failure::new(format!("{}, left in the store: {left:?}", failure.message())));
        }
        Ok(())
    }

    /// Keeps what a dead process had, without polling it again.
    pub(crate) fn bury(&self, dead: impl Any + Send) {
        self.shared.graves.lock().push(Box::new(dead));
    }

    /// Drops what dead processes had: it may hold the world, and neither would ever be dropped.
    pub(crate) fn forget_the_dead(&self) {
        let dead = std::mem::take(&mut *self.shared.graves.lock());
        drop(dead);
    }

    pub(crate) fn periods(&self) -> (u32, u32) {
        self.shared.subject.periods()
    }

    pub(crate) fn pace(&self) -> Pace {
        self.shared.subject.pace()
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("subject", &self.shared.subject)
            .field("namespace", &self.shared.namespace)
            .finish_non_exhaustive()
    }
}

/// Random, because a store may remember earlier runs.
fn namespace() -> String {
    let mut bits = [0; 8];
    OsEntropy::default().fill(&mut bits);
    format!("kit-{:016x}", u64::from_be_bytes(bits))
}
