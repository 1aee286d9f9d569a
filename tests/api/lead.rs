//! A leader and its successors, through what ends a term.

use std::future::{Future, pending};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use futures_util::StreamExt;
use leasehold::clock::{Clock, TokioClock};
use leasehold::memory::MemoryConfig;
use leasehold::{Candidate, ErrorKind, FencingToken, LockManager, Revocation, Revoke, Timing};
use leasehold_conformance::Network;
use testbed::{Beside, pass, within};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

const TTL: Duration = Duration::from_secs(15);
/// A new leader after a crash (G6), and a pause between two campaigns.
const IN_TIME: Duration = Duration::from_secs(15 + 1 + 2);

/// The processes of one election, each with a network of its own.
struct Election {
    store: MemoryConfig,
    clock: TokioClock,
    leading: Arc<AtomicUsize>,
    terms: mpsc::UnboundedSender<(&'static str, FencingToken)>,
    begun: mpsc::UnboundedReceiver<(&'static str, FencingToken)>,
    last: Option<FencingToken>,
}

/// Leads until it is dropped.
struct Term(Arc<AtomicUsize>);

impl Term {
    fn begin(leading: &Arc<AtomicUsize>) -> Self {
        assert_eq!(leading.fetch_add(1, Relaxed), 0, "two lead at one time");
        Self(Arc::clone(leading))
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Election {
    fn new() -> Self {
        let (terms, begun) = mpsc::unbounded_channel();
        let (store, clock) = (MemoryConfig::private(), TokioClock::new());
        Self { store, clock, leading: Arc::default(), terms, begun, last: None }
    }

    async fn process(&self) -> (LockManager, Network) {
        let network = Network::new(Duration::from_millis(1));
        let store = network.wrap()(Box::new(self.store.clone()));
        let builder = LockManager::builder(store).ttl(TTL).clock(Arc::new(self.clock));
        (builder.build().await.expect("memory opens"), network)
    }

    /// A candidate whose work never ends by itself.
    fn campaign(&self, locks: &LockManager, name: &'static str) -> Beside<leasehold::Result<Option<()>>> {
        let (candidate, leading, terms) =
            (candidate(locks, name), Arc::clone(&self.leading), self.terms.clone());
        Beside::start(async move {
            let work = move |leadership: leasehold::HeldRef| {
                let (term, terms) = (Term::begin(&leading), terms.clone());
                async move {
                    terms.send((name, leadership.token())).expect("the test goes on");
                    pending::<()>().await;
                    drop(term);
                }
            };
            candidate.run(work).await
        })
    }

    /// The next term begins, of `name`, with a larger token.
    #[track_caller]
    fn follows(&mut self, name: &'static str) -> impl Future<Output = ()> {
        within(IN_TIME, format!("{name} leads"), async move {
            let (next, token) = self.begun.recv().await.expect("the test goes on");
            assert_eq!(next, name);
            assert!(self.last < Some(token));
            self.last = Some(token);
        })
    }
}

fn candidate(locks: &LockManager, name: &str) -> Candidate {
    locks.lead("leader").expect("a valid name").metadata(name)
}

/// A store that is away for three ttls ends the term in time; the same candidates stand again when it is back, whether
/// they led, waited, or had just begun.
#[tokio::test(start_paused = true)]
async fn candidates_outlast_an_outage_of_the_store() {
    let mut election = Election::new();
    let (one, cut_one) = election.process().await;
    let (two, cut_two) = election.process().await;
    let (late, cut_late) = election.process().await;
    let first = election.campaign(&one, "one");
    election.follows("one").await;
    let second = election.campaign(&two, "two");
    pass(TTL).await;
    let all = [cut_one, cut_two, cut_late];
    all.iter().for_each(Network::cut);
    let third = election.campaign(&late, "late");
    pass(TTL).await;
    assert_eq!(election.leading.load(Relaxed), 0, "it leads without a lease");
    pass(2 * TTL).await;
    assert!(!first.is_finished() && !second.is_finished() && !third.is_finished());
    all.iter().for_each(Network::heal);
    let (_, token) = within(IN_TIME, "a new leader", election.begun.recv()).await.unwrap();
    assert!(election.last < Some(token));
}

/// A leader that is cut off alone, one whose process stands still, one that is revoked, and one that is shut down.
#[tokio::test(start_paused = true)]
async fn leadership_passes_on_after_each_end_of_a_term() {
    let mut election = Election::new();
    let (one, cut_one) = election.process().await;
    let (two, _) = election.process().await;
    let first = election.campaign(&one, "one");
    election.follows("one").await;
    let second = election.campaign(&two, "two");
    let mut leaders = candidate(&two, "two").changes();
    let shown = leaders.next().await.unwrap().unwrap();
    assert_eq!(shown.holder().and_then(|leader| leader.metadata.as_deref()), Some("one"));
    pass(TTL).await;
    cut_one.cut();
    election.follows("two").await;
    cut_one.heal();
    // It has to queue again.
    pass(TTL).await;
    assert_eq!(
        two.revoke("leader", Revoke::Ask { grace: Duration::ZERO }).await.unwrap(),
        Revocation::Released
    );
    election.follows("one").await;
    pass(TTL).await;
    assert_eq!(one.shutdown().await.map_err(|error| error.to_string()), Ok(()));
    election.follows("two").await;
    assert_eq!(first.await.unwrap(), None, "a campaign ends with a shutdown");
    // In the middle of a pause, too.
    drop(second);
    two.shutdown().await.unwrap();
    assert_eq!(candidate(&two, "two").run(async |_| ()).await.unwrap(), None);
}

/// A panic of the work is the caller's, and the next candidate leads at once.
#[tokio::test(start_paused = true)]
async fn panic_of_the_leader_passes_leadership_on() {
    let mut election = Election::new();
    let (one, _) = election.process().await;
    let (two, _) = election.process().await;
    let (began, mut died) = (election.clock.now(), JoinSet::new());
    let panics = candidate(&one, "one");
    died.spawn(async move { panics.run(async |_| -> () { panic!("the work fails") }).await });
    let _second = election.campaign(&two, "two");
    assert!(died.join_next().await.unwrap().unwrap_err().is_panic());
    election.follows("two").await;
    assert!(election.clock.now().since(began) < Timing::DEFAULT_OP_TIMEOUT);
}

/// The result of work that ends while it leads; errors that no wait mends.
#[tokio::test]
async fn campaign_ends_with_its_work_or_an_error() {
    let locks = leasehold::connect("memory://").await.unwrap();
    let lead = locks.lead("leader").unwrap();
    assert_eq!(lead.run(async |leadership| leadership.name().to_string()).await.unwrap().unwrap(), "leader");
    let refused = lead.ttl(Duration::ZERO).run(async |_| ()).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::InvalidOption);
    assert_eq!(*locks.lead("").unwrap_err().kind(), ErrorKind::InvalidName);
}
