//! Clients that contend for one lock while its servers change.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::StoreConfig;
use leasehold_core::clock::Moment;
use leasehold_core::{FencingToken, LockManager};
use parking_lot::Mutex;

use crate::fixture::{BOUND, Beside, NAME, eventually, now, open_for, pass};

/// A grant, and an interval in which it was held.
type Held = (FencingToken, Moment, Moment);

/// Four clients, until it ends.
pub(crate) struct Contest {
    grants: Arc<Mutex<Vec<Held>>>,
    _clients: Vec<Beside<()>>,
}

impl Contest {
    /// The lock is granted.
    pub(crate) async fn start(config: impl StoreConfig + Clone, ttl: Duration) -> Self {
        let (grants, mut clients) = (Arc::<Mutex<Vec<Held>>>::default(), Vec::new());
        for _ in 0..4 {
            let (locks, grants) = (open_for(config.clone(), ttl).await, Arc::clone(&grants));
            clients.push(Beside::start(async move { contend(&locks, &grants).await }));
        }
        let contest = Self { grants, _clients: clients };
        contest.goes_on().await;
        contest
    }

    /// It is granted some more times.
    pub(crate) async fn goes_on(&self) {
        let so_far = self.grants.lock().len();
        eventually("locks are granted", async || self.grants.lock().len() > so_far + 10).await;
    }

    /// No two were held at once, and tokens grew.
    pub(crate) fn assert_one_by_one(self) {
        let mut grants = std::mem::take(&mut *self.grants.lock());
        grants.sort_by_key(|(_, from, _)| *from);
        for pair in grants.windows(2) {
            let [(before, _, until), (token, from, _)] = pair else { unreachable!() };
            assert!(from >= until && token > before, "{before:?} until {until:?}, {token:?} from {from:?}");
        }
    }
}

async fn contend(locks: &LockManager, grants: &Mutex<Vec<Held>>) {
    loop {
        let Ok(guard) = locks.lock(NAME).unwrap().wait(BOUND).acquire().await else { continue };
        let from = now();
        pass(Duration::from_millis(5)).await;
        let until = now();
        if guard.ensure_held().is_ok() {
            grants.lock().push((guard.token(), from, until));
        }
        // It may have been lost.
        let _ = guard.release().await;
    }
}
