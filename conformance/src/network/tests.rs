//! Each fault is what a network does, and the store is clean behind it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use leasehold_core::backend::{
    AcquireRequest, Attempt, Grant, LockBackend, Renewal, StoreConfig, StoreEvent,
};
use leasehold_core::clock::{Clock, TokioClock};
use leasehold_core::memory::{MemoryConfig, MemoryStore};
use leasehold_core::{Effect, Env, Error, ErrorKind, LockName, LostReason, Result, Timing};

use super::{Fault, Network, Operation};
use crate::entry_rule::entry_rule;
use crate::history::{Journal, What};
use crate::store_log::store_log;

/// One session behind a network, on a store that others use too.
struct Rig {
    env: Env,
    network: Network,
    store: MemoryStore,
    backend: Arc<dyn LockBackend>,
    journal: Journal,
}

const TTL: Duration = Duration::from_secs(3);
const BOUND: Duration = Duration::from_secs(1);

impl Rig {
    async fn new() -> Self {
        Self::behind(Network::new(Duration::ZERO)).await
    }

    async fn behind(network: Network) -> Self {
        let (store, clock) = (MemoryConfig::private(), Arc::new(TokioClock::new()));
        let journal = Journal::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let env = Env::new(Timing::for_ttl(TTL)).unwrap().with_clock(clock);
        let logged = store_log(journal.actor("p1"))(Box::new(store.clone()));
        let backend = network.wrap()(logged).open(env.clone()).await.unwrap();
        Self { env, network, store: store.store().clone(), backend, journal }
    }

    fn request(&self) -> AcquireRequest {
        AcquireRequest::new(LockName::new("a").unwrap(), self.env.owner_id(), TTL)
    }

    async fn hold(&self) -> Grant {
        self.backend.acquire(&self.request()).await.unwrap()
    }

    async fn ask(&self) -> Result<Attempt> {
        self.env.bounded(self.backend.try_acquire(&self.request())).await
    }

    async fn renew(&self, grant: &Grant) -> Result<Vec<Renewal>> {
        self.env.bounded(async { Ok(self.backend.renew(&[grant.lease.id]).await) }).await
    }

    async fn release(&self, grant: &Grant) -> Result<()> {
        self.env.bounded(self.backend.release(grant)).await
    }

    /// An acquisition that has been sent and waits.
    async fn wait(&self) -> BoxFuture<'static, Result<Grant>> {
        let (backend, request) = (Arc::clone(&self.backend), self.request());
        let mut waits = async move { backend.acquire(&request).await }.boxed();
        assert!((&mut waits).now_or_never().is_none());
        self.pass(BOUND / 10).await;
        waits
    }

    async fn pass(&self, span: Duration) {
        self.env.sleep(span).await;
    }

    fn did(&self, which: fn(&What) -> bool) -> usize {
        let history = self.journal.history();
        history.events().iter().filter(|event| which(&event.what)).count()
    }
}

fn is_unknown(error: &Error) -> bool {
    *error.kind() == ErrorKind::Unavailable && error.effect() == Effect::Unknown
}

fn asked(what: &What) -> bool {
    matches!(what, What::StoreAsked { .. })
}

fn granted(what: &What) -> bool {
    matches!(what, What::StoreGranted { .. })
}

fn release_asked(what: &What) -> bool {
    matches!(what, What::StoreReleased { .. })
}

/// The store never receives it. An acquisition gets an error after the bound of a request, and no other request gets
/// an answer.
#[tokio::test(start_paused = true)]
async fn a_lost_request_is_not_carried_out() {
    let rig = Rig::new().await;
    for operation in [Operation::Acquire, Operation::TryAcquire] {
        rig.network.next(operation, Fault::LoseRequest);
    }
    let began = rig.env.now();
    assert!(is_unknown(&rig.backend.acquire(&rig.request()).await.unwrap_err()));
    assert_eq!(rig.env.now().since(began), BOUND);
    assert!(is_unknown(&rig.ask().await.unwrap_err()));
    assert_eq!(rig.did(asked), 0);
    assert_eq!(rig.network.injected(), 2);
}

/// A grant whose reply is lost is released, and the end of its lease is reported.
#[tokio::test(start_paused = true)]
async fn an_unheard_grant_is_given_back() {
    let rig = Rig::new().await;
    rig.network.next(Operation::Acquire, Fault::LoseReply);
    rig.network.next(Operation::TryAcquire, Fault::DelayReply(2 * BOUND));
    let mut events = rig.backend.events();
    assert!(is_unknown(&rig.backend.acquire(&rig.request()).await.unwrap_err()));
    assert!(is_unknown(&rig.ask().await.unwrap_err()));
    rig.pass(BOUND).await;
    assert_eq!((rig.did(granted), rig.did(release_asked)), (2, 2));
    assert!(rig.store.is_empty());
    let told = events.next().await.unwrap();
    assert!(matches!(told, StoreEvent::LeaseLost { reason: LostReason::Released, .. }), "{told:?}");
}

/// A grant that has arrived is given back, too, if its caller leaves before looking at it.
#[tokio::test(start_paused = true)]
async fn a_grant_that_nobody_looks_at_is_given_back() {
    let rig = Rig::behind(Network::new(BOUND / 10)).await;
    let (backend, request) = (Arc::clone(&rig.backend), rig.request());
    let mut takes = async move { backend.acquire(&request).await }.boxed();
    assert!((&mut takes).now_or_never().is_none());
    rig.pass(BOUND / 2).await;
    assert_eq!((rig.did(granted), rig.did(release_asked)), (1, 0));
    drop(takes);
    rig.pass(BOUND / 2).await;
    assert!(rig.store.is_empty());
}

/// A caller who gives up does not stop what is on its way; what arrives is abandoned.
#[tokio::test(start_paused = true)]
async fn a_delayed_request_arrives_after_its_caller_has_gone() {
    let rig = Rig::new().await;
    let rival = rig.hold().await;
    rig.network.next(Operation::Acquire, Fault::DelayRequest(BOUND / 2));
    assert!(rig.backend.acquire(&rig.request()).now_or_never().is_none());
    rig.pass(BOUND / 4).await;
    assert_eq!(rig.did(asked), 1);
    rig.pass(BOUND / 2).await;
    assert_eq!(rig.did(asked), 2);
    rig.release(&rival).await.unwrap();
    assert!(rig.store.is_empty());
}

/// An acquisition waits until an earlier one of its name has been cleaned up (B1).
#[tokio::test(start_paused = true)]
async fn the_store_sees_one_entry_per_name() {
    let rig = Rig::new().await;
    rig.network.next(Operation::Acquire, Fault::DelayRequest(3 * BOUND));
    assert!(is_unknown(&rig.backend.acquire(&rig.request()).await.unwrap_err()));
    let began = rig.env.now();
    let grant = rig.hold().await;
    assert_eq!(rig.env.now().since(began), 2 * BOUND);
    assert_eq!(grant.counter, 2);
}

/// Releases and renewals may arrive twice; the first answer counts.
#[tokio::test(start_paused = true)]
async fn a_duplicate_arrives_twice() {
    let rig = Rig::new().await;
    let grant = rig.hold().await;
    for operation in [Operation::Renew, Operation::Release, Operation::Acquire] {
        rig.network.always(operation, Fault::Duplicate);
    }
    let renewed = rig.renew(&grant).await.unwrap();
    assert!(matches!(renewed.as_slice(), [Renewal::Until(_)]), "{renewed:?}");
    rig.release(&grant).await.unwrap();
    assert_eq!(rig.did(release_asked), 2);
    rig.hold().await;
    assert_eq!(rig.did(granted), 2);
}

/// A cut swallows requests and holds back replies in flight.
#[tokio::test(start_paused = true)]
async fn a_cut_holds_everything_back() {
    let rig = Rig::new().await;
    let grant = rig.hold().await;
    let mut waits = rig.wait().await;
    rig.network.cut();
    assert!(is_unknown(&rig.release(&grant).await.unwrap_err()));
    assert!(is_unknown(&rig.renew(&grant).await.unwrap_err()));
    assert!((&mut waits).now_or_never().is_none());
    rig.network.heal();
    rig.release(&grant).await.unwrap();
    assert_eq!(waits.await.unwrap().counter, 2);
}

/// An emitted event arrives in the stream, true or not; a second stream ends.
#[tokio::test(start_paused = true)]
async fn emitted_events_arrive() {
    let rig = Rig::new().await;
    let mut events = rig.backend.events();
    let event = StoreEvent::Warning("a lie".into());
    rig.network.emit(&event);
    assert_eq!(events.next().await, Some(event));
    assert_eq!(rig.backend.events().next().await, None);
}

/// The core's entries are over when the core may count on it, not before.
#[tokio::test(start_paused = true)]
async fn calls_of_the_core_are_written_down() {
    let rig = Rig::new().await;
    let reached = rig.network.wrap()(Box::new(MemoryConfig::private()));
    let config = entry_rule(rig.journal.actor("p2"))(reached);
    let backend = config.open(rig.env.clone()).await.unwrap();
    let began = |what: &What| matches!(what, What::EntryBegan { .. });
    let ended = |what: &What| matches!(what, What::EntryEnded { .. });

    let grant = backend.acquire(&rig.request()).await.unwrap();
    assert_eq!((rig.did(began), rig.did(ended)), (1, 0));
    rig.network.next(Operation::Release, Fault::LoseRequest);
    assert!(rig.env.bounded(backend.release(&grant)).await.is_err());
    assert_eq!(rig.did(ended), 0);
    backend.release(&grant).await.unwrap();
    assert_eq!(rig.did(ended), 1);

    let forgotten = backend.acquire(&rig.request()).await.unwrap();
    rig.network.cut();
    rig.pass(TTL).await;
    assert!(rig.env.bounded(backend.release(&forgotten)).await.is_err());
    assert_eq!(rig.did(ended), 1);
    assert!(rig.env.bounded(backend.try_acquire(&rig.request())).await.is_err());
    assert_eq!((rig.did(began), rig.did(ended)), (3, 3));
}
