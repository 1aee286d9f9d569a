//! The common part of a session with one server and one with several: its entries by their leases, and its end.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use leasehold_core::backend::LeaseId;
use leasehold_core::clock::Moment;
use leasehold_core::{Env, OwnerId, Result};
use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::error;

#[derive(Debug)]
pub(crate) struct Life<E> {
    env: Env,
    entries: Mutex<BTreeMap<LeaseId, Arc<E>>>,
    lease_ids: RandomState,
    /// Read at each request: a token takes locks.
    phase: Arc<AtomicU8>,
    /// Nothing new is begun. Cancelled with `closed`, too.
    pub(crate) closing: CancellationToken,
    /// Nothing is sent any more.
    pub(crate) closed: CancellationToken,
    /// Releases in the background.
    pub(crate) leaving: TaskTracker,
}

impl<E: Send + Sync> Life<E> {
    /// That of a session which is open until `closed`.
    pub(crate) fn new(env: Env, closed: CancellationToken) -> Self {
        let (entries, lease_ids, phase) =
            (Mutex::default(), RandomState::new(), Arc::new(AtomicU8::new(OPEN)));
        let (closing, leaving) = (closed.child_token(), TaskTracker::new());
        Self { env, entries, lease_ids, phase, closing, closed, leaving }
    }

    /// The owner's handle of `session`, whose life this is; `open` cancels `closed`.
    pub(crate) fn owned<S>(&self, session: Arc<S>, open: DropGuard) -> Opened<S> {
        Opened { session, phase: Arc::clone(&self.phase), _open: open }
    }

    /// # Errors
    ///
    /// [`ErrorKind::Closed`](leasehold_core::ErrorKind::Closed) once the session is.
    pub(crate) fn open_or_refuse(&self) -> Result<()> {
        if self.is_closing() { Err(error::closed()) } else { Ok(()) }
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.phase.load(Ordering::SeqCst) != OPEN
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.phase.load(Ordering::SeqCst) == CLOSED
    }

    /// Two owner ids share one as unlikely as two random numbers are equal.
    pub(crate) fn lease_of(&self, owner: OwnerId) -> LeaseId {
        LeaseId::new(self.lease_ids.hash_one(owner))
    }

    /// From here on the entry is known.
    pub(crate) fn enter(&self, lease: LeaseId, entry: &Arc<E>) -> Result<()> {
        let mut entries = self.entries.lock();
        // `close` finds the entry here, or has closed before.
        self.open_or_refuse()?;
        entries.insert(lease, Arc::clone(entry));
        Ok(())
    }

    pub(crate) fn entry_of(&self, lease: LeaseId) -> Option<Arc<E>> {
        self.entries.lock().get(&lease).cloned()
    }

    pub(crate) fn entries_of(&self, leases: &[LeaseId]) -> Vec<Option<Arc<E>>> {
        let entries = self.entries.lock();
        leases.iter().map(|lease| entries.get(lease).cloned()).collect()
    }

    pub(crate) fn entries(&self) -> Vec<Arc<E>> {
        self.entries.lock().values().cloned().collect()
    }

    /// Forgets the entry of a lease; returns it.
    pub(crate) fn forget(&self, lease: LeaseId) -> Option<Arc<E>> {
        self.entries.lock().remove(&lease)
    }

    /// Runs `task` in the background, until nothing is sent any more.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let closed = self.closed.clone();
        self.env.spawn(async move {
            closed.run_until_cancelled_owned(task).await;
        });
    }

    /// Ends the session: calls `end` for each entry, and waits for releases until `give_up_at`.
    ///
    /// # Errors
    ///
    /// Unknown when not all of that was confirmed.
    pub(crate) async fn close(&self, give_up_at: Moment, end: impl Fn(Arc<E>) + Send) -> Result<()> {
        self.phase.fetch_max(CLOSING, Ordering::SeqCst);
        self.closing.cancel();
        let entries = std::mem::take(&mut *self.entries.lock());
        entries.into_values().for_each(end);
        self.leaving.close();
        let told = tokio::select! {
            biased;
            () = self.leaving.wait() => Ok(()),
            () = self.env.sleep_until(give_up_at) => {
                let late = "timed out before every release was confirmed; the locks end with their leases";
                Err(error::unanswered(late))
            }
        };
        self.phase.store(CLOSED, Ordering::SeqCst);
        self.closed.cancel();
        told
    }
}

const OPEN: u8 = 0;
const CLOSING: u8 = 1;
const CLOSED: u8 = 2;

/// The owner's handle of a session: with the last one the session ends, and leases end its remaining entries.
#[derive(Debug)]
pub(crate) struct Opened<S> {
    session: Arc<S>,
    phase: Arc<AtomicU8>,
    _open: DropGuard,
}

impl<S> Drop for Opened<S> {
    fn drop(&mut self) {
        self.phase.store(CLOSED, Ordering::SeqCst);
    }
}

impl<S> Deref for Opened<S> {
    type Target = Arc<S>;

    fn deref(&self) -> &Arc<S> {
        &self.session
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::{ErrorKind, Timing};

    use super::*;

    fn owner(byte: u8) -> OwnerId {
        OwnerId::from_random([byte; 16])
    }

    /// A session that its owner drops is closed.
    #[tokio::test]
    async fn session_is_closed_with_its_last_handle() {
        let (env, closed) =
            (Env::new(Timing::for_ttl(Timing::DEFAULT_TTL)).unwrap(), CancellationToken::new());
        let life = Arc::new(Life::<()>::new(env, closed.clone()));
        drop(life.owned(Arc::clone(&life), closed.clone().drop_guard()));
        assert!(life.is_closed() && life.is_closing() && closed.is_cancelled());
    }

    /// `close` ends the entries that it finds; one that was entered after it would never end.
    #[tokio::test]
    async fn enter_after_close_is_refused() {
        let env = Env::new(Timing::for_ttl(std::time::Duration::from_secs(1))).unwrap();
        let life = Life::new(env.clone(), CancellationToken::new());
        life.enter(life.lease_of(owner(1)), &Arc::new("first")).unwrap();
        let ended = Mutex::new(Vec::new());
        life.close(env.now(), |entry| ended.lock().push(*entry)).await.unwrap();
        assert_eq!(*ended.lock(), ["first"]);
        let refused = life.enter(life.lease_of(owner(2)), &Arc::new("second")).unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::Closed);
        assert!(life.entries().is_empty());
    }
}
