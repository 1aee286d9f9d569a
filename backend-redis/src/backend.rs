//! The contract on top of a session.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream};
use lockcore::backend::{
    AcquireRequest, Attempt, Finding, Grant, Holder, LeaseId, LockBackend, LockState, Renewal, Revoke,
    StoreEvent, TokenBase,
};
use lockcore::{Env, ErrorKind, Guarantees, LockName, Result};
use parking_lot::Mutex;
use redis::Value;
use tokio::sync::mpsc;

use crate::config::RedisConfig;
use crate::diagnosis;
use crate::error;
use crate::scripts::{self, Shown};
use crate::session::Session;

#[derive(Debug)]
pub(crate) struct RedisBackend {
    session: Arc<Session>,
    events: Mutex<Option<mpsc::UnboundedReceiver<StoreEvent>>>,
}

impl RedisBackend {
    pub(crate) async fn open(config: &RedisConfig, env: Env) -> Result<Self> {
        let (tell, events) = mpsc::unbounded_channel();
        let session = Session::open(config, env, tell).await?;
        Ok(Self { session, events: Mutex::new(Some(events)) })
    }

    /// The states of `names`, a few at a time.
    ///
    /// A name whose keys are something else is left out, if it is not the only one.
    async fn states(&self, names: &[LockName]) -> Result<Vec<LockState>> {
        let mut states = Vec::with_capacity(names.len());
        for names in names.chunks(SHOWN) {
            match self.few_states(names).await {
                Err(error) if *error.kind() == ErrorKind::Protocol && names.len() > 1 => {
                    for name in names {
                        match self.few_states(std::slice::from_ref(name)).await {
                            Err(error) if *error.kind() == ErrorKind::Protocol => {
                                tracing::warn!(%name, error = %format_args!("{error:#}"), "this name cannot be shown");
                            }
                            state => states.extend(state?),
                        }
                    }
                }
                shown => states.extend(shown?),
            }
        }
        Ok(states)
    }

    async fn few_states(&self, names: &[LockName]) -> Result<Vec<LockState>> {
        let keys = names.iter().map(|name| self.session.keys().of(name)).collect::<Result<Vec<_>>>()?;
        let call = scripts::INSPECT.call(keys.iter());
        let answer = self.session.run(&scripts::INSPECT, &call).await?;
        let shown = scripts::inspected(&answer, names.len(), self.session.token_base())?;
        let state =
            |(name, Shown { holder, waiting }): (&LockName, _)| LockState::new(name.clone(), holder, waiting);
        Ok(names.iter().zip(shown).map(state).collect())
    }
}

#[async_trait]
impl LockBackend for RedisBackend {
    /// Not `SURVIVES_FAILOVER`: replication is asynchronous. Tokens survive a restart because they are
    /// never below the server's clock.
    fn guarantees(&self) -> Guarantees {
        Guarantees::FENCED
            | Guarantees::FIFO
            | Guarantees::LEASED
            | Guarantees::CROSS_PROCESS
            | Guarantees::CROSS_HOST
            | Guarantees::SURVIVES_RESTART
            | Guarantees::PER_LOCK_TTL
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.session.try_acquire(request).await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Grant> {
        self.session.acquire(request).await
    }

    async fn renew(&self, leases: &[LeaseId]) -> Vec<Renewal> {
        self.session.renew(leases).await
    }

    async fn release(&self, grant: &Grant) -> Result<()> {
        self.session.release(grant).await
    }

    fn events(&self) -> BoxStream<'static, StoreEvent> {
        match self.events.lock().take() {
            Some(events) => {
                Box::pin(stream::unfold(events, async |mut events| Some((events.recv().await?, events))))
            }
            None => Box::pin(stream::empty()),
        }
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState> {
        self.session.open_or_refuse()?;
        let states = self.states(std::slice::from_ref(name)).await?;
        states.into_iter().next().ok_or_else(|| error::unexpected("about a name"))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        self.session.open_or_refuse()?;
        let pattern = self.session.keys().pattern(prefix);
        let mut names = BTreeSet::new();
        let mut cursor = 0;
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(SCANNED);
            let give_up_at = self.session.patience();
            let answer = self.session.connected(give_up_at).await?.ask(&scan, give_up_at).await?;
            let Value::Array(parts) = &answer else {
                return Err(error::unexpected("to SCAN"));
            };
            let (Some(next), Some(Value::Array(keys))) =
                (parts.first().and_then(scripts::number), parts.get(1))
            else {
                return Err(error::unexpected("to SCAN"));
            };
            let found = keys.iter().filter_map(|key| self.session.keys().name_of(scripts::text(key)?));
            // With exact keys, some that others have left are of names that are not ours to lock.
            let lockable = |name: &LockName| self.session.keys().of(name).is_ok();
            names.extend(found.filter(|name| name.as_str().starts_with(prefix) && lockable(name)));
            if next == 0 {
                break;
            }
            cursor = next;
        }
        let names: Vec<_> = names.into_iter().collect();
        let mut states = self.states(&names).await?;
        // A name that was used lately has a counter, and no more.
        states.retain(|state| state.holder.is_some() || state.contenders > 0);
        Ok(states)
    }

    async fn revoke(&self, name: &LockName, how: Revoke) -> Result<Option<Holder>> {
        self.session.open_or_refuse()?;
        self.session.revoke(name, how).await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        self.session.open_or_refuse()?;
        let give_up_at = self.session.patience();
        let connected = self.session.connected(give_up_at).await?;
        let answers = connected.ask_all(&diagnosis::questions(), give_up_at).await?;
        let now = self.session.env().wall_time();
        let mut findings =
            diagnosis::findings(&answers, now, self.session.is_deaf(), self.session.replicas());
        // It shows no name, and is run as every script is.
        let ran = connected.run(&scripts::INSPECT, &scripts::INSPECT.call([].iter()), give_up_at).await;
        findings.push(diagnosis::of_scripts(ran.map(drop)));
        Ok(findings)
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
        self.session.close().await
    }
}

impl Drop for RedisBackend {
    /// Without `close`, leases end what is left.
    fn drop(&mut self) {
        self.session.cut();
    }
}

/// How many names one request shows: of each, a few entries of the queue are looked at.
const SHOWN: usize = 50;
/// How many keys a step of SCAN looks at.
const SCANNED: usize = 1000;
