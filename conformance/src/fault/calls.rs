//! Writes down how the core uses a backend, so that B1 can be checked: one entry per name.
//!
//! An entry is an acquisition and, if that is granted, its grant. It is over when the acquisition
//! ends without a grant or is dropped; when a release is confirmed; when the backend says that the
//! session is lost, or the core gives it up; or when its lease is over, a release was tried, and none is under way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use lockcore::backend::{
    AcquireRequest, Attempt, Grant, Lease, LeaseId, LockBackend, Renewal, StoreConfig, StoreEvent,
};
use lockcore::clock::{Deadline, Moment};
use lockcore::{Env, ErrorKind, LockName, LostReason, Result};
use parking_lot::Mutex;

use crate::history::{Entry, Recorder, What};
use crate::layer::{Below, Layer, over};

/// Opens a store and records what the core has in it: [`What::EntryBegan`], [`What::EntryEnded`].
///
/// Belongs between the core and every other wrapper.
#[derive(Debug)]
pub struct CallsConfig {
    inner: Box<dyn StoreConfig>,
    recorder: Recorder,
}

impl CallsConfig {
    /// The store of `inner`, used by the core of `recorder`'s actor.
    pub fn new(inner: Box<dyn StoreConfig>, recorder: Recorder) -> Self {
        Self { inner, recorder }
    }
}

#[async_trait]
impl StoreConfig for CallsConfig {
    fn min_ttl(&self) -> Duration {
        self.inner.min_ttl()
    }

    fn server(&self) -> Option<String> {
        self.inner.server()
    }

    async fn open(&self, env: Env) -> Result<Arc<dyn LockBackend>> {
        let backend = self.inner.open(env.clone()).await?;
        let recorder = self.recorder.clone();
        let shared = Arc::new(Shared { env: env.clone(), recorder, books: Mutex::default() });
        Ok(over(Arc::new(Calls { shared }), Below { backend, env }))
    }
}

#[derive(Debug)]
struct Calls {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    env: Env,
    recorder: Recorder,
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    /// Grants that are not over, by name and counter.
    grants: BTreeMap<(LockName, u64), Granted>,
    /// What the core knows of leases.
    leases: BTreeMap<LeaseId, Known>,
}

#[derive(Debug)]
struct Granted {
    entry: Entry,
    lease: LeaseId,
    /// Its deadline when the core began to release it.
    releasing_until: Option<Deadline>,
    /// Releases that are under way.
    asking: u32,
}

#[derive(Debug)]
struct Known {
    deadline: Deadline,
    /// The deadline before the latest change, and when that was.
    before: (Deadline, Moment),
}

impl Shared {
    fn began(self: &Arc<Self>, name: &LockName) -> Call {
        self.settle(name);
        let entry = self.recorder.entry();
        self.recorder.on(name, What::EntryBegan { entry });
        Call { shared: Arc::clone(self), name: name.clone(), entry, granted: false }
    }

    fn ended(&self, name: &LockName, entry: Entry) {
        self.recorder.on(name, What::EntryEnded { entry });
    }

    fn know(&self, lease: &Lease) {
        self.extend(lease.id, lease.deadline, true);
    }

    fn extend(&self, lease: LeaseId, deadline: Deadline, opens: bool) {
        let now = self.env.now();
        let mut books = self.books.lock();
        match books.leases.get_mut(&lease) {
            Some(known) if deadline > known.deadline && !known.deadline.has_passed(now) => {
                *known = Known { deadline, before: (known.deadline, now) };
            }
            None if opens => {
                books.leases.insert(lease, Known { deadline, before: (deadline, now) });
            }
            _ => {}
        }
    }

    /// The core begins to release `grant`: from here on no renewal counts.
    fn releases(&self, grant: &Grant) {
        let now = self.env.now();
        let mut books = self.books.lock();
        let Books { grants, leases } = &mut *books;
        let Some(granted) = grants.get_mut(&(grant.name.clone(), grant.counter)) else {
            return;
        };
        granted.asking += 1;
        if granted.releasing_until.is_none() {
            // RACE: a renewal answered in this instant may have come before or after the core
            // ended the hold; the earlier deadline is the one that cannot accuse it wrongly.
            granted.releasing_until = leases.get(&granted.lease).map(|known| match known.before {
                (before, at) if at == now => before,
                _ => known.deadline,
            });
        }
    }

    fn released(&self, grant: &Grant, confirmed: bool) {
        let key = (grant.name.clone(), grant.counter);
        let mut books = self.books.lock();
        let Some(granted) = books.grants.get_mut(&key) else {
            return;
        };
        granted.asking -= 1;
        if confirmed {
            let entry = granted.entry;
            books.grants.remove(&key);
            self.ended(&grant.name, entry);
        }
    }

    /// Ends the grants of `name` that only time could end, if it has.
    fn settle(&self, name: &LockName) {
        let now = self.env.now();
        let over: Vec<_> = {
            let of_name = (name.clone(), 0)..=(name.clone(), u64::MAX);
            let is_over = |_: &(LockName, u64), granted: &mut Granted| {
                let expired = |deadline: Deadline| deadline.has_passed(now);
                granted.asking == 0 && granted.releasing_until.is_some_and(expired)
            };
            self.books.lock().grants.extract_if(of_name, is_over).collect()
        };
        for (_, granted) in over {
            self.ended(name, granted.entry);
        }
    }

    fn lost(&self, lease: LeaseId) {
        let mut books = self.books.lock();
        let over: Vec<_> = books.grants.extract_if(.., |_, granted| granted.lease == lease).collect();
        for ((name, _), granted) in over {
            self.ended(&name, granted.entry);
        }
    }
}

#[async_trait]
impl Layer for Calls {
    async fn try_acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Attempt> {
        let call = self.shared.began(&request.name);
        let attempt = below.backend.try_acquire(request).await;
        if let Ok(Attempt::Granted(grant)) = &attempt {
            call.granted(grant);
        }
        attempt
    }

    async fn acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Grant> {
        let call = self.shared.began(&request.name);
        let granted = below.backend.acquire(request).await;
        if let Ok(grant) = &granted {
            call.granted(grant);
        }
        granted
    }

    async fn renew(&self, below: &Below, leases: &[LeaseId]) -> Vec<Renewal> {
        let answers = below.backend.renew(leases).await;
        for (lease, answer) in leases.iter().zip(&answers) {
            match answer {
                Renewal::Until(deadline) => self.shared.extend(*lease, *deadline, false),
                Renewal::Gone(LostReason::SessionLost) => self.shared.lost(*lease),
                Renewal::Gone(_) | Renewal::Unknown(_) => {}
            }
        }
        answers
    }

    async fn release(&self, below: &Below, grant: &Grant) -> Result<()> {
        self.shared.releases(grant);
        let mut pending = PendingRelease { shared: &self.shared, grant, confirmed: false };
        let released = below.backend.release(grant).await;
        pending.confirmed = match &released {
            Ok(()) => true,
            Err(error) => error.lost_reason().is_some() || *error.kind() == ErrorKind::Closed,
        };
        released
    }

    fn give_up(&self, below: &Below, lease: LeaseId) {
        self.shared.lost(lease);
        below.backend.give_up(lease);
    }

    fn events(&self, below: &Below) -> BoxStream<'static, StoreEvent> {
        let shared = Arc::clone(&self.shared);
        let watched = below.backend.events().inspect(move |event| match event {
            StoreEvent::LeaseOpened(lease) => shared.know(lease),
            StoreEvent::LeaseLost { lease, reason: LostReason::SessionLost } => shared.lost(*lease),
            _ => {}
        });
        watched.boxed()
    }
}

/// An acquisition; over when dropped without a grant.
struct Call {
    shared: Arc<Shared>,
    name: LockName,
    entry: Entry,
    granted: bool,
}

impl Call {
    fn granted(mut self, grant: &Grant) {
        self.granted = true;
        self.shared.know(&grant.lease);
        let granted = Granted { entry: self.entry, lease: grant.lease.id, releasing_until: None, asking: 0 };
        self.shared.books.lock().grants.insert((grant.name.clone(), grant.counter), granted);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.granted {
            self.shared.ended(&self.name, self.entry);
        }
    }
}

/// A release that was sent; dropped midway it is one without an answer.
struct PendingRelease<'a> {
    shared: &'a Shared,
    grant: &'a Grant,
    confirmed: bool,
}

impl Drop for PendingRelease<'_> {
    fn drop(&mut self) {
        self.shared.released(self.grant, self.confirmed);
    }
}
