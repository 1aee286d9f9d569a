//! Writes down how the core uses a backend, so that B1 can be checked: one acquisition per name, of what fits.
//!
//! An entry is an acquisition and, if that is granted, its grant. It is over when the acquisition
//! ends without a grant or is dropped; when a release is confirmed; when the backend says that the
//! session is lost, or the core gives it up; or when its lease is over, a release was tried, and none is under way.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use leasehold_core::backend::{AcquireRequest, Attempt, Grant, LeaseId, Renewal, StoreEvent};
use leasehold_core::clock::{Deadline, Moment};
use leasehold_core::{ErrorKind, LockName, LostReason, Result};
use parking_lot::Mutex;

use crate::history::{Entry, Recorder, What};
use crate::layer::{Below, Layer, Wrap, per_session};

/// The wrap that records what the core has in a store: [`What::EntryBegan`], [`What::EntryEnded`].
///
/// Belongs between the core and every other wrap; of one recorder, around one session.
pub fn entry_rule(recorder: Recorder) -> Wrap {
    per_session(move || {
        let (recorder, books) = (recorder.clone(), Mutex::default());
        Arc::new(EntryRule { shared: Arc::new(Shared { recorder, books }) })
    })
}

#[derive(Debug)]
struct EntryRule {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
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
    fn began(self: &Arc<Self>, below: &Below, request: &AcquireRequest) -> Call {
        let (name, mode) = (&request.name, request.mode);
        self.settle(name, below.env.now());
        let entry = self.recorder.entry();
        self.recorder.on(name, What::EntryBegan { entry, mode });
        Call { shared: Arc::clone(self), name: name.clone(), entry, granted: false }
    }

    fn ended(&self, name: &LockName, entry: Entry) {
        self.recorder.on(name, What::EntryEnded { entry });
    }

    fn extend(&self, lease: LeaseId, deadline: Deadline, now: Moment, opens: bool) {
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
    fn releases(&self, grant: &Grant, now: Moment) {
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
    fn settle(&self, name: &LockName, now: Moment) {
        let of_name = (name.clone(), 0)..=(name.clone(), u64::MAX);
        let is_over = |granted: &Granted| {
            let expired = |deadline: Deadline| deadline.has_passed(now);
            granted.asking == 0 && granted.releasing_until.is_some_and(expired)
        };
        let mut books = self.books.lock();
        let over = books.grants.range(of_name).filter(|(_, granted)| is_over(granted));
        let over: Vec<_> = over.map(|(key, granted)| (key.clone(), granted.entry)).collect();
        for (key, _) in &over {
            books.grants.remove(key);
        }
        drop(books);
        for (_, entry) in over {
            self.ended(name, entry);
        }
    }

    fn lost(&self, lease: LeaseId) {
        let mut books = self.books.lock();
        let mut over = Vec::new();
        books.grants.retain(|(name, _), granted| {
            let is_over = granted.lease == lease;
            if is_over {
                over.push((name.clone(), granted.entry));
            }
            !is_over
        });
        for (name, entry) in over {
            self.ended(&name, entry);
        }
    }
}

#[async_trait]
impl Layer for EntryRule {
    async fn try_acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Attempt> {
        let call = self.shared.began(below, request);
        let attempt = below.backend.try_acquire(request).await;
        if let Ok(Attempt::Granted(grant)) = &attempt {
            call.granted(below, grant);
        }
        attempt
    }

    async fn acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Grant> {
        let call = self.shared.began(below, request);
        let granted = below.backend.acquire(request).await;
        if let Ok(grant) = &granted {
            call.granted(below, grant);
        }
        granted
    }

    async fn renew(&self, below: &Below, leases: &[LeaseId]) -> Vec<Renewal> {
        let answers = below.backend.renew(leases).await;
        let now = below.env.now();
        for (lease, answer) in leases.iter().zip(&answers) {
            match answer {
                Renewal::Until(deadline) => self.shared.extend(*lease, *deadline, now, false),
                Renewal::Gone(LostReason::SessionLost) => self.shared.lost(*lease),
                Renewal::Gone(_) | Renewal::Unknown(_) => {}
            }
        }
        answers
    }

    async fn release(&self, below: &Below, grant: &Grant) -> Result<()> {
        self.shared.releases(grant, below.env.now());
        let mut pending = PendingRelease { shared: &self.shared, grant, confirmed: false };
        let released = below.backend.release(grant).await;
        pending.confirmed = match &released {
            Ok(()) => true,
            Err(error) => error.lost_reason().is_some() || *error.kind() == ErrorKind::Closed,
        };
        released
    }

    fn end_session(&self, below: &Below, lease: LeaseId) {
        self.shared.lost(lease);
        below.backend.end_session(lease);
    }

    fn events(&self, below: &Below) -> BoxStream<'static, StoreEvent> {
        let (shared, env) = (Arc::clone(&self.shared), below.env.clone());
        let watched = below.backend.events().inspect(move |event| match event {
            StoreEvent::LeaseOpened(lease) => shared.extend(lease.id, lease.deadline, env.now(), true),
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
    fn granted(mut self, below: &Below, grant: &Grant) {
        self.granted = true;
        self.shared.recorder.on(&self.name, What::EntryGranted { entry: self.entry });
        self.shared.extend(grant.lease.id, grant.lease.deadline, below.env.now(), true);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Journal;
    use crate::invariants::one_entry;
    use crate::subject::MemorySubject;
    use crate::world::World;
    use futures_util::FutureExt;

    /// Two acquisitions of one name in one session are a finding; in two sessions they are not.
    #[tokio::test(start_paused = true)]
    async fn a_second_entry_is_found() {
        let world = World::open(Arc::new(MemorySubject::new()), None).await.unwrap();
        let journal = Journal::new(Arc::clone(world.clock()));
        let watched = |actor| world.behind(entry_rule(journal.actor(actor)));
        let one = watched("one").session().await.unwrap();
        let other = watched("other").session().await.unwrap();
        let grant = one.take("a").await.unwrap();
        let mut waiting = other.acquire("a");
        assert!((&mut waiting).now_or_never().is_none());
        assert_eq!(one_entry::check(&journal.history()), []);
        assert!(one.acquire("a").now_or_never().is_none());
        assert_eq!(one_entry::check(&journal.history()).len(), 1);
        one.backend.release(&grant).await.unwrap();
    }
}
