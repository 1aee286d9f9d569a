//! The contract on top of a session.
//!
//! No task runs in the background: what the session hears, it hears while the core polls
//! [`events`](LockBackend::events), and a directory is looked at there only while something is held, and
//! once more.
//! Requests work in place, so a release is complete at its first poll, without a runtime.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream};
use leasehold_core::backend::{
    AcquireRequest, Attempt, Finding, Grant, Holder, LeaseId, LockBackend, LockState, Renewal, Revoke,
    StoreEvent, TokenBase,
};
use leasehold_core::clock::{Deadline, Moment};
use leasehold_core::{Env, Guarantees, LockName, LostReason, Result};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

use crate::config::FileConfig;
use crate::directory::Scope;
use crate::keys::Key;
use crate::session::{Attempted, PAUSE, Session};

#[derive(Debug)]
pub(crate) struct FileBackend {
    session: Arc<Session>,
    inbox: Mutex<Option<mpsc::UnboundedReceiver<StoreEvent>>>,
}

impl FileBackend {
    pub(crate) fn open(config: &FileConfig, env: Env) -> Result<Self> {
        let (events, inbox) = mpsc::unbounded_channel();
        let session = Arc::new(Session::open(config, env, events)?);
        let directory = session.directory();
        for finding in [directory.file_system().warning(), directory.hands()?].into_iter().flatten() {
            session.tell(StoreEvent::Warning(finding.detail.into()));
        }
        Ok(Self { session, inbox: Mutex::new(Some(inbox)) })
    }
}

#[async_trait]
impl LockBackend for FileBackend {
    fn guarantees(&self) -> Guarantees {
        let everywhere = Guarantees::FENCED | Guarantees::CROSS_PROCESS | Guarantees::RUNTIME_FREE;
        match self.session.directory().file_system().scope {
            Scope::Memory => everywhere,
            Scope::Local | Scope::Network | Scope::Program => everywhere | Guarantees::SURVIVES_RESTART,
        }
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let key = Key::of(&request.name);
        let env = self.session.env();
        let give_up_at = env.now() + self.session.patience();
        loop {
            match self.session.attempt(request, &key).await? {
                Attempted::Granted(grant) => return Ok(Attempt::Granted(grant)),
                Attempted::Busy { holder: Some(record), .. } => {
                    let holder = Some(self.session.holder(record));
                    return Ok(Attempt::Held { holder });
                }
                Attempted::Busy { holder: None, .. } if give_up_at <= env.now() => {
                    return Ok(Attempt::Held { holder: None });
                }
                // Somebody gives back a lock that nobody of his process wants any more, or is about
                // to record his grant.
                Attempted::Busy { holder: None, .. } => env.sleep(PAUSE).await,
            }
        }
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Grant> {
        let key = Key::of(&request.name);
        loop {
            let file = match self.session.attempt(request, &key).await? {
                Attempted::Granted(grant) => return Ok(grant),
                Attempted::Busy { file, .. } => file,
            };
            if let Some(grant) = self.session.wait(request, &key, file).await? {
                return Ok(grant);
            }
        }
    }

    async fn renew(&self, leases: &[LeaseId]) -> Vec<Renewal> {
        let renew = |lease: &LeaseId| match self.session.is_held(*lease) {
            true => Renewal::Until(Deadline::Never),
            false => Renewal::Gone(LostReason::Gone),
        };
        leases.iter().map(renew).collect()
    }

    async fn release(&self, grant: &Grant) -> Result<()> {
        self.session.release(grant)
    }

    fn events(&self) -> BoxStream<'static, StoreEvent> {
        let Some(inbox) = self.inbox.lock().take() else {
            return Box::pin(stream::empty());
        };
        let listener = Listener {
            inbox,
            session: Arc::downgrade(&self.session),
            env: self.session.env().clone(),
            bell: Arc::clone(self.session.bell()),
            every: self.session.patrol_every(),
            patrol_at: self.session.env().now(),
            is_due: false,
        };
        Box::pin(stream::unfold(listener, async |mut listener| Some((listener.next().await?, listener))))
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState> {
        self.session.open_or_refuse()?;
        let directory = self.session.directory();
        let holder = directory.live(name)?.map(|record| self.session.holder(record));
        let key = Key::of(name);
        let contenders = directory.waiting()?.into_iter().filter(|waiting| *waiting == key).count();
        Ok(LockState::new(name.clone(), holder, contenders))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        self.session.open_or_refuse()?;
        let directory = self.session.directory();
        let mut waiting = BTreeMap::<Key, usize>::new();
        for key in directory.waiting()? {
            *waiting.entry(key).or_default() += 1;
        }
        let mut states = Vec::new();
        let mut keys = directory.keys()?;
        keys.retain(|key| key.may_begin_with(prefix));
        for keys in keys.chunks(CHUNK) {
            for key in keys {
                let contenders = waiting.get(key).copied().unwrap_or_default();
                let Some((record, lives)) = directory.newest(key)? else {
                    continue;
                };
                if record.name.as_str().starts_with(prefix) && (lives || contenders > 0) {
                    let name = record.name.clone();
                    let holder = lives.then(|| self.session.holder(record));
                    states.push(LockState::new(name, holder, contenders));
                }
            }
            tokio::task::yield_now().await;
        }
        states.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(states)
    }

    async fn revoke(&self, name: &LockName, how: Revoke) -> Result<Option<Holder>> {
        self.session.open_or_refuse()?;
        self.session.revoke(name, how).await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        self.session.open_or_refuse()?;
        self.session.directory().diagnose().await
    }

    async fn token_base(&self) -> Result<TokenBase> {
        self.session.open_or_refuse()?;
        self.session.read_base().await
    }

    async fn raise_token_base(&self, at_least: u64) -> Result<()> {
        self.session.open_or_refuse()?;
        self.session.raise_base(at_least).await
    }

    async fn close(&self) -> Result<()> {
        self.session.close();
        Ok(())
    }
}

/// What the core listens to. It does not keep the session, whose end is the end of the stream.
struct Listener {
    inbox: mpsc::UnboundedReceiver<StoreEvent>,
    session: Weak<Session>,
    env: Env,
    bell: Arc<Notify>,
    every: Duration,
    patrol_at: Moment,
    /// Something is held, or has been since the last patrol: requests to it are to be removed.
    is_due: bool,
}

impl Listener {
    async fn next(&mut self) -> Option<StoreEvent> {
        loop {
            self.is_due |= self.session.upgrade().is_some_and(|session| session.holds_anything());
            tokio::select! {
                biased;
                // First, as there may always be something to tell.
                () = self.env.sleep_until(self.patrol_at), if self.is_due => {
                    (self.patrol_at, self.is_due) = (self.env.now() + self.every, false);
                    if let Some(session) = self.session.upgrade() {
                        session.patrol();
                    }
                }
                event = self.inbox.recv() => return event,
                () = self.bell.notified(), if !self.is_due => self.is_due = true,
            }
        }
    }
}

/// How many files are looked at before others get a turn.
const CHUNK: usize = 64;
