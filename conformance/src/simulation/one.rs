//! Processes that share one store. In some seeds it breaks A2, and administrators use force.

use leasehold_core::backend::{AcquireRequest, LeaseId, Revoke, StoreConfig, StoreEvent};
use leasehold_core::clock::Moment;
use leasehold_core::{LockName, LostReason, OwnerId};

use super::Deployment;
use super::cluster::Cluster;
use super::scenario::Scenario;
use super::worker::Bound;
use crate::bugs::{Bug, Mutation, bugs};
use crate::history::{Recorder, What};
use crate::invariants::Property;

/// One store.
pub struct OneStore {
    /// Whether the store may end holds too early (against A2), and administrators use force.
    breaks_a2: bool,
    planted: Option<Mutation>,
}

impl std::fmt::Debug for OneStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OneStore").field("breaks_a2", &self.breaks_a2).finish_non_exhaustive()
    }
}

impl Deployment for OneStore {
    type Kind = ();
    type Plant = &'static Bug;

    const NAME: &'static str = "simulation";
    const STORES: usize = 1;
    const FIRST: () = ();

    fn plants() -> Vec<(&'static str, &'static Bug, &'static [Property])> {
        let of_name = |name| bugs().find(|bug| bug.name == name).expect("there is such a bug");
        FINDS.into_iter().map(|(name, shows_as)| (name, of_name(name), shows_as)).collect()
    }

    fn new(scenario: &mut Scenario, planted: Option<&'static Bug>) -> Self {
        let breaks_a2 = scenario.dice.chance(250) && !scenario.fair_weather;
        Self { breaks_a2, planted: planted.map(|bug| (bug.make)()) }
    }

    fn bound(&self) -> Bound {
        Mutation::bound(self.planted.as_ref())
    }

    fn beneath(&self, store: Box<dyn StoreConfig>) -> Box<dyn StoreConfig> {
        match &self.planted {
            Some(Mutation::Store(wrap)) => wrap(store),
            _ => store,
        }
    }

    fn above(&self, _: usize, store: Box<dyn StoreConfig>, _: Recorder) -> Box<dyn StoreConfig> {
        match &self.planted {
            Some(Mutation::Driver(wrap)) => wrap(store),
            _ => store,
        }
    }

    fn config(&self, (): (), mut ways: Vec<Box<dyn StoreConfig>>) -> Box<dyn StoreConfig> {
        ways.remove(0)
    }

    /// Others take the place of processes that have gone.
    async fn act(cluster: &mut Cluster<Self>) -> bool {
        let some_left = (cluster.processes.len() as u64) < cluster.scenario.processes;
        if some_left && cluster.scenario.dice.chance(800) {
            cluster.start(()).await;
        }
        cluster.scenario.fair_weather
    }

    async fn strike(cluster: &mut Cluster<Self>, victim: usize) -> Option<Moment> {
        let name = cluster.scenario.dice.pick(&cluster.scenario.names).clone();
        if cluster.scenario.dice.chance(300) {
            cluster.lie(victim, name).await;
        } else if cluster.deployment.breaks_a2 {
            cluster.break_a2(&name).await;
        }
        None
    }
}

impl Cluster<OneStore> {
    /// A process is notified of a loss that did not happen.
    async fn lie(&mut self, victim: usize, name: LockName) {
        let event = if self.scenario.dice.chance(300) {
            let lease = LeaseId::new(1 + self.scenario.dice.below(200));
            StoreEvent::LeaseLost { lease, reason: LostReason::Expired }
        } else if let Some(counter) = self.holders(&name).await.first().copied() {
            self.recorder.on(&name, What::Overruled { counter });
            StoreEvent::GrantLost { name, counter, reason: LostReason::Gone }
        } else {
            return;
        };
        self.networks(&self.processes[victim].1)[0].emit(&event);
    }

    /// The store does what a store must not do.
    async fn break_a2(&mut self, name: &LockName) {
        let holders = self.holders(name).await;
        let Some(first) = holders.first() else { return };
        let overruled = |counter: u64| self.recorder.on(name, What::Overruled { counter });
        match self.scenario.dice.below(4) {
            0 => {
                holders.iter().copied().for_each(overruled);
                let session = self.stores[0].visit().await;
                session.revoke(name, Revoke::Force).await.expect("a store in memory answers");
                session.close().await.expect("it closes");
            }
            1 => self.wipe().await,
            choice => {
                overruled(*first);
                self.stores[0].memory().evict(name, &self.truth, choice == 2);
            }
        }
    }

    /// The store loses everything but its counter, which is what a `token_base` is for.
    async fn wipe(&self) {
        for name in &self.scenario.names {
            for counter in self.holders(name).await {
                self.recorder.on(name, What::Overruled { counter });
            }
        }
        let name = LockName::new("counter").expect("a word is a name");
        let owner = OwnerId::from_random([0xff; 16]);
        let request = AcquireRequest::new(name, owner, self.scenario.timing.ttl);
        let session = self.stores[0].visit().await;
        let grant = session.acquire(&request).await.expect("the only attempt for it");
        self.stores[0].memory().forget(&self.truth);
        self.stores[0].memory().raise_counter(grant.counter);
        session.close().await.expect("it closes");
    }

    async fn holders(&self, name: &LockName) -> Vec<u64> {
        let session = self.stores[0].visit().await;
        let state = session.inspect(name).await.expect("a store in memory answers");
        session.close().await.expect("it closes");
        state.holders.iter().filter_map(|holder| Some(holder.token?.counter())).collect()
    }
}

/// Bugs that must be found, or silence means nothing; each by any of these.
const FINDS: [(&str, &[Property]); 10] = [
    ("release_by_name", &[Property::Ownership]),
    ("token_per_session", &[Property::Tokens]),
    ("deadline_from_receipt", &[Property::Overlap, Property::Notice]),
    ("no_margin", &[Property::Overlap, Property::Notice]),
    ("grants_what_is_held", &[Property::Overlap, Property::Notice]),
    ("no_clean_up", &[Property::Litter, Property::HandOver]),
    ("last_come_first_served", &[Property::Order]),
    ("readers_pass_writers", &[Property::Overlap, Property::Notice]),
    ("renewal_always_succeeds", &[Property::Overlap, Property::Notice]),
    ("bound_is_forgotten", &[Property::Bound]),
];
