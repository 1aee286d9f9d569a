//! Administrators on two stores in memory, in virtual time, among processes that follow the records by the real
//! `Knowledge` and take no locks.

mod cuts;
mod down;
mod remedies;
mod steps;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{AbortHandle, abortable};
use leasehold_conformance::layer::{Below, Layer, above};
use leasehold_core::backend::ledger::{Entry, MoveLedger, Participant as Listed, Written};
use leasehold_core::backend::stage::{Phase, Side};
use leasehold_core::backend::{Lease, LockBackend, StoreConfig, TokenBase};
use leasehold_core::clock::TokioClock;
use leasehold_core::memory::{MemoryConfig, MemoryStore};
use leasehold_core::{Effect, Env, Error, ErrorKind, LockName, OwnerId, Result, Timing};
use tokio::sync::Notify;

use super::{Admin, Progress, Steps};
use crate::protocol::member::{Holds, MemberEntry};
use crate::protocol::record::{MoveRecord, Stand};
use crate::protocol::records::Read;
use crate::protocol::tokens::Window;
use crate::protocol::view::Knowledge;
use crate::protocol::{Pair, SIDES};

const TTL: Duration = Duration::from_millis(600);

/// The two stores, and what is done to them.
struct Fixture {
    clock: Arc<TokioClock>,
    stores: Pair<Wired>,
}

impl Fixture {
    fn new() -> Self {
        let clock = Arc::new(TokioClock::new());
        let store = |_| Wired::new(MemoryConfig::on(MemoryStore::with_clock(Arc::clone(&clock) as _)));
        Self { stores: Pair { old: store(()), new: store(()) }, clock }
    }

    /// With the records of a move that nothing has been done in.
    async fn begun() -> Self {
        let fixture = Self::new();
        fixture.begin(Pair { old: None, new: None }, 1).await;
        fixture
    }

    /// As the first process does, where these versions are there; `restored` is 0 for the first two of its writes.
    async fn begin(&self, expected: Pair<Option<u64>>, restored: u64) {
        let window = Window::first(TokenBase::new(0, 1, None)).unwrap();
        let stand = Stand { phase: Phase::Old, epoch: 0, window };
        for side in [Side::New, Side::Old] {
            let record =
                MoveRecord { id: 9, side, stand, between: names(), since: 0, restored, end: None, met: None };
            let ledger = self.ledger(side).await;
            let written = ledger.write(expected[side], &record.encode()).await.unwrap();
            assert!(matches!(written, Written::Done(_)));
        }
    }

    fn env(&self) -> Env {
        Env::new(Timing::for_ttl(TTL)).unwrap().with_clock(Arc::clone(&self.clock) as _)
    }

    fn admin(&self) -> Admin {
        self.admin_over(&self.stores)
    }

    fn admin_over(&self, stores: &Pair<Wired>) -> Admin {
        let config = |side: Side| Arc::new(stores[side].clone()) as Arc<dyn StoreConfig>;
        Admin::between(&Pair::each(config), self.env())
    }

    /// A session, whatever is done to the administrators' own; it ends when it is dropped.
    async fn open(&self, side: Side, env: Env) -> Result<Arc<dyn LockBackend>> {
        Wired::new(self.stores[side].inner.clone()).open(env).await
    }

    async fn ledger(&self, side: Side) -> Desk {
        let session = self.moving(side).await;
        Desk { ledger: session.ledger().unwrap(), _session: session }
    }

    /// A session that takes part, whatever the record says.
    async fn moving(&self, side: Side) -> Arc<dyn LockBackend> {
        self.open(side, self.env().without_token_base()).await.unwrap()
    }

    /// A session that takes no part, from before there was a record or past its bar.
    async fn plain(&self, side: Side) -> Arc<dyn LockBackend> {
        self.open(side, self.env()).await.unwrap()
    }

    async fn read(&self, side: Side) -> Option<Read> {
        let entry = self.ledger(side).await.read().await.unwrap()?;
        Some(Read { version: entry.version, record: MoveRecord::decode(&entry.value).unwrap() })
    }

    async fn phases(&self) -> [Option<Phase>; 2] {
        let phase = async |side| self.read(side).await.map(|read| read.record.stand.phase);
        [phase(Side::Old).await, phase(Side::New).await]
    }

    async fn base(&self, side: Side) -> u64 {
        self.moving(side).await.token_base().await.unwrap().base
    }

    /// Long enough for everybody to have looked at the records.
    async fn settled(&self) {
        self.env().sleep(TTL / 5).await;
    }

    /// A process that takes part, until it is dropped.
    async fn process(&self, label: &str) -> Process {
        Process::start(self, label, Arc::default()).await
    }
}

/// A ledger and the session it is of.
struct Desk {
    ledger: Arc<dyn MoveLedger>,
    _session: Arc<dyn LockBackend>,
}

impl std::ops::Deref for Desk {
    type Target = dyn MoveLedger;

    fn deref(&self) -> &Self::Target {
        &*self.ledger
    }
}

/// As stores are called that have no name.
fn names() -> Pair<String> {
    Pair { old: "the old store".to_owned(), new: "the new store".to_owned() }
}

/// No wait for foreign clients, and a long one for everything else.
fn patient() -> Steps {
    Steps::one().wait(TTL * 20).quiet_for(Duration::ZERO)
}

fn to(phase: Phase) -> Steps {
    patient().to(phase)
}

/// Ignores progress.
fn silent() -> impl FnMut(&Progress) + Send {
    |_: &Progress| {}
}

/// A process that follows the records and takes no locks.
struct Process {
    tasks: AbortHandle,
    /// What it is made to say.
    says: Arc<Says>,
}

/// What a process is made to say of itself.
#[derive(Debug, Default)]
struct Says {
    /// Locks that it holds in the old store alone.
    alone: AtomicUsize,
    /// It does not look at records any more.
    is_stopped: AtomicBool,
    /// It does not come into the new store's list.
    lacks_new: AtomicBool,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.tasks.abort();
    }
}

impl Process {
    async fn start(fixture: &Fixture, label: &str, says: Arc<Says>) -> Self {
        let mut sessions = Vec::new();
        for side in SIDES {
            let session = fixture.moving(side).await;
            sessions.push((side, session.ledger().unwrap(), session));
        }
        let env = fixture.env();
        let (label, told) = (label.to_owned(), Arc::clone(&says));
        let first = Arc::new(Notify::new());
        let ready = Arc::clone(&first);
        let (task, tasks) = abortable(async move {
            let id = env.owner_id();
            let mut knowledge = Knowledge::default();
            loop {
                let alone = told.alone.load(Ordering::Relaxed);
                for (side, ledger, _) in &sessions {
                    if *side == Side::New && told.lacks_new.load(Ordering::Relaxed) {
                        continue;
                    }
                    let value = entry(&label, &knowledge, alone).encode();
                    ledger.sign(id, &value).await.unwrap();
                    knowledge.signed(*side);
                    let stopped = told.is_stopped.load(Ordering::Relaxed);
                    if let Some(found) = ledger.read().await.unwrap().filter(|_| !stopped) {
                        let record = MoveRecord::decode(&found.value).unwrap();
                        let read = Read { version: found.version, record };
                        knowledge.learn(*side, read.seen()).expect("no data is lost");
                    }
                }
                for (side, ledger, _) in &sessions {
                    if knowledge.acknowledge(*side, *side == Side::Old && alone > 0) {
                        let value = entry(&label, &knowledge, alone).encode();
                        ledger.sign(id, &value).await.unwrap();
                    }
                }
                ready.notify_one();
                env.sleep(TTL / 30).await;
            }
        });
        #[expect(clippy::disallowed_methods, reason = "a process of a test ends when it is dropped")]
        drop(tokio::spawn(task));
        first.notified().await;
        Self { tasks, says }
    }
}

fn entry(label: &str, knowledge: &Knowledge, alone: usize) -> MemberEntry {
    let acknowledges =
        Pair { old: knowledge.acknowledged(Side::Old), new: knowledge.acknowledged(Side::New) };
    MemberEntry {
        label: label.to_owned(),
        pid: 7,
        acknowledges,
        view: knowledge.view().map(|view| view.phase),
        holds: Holds { old: alone, ..Holds::default() },
        ..MemberEntry::default()
    }
}

/// A store in memory whose administrator's writes can be cut, held up and watched, or that is down.
#[derive(Clone, Debug)]
struct Wired {
    inner: MemoryConfig,
    is_down: Arc<AtomicBool>,
    /// How it fails then.
    fails: Error,
    /// The request of that number fails, counted from now.
    fails_at: Arc<AtomicUsize>,
    /// It is silent when it is opened.
    hangs: bool,
    cut: Option<Arc<Cut>>,
}

/// What befalls the write of that number, counted over both stores.
#[derive(Debug)]
struct Cut {
    left: AtomicUsize,
    fate: Fate,
    /// It has come.
    come: Notify,
    /// A write that is held up goes on.
    goes_on: Notify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is not sent: its sender has died.
    NotSent,
    /// It is carried out: its sender has died.
    NotHeard,
    /// It is carried out, and the answer is lost.
    Unknown,
    /// It is sent later.
    Late,
}

impl Cut {
    fn new(number: usize, fate: Fate) -> Arc<Self> {
        Arc::new(Self { left: AtomicUsize::new(number), fate, come: Notify::new(), goes_on: Notify::new() })
    }

    async fn befalls<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        if self.left.fetch_sub(1, Ordering::Relaxed) != 1 {
            return request.await;
        }
        match self.fate {
            Fate::NotSent => self.ends().await,
            Fate::NotHeard => {
                request.await?;
                self.ends().await
            }
            Fate::Unknown => {
                request.await?;
                self.come.notify_one();
                Err(Error::new(ErrorKind::Unavailable, Effect::Unknown, "the answer was lost"))
            }
            Fate::Late => {
                self.come.notify_one();
                self.goes_on.notified().await;
                request.await
            }
        }
    }

    async fn ends<T>(&self) -> T {
        self.come.notify_one();
        std::future::pending().await
    }
}

impl Wired {
    fn new(inner: MemoryConfig) -> Self {
        Self {
            inner,
            is_down: Arc::default(),
            fails: Self::down(),
            fails_at: Arc::default(),
            hangs: false,
            cut: None,
        }
    }

    fn down() -> Error {
        Error::not_applied(ErrorKind::Unavailable, "it is down")
    }

    fn with(&self, cut: &Arc<Cut>) -> Self {
        Self { cut: Some(Arc::clone(cut)), ..self.clone() }
    }

    fn up(&self) -> Result<()> {
        let fails =
            self.fails_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if fails == Ok(1) || self.is_down.load(Ordering::Relaxed) {
            return Err(self.fails.clone());
        }
        Ok(())
    }

    async fn write<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        self.up()?;
        match &self.cut {
            Some(cut) => cut.befalls(request).await,
            None => request.await,
        }
    }
}

#[async_trait]
impl StoreConfig for Wired {
    fn min_ttl(&self) -> Duration {
        self.inner.min_ttl()
    }

    async fn open(&self, env: Env) -> Result<Arc<dyn LockBackend>> {
        if self.hangs {
            std::future::pending::<()>().await;
        }
        self.up()?;
        let backend = self.inner.open(env.clone()).await?;
        let line = Line { wire: self.clone(), session: Arc::clone(&backend) };
        Ok(above(Below { backend, env }, Arc::new(line)))
    }
}

#[derive(Debug)]
struct Line {
    wire: Wired,
    session: Arc<dyn LockBackend>,
}

impl Drop for Line {
    /// Its owner is gone, and the store has seen that.
    fn drop(&mut self) {
        let _closed = self.session.close().now_or_never();
    }
}

#[derive(Debug)]
struct WiredLedger {
    wire: Wired,
    inner: Arc<dyn MoveLedger>,
}

#[async_trait]
impl MoveLedger for WiredLedger {
    async fn read(&self) -> Result<Option<Entry>> {
        self.wire.up()?;
        self.inner.read().await
    }

    async fn write(&self, expected: Option<u64>, value: &[u8]) -> Result<Written> {
        self.wire.write(self.inner.write(expected, value)).await
    }

    async fn sign(&self, member: OwnerId, value: &[u8]) -> Result<Lease> {
        self.wire.up()?;
        self.inner.sign(member, value).await
    }

    async fn unsign(&self, member: OwnerId) -> Result<()> {
        self.wire.up()?;
        self.inner.unsign(member).await
    }

    async fn members(&self) -> Result<Vec<Listed>> {
        self.wire.up()?;
        self.inner.members().await
    }
}

#[async_trait]
impl Layer for Line {
    async fn token_base(&self, below: &Below) -> Result<TokenBase> {
        self.wire.up()?;
        below.backend.token_base().await
    }

    async fn raise_token_base(&self, below: &Below, at_least: u64) -> Result<()> {
        self.wire.write(below.backend.raise_token_base(at_least)).await
    }

    fn ledger(&self, below: &Below) -> Option<Arc<dyn MoveLedger>> {
        Some(Arc::new(WiredLedger { wire: self.wire.clone(), inner: below.backend.ledger()? }))
    }

    async fn close(&self, below: &Below) -> Result<()> {
        self.wire.up()?;
        below.backend.close().await
    }
}
