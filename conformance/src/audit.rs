//! Watches that the core keeps its side of the contract: one entry per name (B1).
//!
//! Per session and name at most one of {acquisition, grant, unconfirmed release} is alive. An
//! acquisition ends with its future; a grant with its release, or with its deadline.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use lockcore::backend::{AcquireRequest, Attempt, Grant, LeaseId, Renewal};
use lockcore::clock::{Deadline, Moment};
use lockcore::{LockName, Result};
use parking_lot::Mutex;

use crate::layer::{Below, Layer, Wrap, per_session};

/// What the auditors of all sessions found; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    findings: Arc<Mutex<Vec<String>>>,
}

impl Audit {
    /// An audit without findings.
    pub fn new() -> Self {
        Self::default()
    }

    /// The wrap that watches each session.
    pub fn wrap(&self) -> Wrap {
        let findings = Arc::clone(&self.findings);
        per_session(move || Arc::new(Auditor { findings: Arc::clone(&findings), books: Arc::default() }))
    }

    /// The breaches of the contract, if any.
    pub fn findings(&self) -> Vec<String> {
        self.findings.lock().clone()
    }
}

#[derive(Debug)]
struct Auditor {
    findings: Arc<Mutex<Vec<String>>>,
    books: Books,
}

type Books = Arc<Mutex<HashMap<LockName, Entry>>>;

#[derive(Clone, Copy, Debug)]
enum Entry {
    Acquiring,
    Held { counter: u64, deadline: Deadline },
    Releasing { counter: u64 },
}

impl Auditor {
    /// Books an acquisition, which must be the only entry of its name.
    fn enter(&self, below: &Below, name: &LockName, what: &str) -> Acquisition {
        let earlier = self.books.lock().insert(name.clone(), Entry::Acquiring);
        if let Some(earlier) = earlier.filter(|earlier| earlier.is_alive(below.env.now())) {
            self.report(format_args!("{what} of {name:?} beside {earlier:?}"));
        }
        Acquisition { books: Arc::clone(&self.books), name: name.clone(), granted: None }
    }

    fn report(&self, finding: fmt::Arguments<'_>) {
        self.findings.lock().push(finding.to_string());
    }
}

impl Entry {
    fn is_alive(self, now: Moment) -> bool {
        match self {
            Self::Acquiring | Self::Releasing { .. } => true,
            Self::Held { deadline, .. } => !deadline.has_passed(now),
        }
    }
}

/// An acquisition in the books, until its future ends.
struct Acquisition {
    books: Books,
    name: LockName,
    granted: Option<Entry>,
}

impl Acquisition {
    fn granted(&mut self, grant: &Grant) {
        self.granted = Some(Entry::Held { counter: grant.counter, deadline: grant.lease.deadline });
    }
}

impl Drop for Acquisition {
    fn drop(&mut self) {
        let mut books = self.books.lock();
        match self.granted {
            Some(held) => books.insert(self.name.clone(), held),
            None => books.remove(&self.name),
        };
    }
}

#[async_trait]
impl Layer for Auditor {
    async fn try_acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Attempt> {
        let mut entry = self.enter(below, &request.name, "a try");
        let attempt = below.backend.try_acquire(request).await?;
        if let Attempt::Granted(grant) = &attempt {
            entry.granted(grant);
        }
        Ok(attempt)
    }

    async fn acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Grant> {
        let mut entry = self.enter(below, &request.name, "an acquisition");
        let grant = below.backend.acquire(request).await?;
        entry.granted(&grant);
        Ok(grant)
    }

    /// A renewal makes grants live longer; for the books, for ever.
    async fn renew(&self, below: &Below, leases: &[LeaseId]) -> Vec<Renewal> {
        for entry in self.books.lock().values_mut() {
            if let Entry::Held { deadline, .. } = entry {
                *deadline = Deadline::Never;
            }
        }
        below.backend.renew(leases).await
    }

    async fn release(&self, below: &Below, grant: &Grant) -> Result<()> {
        let counter = grant.counter;
        let earlier = self.books.lock().insert(grant.name.clone(), Entry::Releasing { counter });
        match earlier {
            Some(Entry::Held { counter: held, .. } | Entry::Releasing { counter: held })
                if held == counter => {}
            None => {}
            Some(other) => {
                self.report(format_args!("a release of {:?} ({counter}) beside {other:?}", grant.name));
            }
        }
        let outcome = below.backend.release(grant).await;
        let confirmed = outcome.as_ref().map_or_else(|error| error.lost_reason().is_some(), |()| true);
        if confirmed {
            self.books.lock().remove(&grant.name);
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::MemorySubject;
    use crate::world::World;
    use futures_util::FutureExt;

    /// Two acquisitions of one name in one session are a finding; in two sessions they are not.
    #[tokio::test(start_paused = true)]
    async fn a_second_entry_is_found() {
        let audit = Audit::new();
        let world = World::open(Arc::new(MemorySubject::new()), None).await.unwrap().behind(audit.wrap());
        let (one, other) = (world.session().await.unwrap(), world.session().await.unwrap());
        let name = world.name("a").unwrap();
        let grant = one.take(&name).await.unwrap();
        let mut waiting = other.acquire(&name);
        assert!((&mut waiting).now_or_never().is_none());
        assert!(audit.findings().is_empty(), "{:?}", audit.findings());
        assert!(one.acquire(&name).now_or_never().is_none());
        assert_eq!(audit.findings().len(), 1);
        one.backend.release(&grant).await.unwrap();
    }
}
