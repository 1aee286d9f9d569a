//! A directory of its own for one test, and sessions with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use leasehold_core::backend::{AcquireRequest, Attempt, Grant, Holder, LockBackend, StoreConfig, StoreEvent};
use leasehold_core::{Env, LockName, Result, Timing};
use leasehold_file::FileConfig;
use testbed::{BOUND, Beside, Scratch, within};

pub(crate) struct Fixture {
    scratch: Scratch,
}

/// A session with the directory, as a manager has one.
pub(crate) struct Manager {
    pub(crate) backend: Arc<dyn LockBackend>,
    pub(crate) events: BoxStream<'static, StoreEvent>,
    pub(crate) env: Env,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self { scratch: Scratch::new("file").unwrap() }
    }

    /// The lock directory, which the first session makes.
    pub(crate) fn path(&self) -> PathBuf {
        self.scratch.path().join("locks")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub(crate) fn config(&self) -> FileConfig {
        FileConfig::new(self.path())
    }

    pub(crate) async fn open(&self) -> Manager {
        Manager::open(&self.config()).await.unwrap()
    }

    /// How many files a part of our bookkeeping has.
    pub(crate) fn traces(&self, part: &str) -> usize {
        files(&self.path().join(".leasehold").join(part))
    }
}

impl Manager {
    pub(crate) async fn open(config: &FileConfig) -> Result<Self> {
        // Short, so that periodic checks are frequent.
        Self::open_for(config, Duration::from_millis(400)).await
    }

    /// With a patience for the floor that the syncs of several others on a busy disk do not exhaust.
    pub(crate) async fn open_patient(config: &FileConfig) -> Result<Self> {
        Self::open_for(config, Duration::from_millis(1600)).await
    }

    async fn open_for(config: &FileConfig, op_timeout: Duration) -> Result<Self> {
        let mut timing = Timing::for_ttl(Duration::from_secs(5));
        timing.op_timeout = op_timeout;
        let env = Env::new(timing).unwrap();
        let backend = config.open(env.clone()).await?;
        let events = backend.events();
        Ok(Self { backend, events, env })
    }

    pub(crate) fn request(&self, lock: &str) -> AcquireRequest {
        let ttl = self.env.timing().ttl;
        let mut request = AcquireRequest::new(name(lock), self.env.owner_id(), ttl);
        request.label = "here".into();
        request
    }

    pub(crate) async fn attempt(&self, lock: &str) -> Result<Attempt> {
        self.backend.try_acquire(&self.request(lock)).await
    }

    /// The grant of a lock that is free.
    pub(crate) async fn grant(&self, lock: &str) -> Grant {
        match self.attempt(lock).await.unwrap() {
            Attempt::Granted(grant) => grant,
            Attempt::Held { holder } => panic!("{lock} is held by {holder:?}"),
        }
    }

    /// The holder of a lock that is not free.
    pub(crate) async fn refusal(&self, lock: &str) -> Option<Holder> {
        match self.attempt(lock).await.unwrap() {
            Attempt::Granted(grant) => panic!("{grant:?}"),
            Attempt::Held { holder } => holder,
        }
    }

    pub(crate) async fn release(&self, grant: &Grant) {
        self.backend.release(grant).await.unwrap();
    }

    /// An acquisition that waits.
    pub(crate) async fn waiter(&mut self, lock: &str) -> Beside<Result<Grant>> {
        let (backend, request) = (Arc::clone(&self.backend), self.request(lock));
        let waiter = Beside::start(async move { backend.acquire(&request).await });
        self.queued().await;
        waiter
    }

    /// Ends once an acquisition of this session is queued.
    pub(crate) async fn queued(&mut self) {
        while !matches!(self.event().await, StoreEvent::Queued { .. }) {}
    }

    /// The next event of the session.
    pub(crate) async fn event(&mut self) -> StoreEvent {
        within(BOUND, "an event", self.events.next()).await.expect("the session goes on")
    }

    pub(crate) async fn contenders(&self, lock: &str) -> usize {
        self.backend.inspect(&name(lock)).await.unwrap().contenders
    }

    /// A grant that came and went; its counter.
    pub(crate) async fn cycle(&self, lock: &str) -> u64 {
        let grant = self.grant(lock).await;
        self.release(&grant).await;
        grant.counter
    }
}

/// A grant that was waited for, asked for again as often as the wait was lost, as the core does.
pub(crate) async fn acquired(backend: &dyn LockBackend, env: &Env, lock: &str) -> Grant {
    loop {
        let request = AcquireRequest::new(name(lock), env.owner_id(), env.timing().ttl);
        match backend.acquire(&request).await {
            Err(error) if error.lost_reason().is_some() => {}
            ended => return ended.unwrap(),
        }
    }
}

pub(crate) fn name(lock: &str) -> LockName {
    LockName::new(lock).unwrap()
}

pub(crate) fn files(directory: &Path) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}
