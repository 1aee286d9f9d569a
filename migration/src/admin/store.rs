//! One of the two stores, as an administrator uses it: a session that takes no locks, and an entry in the list.
//!
//! # Invariants
//! - **store-1** *Write, then read*: the entry is signed before anything is read, so every reading is no older than the entry,
//!   whatever store it is (ledger-2).
//! - **store-2** Its entry is marked as an administrator's. So other administrators count it as the session it has, and no step
//!   waits for it.
//! - **store-3** The task that keeps the session alive ends with the session.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::{AbortHandle, Either, abortable, select};
use leasehold_core::backend::ledger::{MoveLedger, Written};
use leasehold_core::backend::stage::Side;
use leasehold_core::backend::{LeaseScope, StoreConfig, StoreEvent, TokenBase};
use leasehold_core::{Effect, Env, Error, ErrorKind, LockName, OwnerId, Result};
use tokio::sync::Mutex;

use crate::config::Open;
use crate::protocol::member::{Kind, MemberEntry};
use crate::protocol::record::MoveRecord;
use crate::protocol::records::Read;
use crate::session::foreign::note;

#[derive(Debug)]
pub(super) struct Store {
    side: Side,
    pub(super) config: Arc<dyn StoreConfig>,
    env: Env,
    id: OwnerId,
    session: Mutex<Option<Arc<Session>>>,
    /// Why the last opening failed: the next request returns it at once, without a second wait.
    failed: Mutex<Option<Error>>,
}

#[derive(Debug)]
struct Session {
    open: Open,
    renewer: AbortHandle,
}

/// The participants, and the sessions that take no part.
#[derive(Clone, Debug)]
pub(super) struct Census {
    /// All other participants; `None` is an entry that cannot be read.
    pub(super) members: Vec<(OwnerId, Option<MemberEntry>)>,
    /// Sessions that take no part, as far as the store sees sessions.
    pub(super) foreign_sessions: Option<usize>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.renewer.abort();
    }
}

impl Store {
    pub(super) fn new(side: Side, config: Arc<dyn StoreConfig>, env: &Env) -> Self {
        let env = env.clone().without_token_base();
        let id = env.owner_id();
        Self { side, config, env, id, session: Mutex::new(None), failed: Mutex::new(None) }
    }

    pub(super) async fn begin(&self) -> Result<()> {
        let begun = self.session().await.map(drop);
        *self.failed.lock().await = begun.as_ref().err().cloned();
        begun
    }

    /// Where it is, for people.
    pub(super) fn at(&self) -> String {
        self.config.server().unwrap_or_else(|| format!("the {} store", self.side.word()))
    }

    /// The record, if there is one, also of a move that has ended.
    pub(super) async fn read(&self) -> Result<Option<Read>> {
        let session = self.session().await?;
        self.sign(&*session.open.ledger).await?;
        let entry = self.asked(session.open.ledger.read()).await?;
        entry.as_ref().map(Read::of).transpose().map_err(|error| self.placed(error))
    }

    pub(super) async fn write(&self, expected: Option<u64>, record: &MoveRecord) -> Result<Written> {
        let session = self.session().await?;
        self.asked(session.open.ledger.write(expected, &record.encode())).await
    }

    /// The participants, and the sessions that take no part.
    pub(super) async fn census(&self) -> Result<Census> {
        let session = self.session().await?;
        self.sign(&*session.open.ledger).await?;
        let members = self.asked(session.open.ledger.members()).await?;
        let foreign_sessions = self.asked(session.open.backend.token_base()).await?.sessions;
        let others = members.into_iter().filter(|member| member.id != self.id);
        let members = others.map(|found| (found.id, MemberEntry::decode(&found.value).ok())).collect();
        Ok(Census { members, foreign_sessions })
    }

    /// A lock of a foreign client, if there is one among those that leasehold uses.
    pub(super) async fn held_by_foreign_client(&self) -> Result<Option<LockName>> {
        let session = self.session().await?;
        // Each of its requests is bounded by the store, and there may be many.
        let states = session.open.backend.list("").await.map_err(|error| self.placed(error))?;
        let held = states.into_iter().find(|state| state.holders.iter().any(|holder| holder.foreign));
        Ok(held.map(|state| state.name))
    }

    /// Writes into the record that a foreign client holds `name` in the other store.
    pub(super) async fn note(&self, name: &LockName) -> Result<()> {
        let session = self.session().await?;
        self.asked(note(&*session.open.ledger, &self.env, name)).await
    }

    pub(super) async fn token_base(&self) -> Result<TokenBase> {
        let session = self.session().await?;
        self.asked(session.open.backend.token_base()).await
    }

    pub(super) async fn raise_token_base(&self, at_least: u64) -> Result<()> {
        let session = self.session().await?;
        self.asked(session.open.backend.raise_token_base(at_least)).await
    }

    pub(super) async fn close(&self) -> Result<()> {
        let Some(session) = self.session.lock().await.take() else { return Ok(()) };
        session.renewer.abort();
        let unsigned = self.asked(session.open.ledger.unsign(self.id)).await;
        let closed = self.asked(session.open.backend.close()).await;
        unsigned.and(closed)
    }

    /// The session; opened if there is none yet, and tried again when that failed.
    async fn session(&self) -> Result<Arc<Session>> {
        let mut session = self.session.lock().await;
        if let Some(session) = &*session {
            return Ok(Arc::clone(session));
        }
        if let Some(error) = self.failed.lock().await.take() {
            return Err(error);
        }
        let opened = Arc::new(self.open().await.map_err(|error| self.placed(error))?);
        *session = Some(Arc::clone(&opened));
        Ok(opened)
    }

    async fn open(&self) -> Result<Session> {
        let bound = self.env.timing().connect_timeout;
        let opened = self.env.within(bound, Open::of(&*self.config, self.env.clone())).await;
        let open = opened.unwrap_or_else(|| {
            let message = format!("timed out while opening the store after {bound:?}");
            Err(Error::not_applied(ErrorKind::Unavailable, message))
        });
        // No request was sent.
        let open = open.map_err(|error| error.with_effect(Effect::NotApplied))?;
        let (task, renewer) = abortable(keep(self.env.clone(), open.clone(), self.id));
        self.env.spawn(async {
            let _aborted = task.await;
        });
        Ok(Session { open, renewer })
    }

    async fn sign(&self, ledger: &dyn MoveLedger) -> Result<()> {
        self.asked(ledger.sign(self.id, &entry())).await.map(drop)
    }

    async fn asked<T: Send>(&self, request: impl Future<Output = Result<T>> + Send) -> Result<T> {
        self.env.bounded(request).await.map_err(|error| self.placed(error))
    }

    fn placed(&self, error: Error) -> Error {
        error.with_context("store", self.side.word()).with_context("server", self.at())
    }
}

fn entry() -> Vec<u8> {
    let pid = std::process::id();
    let (label, version) = (format!("leasehold migrate/{pid}"), env!("CARGO_PKG_VERSION").to_owned());
    MemberEntry { kind: Kind::Admin, label, pid, version, ..MemberEntry::default() }.encode()
}

/// Renews the announced leases and the entry. Failed renewals are repeated; the store replaces lost leases.
async fn keep(env: Env, Open { backend, ledger }: Open, id: OwnerId) {
    let mut leases = BTreeSet::new();
    let mut events = backend.events();
    loop {
        match select(events.next(), env.sleep(env.timing().ttl / 3)).await {
            Either::Left((Some(StoreEvent::LeaseOpened(lease)), _)) if lease.scope == LeaseScope::Session => {
                leases.insert(lease.id);
            }
            Either::Left((Some(StoreEvent::LeaseLost { lease, .. }), _)) => _ = leases.remove(&lease),
            Either::Left((Some(_), _)) => {}
            Either::Left((None, _)) => return,
            Either::Right(_) => {
                let due: Vec<_> = leases.iter().copied().collect();
                let renewals = async { Ok(backend.renew(&due).await) };
                let _asked_again = env.bounded(renewals).await;
                let _signed_again = env.bounded(ledger.sign(id, &entry())).await;
            }
        }
    }
}
