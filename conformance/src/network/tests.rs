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
struct Setup {
    env: Env,
    network: Network,
    store: MemoryStore,
    backend: Arc<dyn LockBackend>,
    journal: Journal,
}

const TTL: Duration = Duration::from_secs(3);
const BOUND: Duration = Duration::from_secs(1);

impl Setup {
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
    let setup = Setup::new().await;
    for operation in [Operation::Acquire, Operation::TryAcquire] {
        setup.network.next(operation, Fault::LoseRequest);
    }
    let began = setup.env.now();
    assert!(is_unknown(&setup.backend.acquire(&setup.request()).await.unwrap_err()));
    assert_eq!(setup.env.now().since(began), BOUND);
    assert!(is_unknown(&setup.ask().await.unwrap_err()));
    assert_eq!(setup.did(asked), 0);
    assert_eq!(setup.network.injected(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_unheard_grant_is_given_back() {
    let setup = Setup::new().await;
    setup.network.next(Operation::Acquire, Fault::LoseReply);
    setup.network.next(Operation::TryAcquire, Fault::DelayReply(2 * BOUND));
    let mut events = setup.backend.events();
    assert!(is_unknown(&setup.backend.acquire(&setup.request()).await.unwrap_err()));
    assert!(is_unknown(&setup.ask().await.unwrap_err()));
    setup.pass(BOUND).await;
    assert_eq!((setup.did(granted), setup.did(release_asked)), (2, 2));
    assert!(setup.store.is_empty());
    let told = events.next().await.unwrap();
    assert!(matches!(told, StoreEvent::LeaseLost { reason: LostReason::Released, .. }), "{told:?}");
}

/// A grant that has arrived is given back, too, if its caller leaves before looking at it.
#[tokio::test(start_paused = true)]
async fn a_grant_that_nobody_looks_at_is_given_back() {
    let setup = Setup::behind(Network::new(BOUND / 10)).await;
    let (backend, request) = (Arc::clone(&setup.backend), setup.request());
    let mut takes = async move { backend.acquire(&request).await }.boxed();
    assert!((&mut takes).now_or_never().is_none());
    setup.pass(BOUND / 2).await;
    assert_eq!((setup.did(granted), setup.did(release_asked)), (1, 0));
    drop(takes);
    setup.pass(BOUND / 2).await;
    assert!(setup.store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_delayed_request_arrives_after_its_caller_has_gone() {
    let setup = Setup::new().await;
    let rival = setup.hold().await;
    setup.network.next(Operation::Acquire, Fault::DelayRequest(BOUND / 2));
    assert!(setup.backend.acquire(&setup.request()).now_or_never().is_none());
    setup.pass(BOUND / 4).await;
    assert_eq!(setup.did(asked), 1);
    setup.pass(BOUND / 2).await;
    assert_eq!(setup.did(asked), 2);
    setup.release(&rival).await.unwrap();
    assert!(setup.store.is_empty());
}

/// An acquisition waits until an earlier one of its name has been cleaned up (B1).
#[tokio::test(start_paused = true)]
async fn the_store_sees_one_entry_per_name() {
    let setup = Setup::new().await;
    setup.network.next(Operation::Acquire, Fault::DelayRequest(3 * BOUND));
    assert!(is_unknown(&setup.backend.acquire(&setup.request()).await.unwrap_err()));
    let began = setup.env.now();
    let grant = setup.hold().await;
    assert_eq!(setup.env.now().since(began), 2 * BOUND);
    assert_eq!(grant.counter, 2);
}

/// Releases and renewals may arrive twice; the first answer counts.
#[tokio::test(start_paused = true)]
async fn a_duplicate_arrives_twice() {
    let setup = Setup::new().await;
    let grant = setup.hold().await;
    for operation in [Operation::Renew, Operation::Release, Operation::Acquire] {
        setup.network.always(operation, Fault::Duplicate);
    }
    let renewed = setup.renew(&grant).await.unwrap();
    assert!(matches!(renewed.as_slice(), [Renewal::Until(_)]), "{renewed:?}");
    setup.release(&grant).await.unwrap();
    assert_eq!(setup.did(release_asked), 2);
    setup.hold().await;
    assert_eq!(setup.did(granted), 2);
}

#[tokio::test(start_paused = true)]
async fn a_cut_holds_everything_back() {
    let setup = Setup::new().await;
    let grant = setup.hold().await;
    let mut waits = setup.wait().await;
    setup.network.cut();
    assert!(is_unknown(&setup.release(&grant).await.unwrap_err()));
    assert!(is_unknown(&setup.renew(&grant).await.unwrap_err()));
    assert!((&mut waits).now_or_never().is_none());
    setup.network.heal();
    setup.release(&grant).await.unwrap();
    assert_eq!(waits.await.unwrap().counter, 2);
}

#[tokio::test(start_paused = true)]
async fn emitted_events_arrive() {
    let setup = Setup::new().await;
    let mut events = setup.backend.events();
    let event = StoreEvent::Warning("a lie".into());
    setup.network.emit(&event);
    assert_eq!(events.next().await, Some(event));
    assert_eq!(setup.backend.events().next().await, None);
}

/// The core's entries are over when the core may count on it, not before.
#[tokio::test(start_paused = true)]
async fn calls_of_the_core_are_written_down() {
    let setup = Setup::new().await;
    let reached = setup.network.wrap()(Box::new(MemoryConfig::private()));
    let config = entry_rule(setup.journal.actor("p2"))(reached);
    let backend = config.open(setup.env.clone()).await.unwrap();
    let began = |what: &What| matches!(what, What::EntryBegan { .. });
    let ended = |what: &What| matches!(what, What::EntryEnded { .. });

    let grant = backend.acquire(&setup.request()).await.unwrap();
    assert_eq!((setup.did(began), setup.did(ended)), (1, 0));
    setup.network.next(Operation::Release, Fault::LoseRequest);
    assert!(setup.env.bounded(backend.release(&grant)).await.is_err());
    assert_eq!(setup.did(ended), 0);
    backend.release(&grant).await.unwrap();
    assert_eq!(setup.did(ended), 1);

    let forgotten = backend.acquire(&setup.request()).await.unwrap();
    setup.network.cut();
    setup.pass(TTL).await;
    assert!(setup.env.bounded(backend.release(&forgotten)).await.is_err());
    assert_eq!(setup.did(ended), 1);
    assert!(setup.env.bounded(backend.try_acquire(&setup.request())).await.is_err());
    assert_eq!((setup.did(began), setup.did(ended)), (3, 3));
}
