//! One manager's session with a directory: its holds, how it acquires them, and its checks.
//!
//! Every call to the system is made in place: each is short, but for the wait for a holder, which is in
//! [`waiter`](crate::waiter). The longest is the sync of a grant's record.
//!
//! # Invariants
//! - **file.session-1** Every hold is in `holds`, as a locked file, from before the grant is returned until it is released,
//!   closed or dropped; then it is unlocked (G4, G8).
//! - **file.session-2** A grant is returned only if the path named the locked inode after the record was on the disk. So a
//!   process that removes a lock file by force sees the last counter that was granted on it (G3).
//! - **file.session-3** Nothing is locked across a wait, except the gate of the floor.

pub(crate) mod acquisition;
pub(crate) mod renewer;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use leasehold_core::backend::{
    AcquireRequest, Events, Grant, Holder, Lease, LeaseId, LeaseScope, StoreEvent,
};
use leasehold_core::clock::Deadline;
use leasehold_core::{Effect, Env, Error, LostReason, Result};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::config::FileConfig;
use crate::directory::{Directory, Locked, Presence, note};
use crate::error;
use crate::keys::Key;
use crate::protocol;
use crate::record::{Ending, FileRecord, SessionId};

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) env: Env,
    pub(crate) directory: Arc<Directory>,
    pub(crate) id: SessionId,
    state: Mutex<SessionState>,
    pub(crate) closing: CancellationToken,
    pub(crate) events: Events,
    /// Rings when something is held.
    bell: Arc<Notify>,
    leases: AtomicU64,
    /// Lock files made since the last sweep.
    made: AtomicUsize,
    keep: usize,
}

#[derive(Debug)]
struct SessionState {
    // Dropped in this order: a hold ends before its session.
    /// Boxed, since a map has room for more than it holds.
    holds: BTreeMap<LeaseId, Box<HeldFile>>,
    /// `None` once closed.
    presence: Option<Presence>,
    /// The last check for requests failed.
    blind: bool,
}

#[derive(Debug)]
struct HeldFile {
    grant: Grant,
    key: Key,
    file: LockedFile,
    /// The core was notified that it is lost.
    told: bool,
}

/// A locked file with a record of this session, whose end is noted in it.
#[derive(Debug)]
struct LockedFile {
    locked: Locked,
    ending: Option<Ending>,
    counter: u64,
}

impl Session {
    pub(crate) fn open(config: &FileConfig, env: Env, events: Events) -> Result<Self> {
        let directory = Arc::new(Directory::open(config, &env)?);
        let presence = directory.begin_session(&env)?;
        let session = Self {
            directory,
            id: presence.id,
            state: Mutex::new(SessionState {
                holds: BTreeMap::new(),
                presence: Some(presence),
                blind: false,
            }),
            closing: CancellationToken::new(),
            events,
            bell: Arc::new(Notify::new()),
            leases: AtomicU64::new(0),
            made: AtomicUsize::new(0),
            keep: config.keep,
            env,
        };
        if session.directory.keys()?.len() > session.keep {
            session.sweep_in_background();
        }
        Ok(session)
    }

    pub(crate) fn open_or_refuse(&self) -> Result<()> {
        if self.closing.is_cancelled() { Err(error::closed()) } else { Ok(()) }
    }

    /// Ends a hold: the kernel has unlocked the file when this returns.
    pub(crate) fn release(&self, grant: &Grant) -> Result<()> {
        let mut state = self.state.lock();
        // Not the lease's deadline, which is the core's to judge.
        let is_ours = state.holds.get(&grant.lease.id).is_some_and(|hold| {
            let ours = &hold.grant;
            (&ours.name, ours.owner, ours.counter) == (&grant.name, grant.owner, grant.counter)
        });
        let hold = if is_ours { state.holds.remove(&grant.lease.id) } else { None };
        drop(state);
        let Some(mut hold) = hold else {
            return Err(Error::lost(LostReason::Gone));
        };
        // If the file or the directory was removed, the hold was lost, also if the release succeeds.
        let replaced = !self.has_its_path(&hold);
        let path = self.directory.lock_path(&hold.key);
        let ended = hold.file.end();
        ended.map_err(|e| error::of_system(e, "unlock the file", &path).with_effect(Effect::Unknown))?;
        if replaced { Err(Error::lost(LostReason::Gone)) } else { Ok(()) }
    }

    /// Whether the lease is that of a hold whose file is still in its place.
    pub(crate) fn is_held(&self, lease: LeaseId) -> bool {
        self.state.lock().holds.get(&lease).is_some_and(|hold| self.has_its_path(hold))
    }

    /// Ends all holds, without waiting.
    pub(crate) fn close(&self) {
        self.closing.cancel();
        let mut state = self.state.lock();
        let (holds, presence) = (std::mem::take(&mut state.holds), state.presence.take());
        drop(state);
        drop(holds);
        drop(presence);
        // They will not be answered.
        for request in self.directory.requests(self.id).unwrap_or_default() {
            self.directory.withdraw(&request);
        }
    }

    pub(crate) fn look_every(&self) -> Duration {
        self.env.timing().op_timeout / 4
    }

    pub(crate) fn holder(&self, record: FileRecord) -> Holder {
        let mut holder = Holder::new(record.label).with_counter(self.told(record.counter));
        holder.since = record.since;
        holder.metadata = record.metadata;
        holder.ttl = Some(record.ttl);
        holder
    }

    /// Whether the path still names the file that is held; also if it cannot be read.
    fn has_its_path(&self, hold: &HeldFile) -> bool {
        self.directory.is_at(&hold.key, hold.file.locked.inode()).unwrap_or(true)
    }

    fn grant(&self, request: &AcquireRequest, key: &Key, file: LockedFile) -> Result<Grant> {
        let id = LeaseId::new(self.leases.fetch_add(1, Ordering::Relaxed) + 1);
        let lease = Lease::new(id, LeaseScope::Entry, request.ttl, Deadline::Never);
        let grant = Grant::new(request.name.clone(), request.owner, lease, self.told(file.counter));
        let hold = Box::new(HeldFile { grant: grant.clone(), key: key.clone(), file, told: false });
        let mut state = self.state.lock();
        // RACE: under the mutex, so that nothing is held after a close.
        if state.presence.is_none() {
            drop(state);
            drop(hold);
            return Err(error::closed());
        }
        state.holds.insert(id, hold);
        drop(state);
        self.bell.notify_one();
        Ok(grant)
    }

    fn sweep_in_background(&self) {
        self.made.store(0, Ordering::Relaxed);
        let directory = Arc::clone(&self.directory);
        let (env, closing, events) = (self.env.clone(), self.closing.clone(), self.events.downgrade());
        self.env.spawn(async move {
            // The core stops listening before it waits for this task.
            let go_on =
                || !closing.is_cancelled() && events.upgrade().is_some_and(|events| events.is_heard());
            if let Err(error) = directory.sweep(&env, go_on).await
                && let Some(events) = events.upgrade()
            {
                events.tell(StoreEvent::Warning(format!("cannot remove idle lock files: {error:#}").into()));
            }
        });
    }

    /// The counter after `last`.
    fn after(&self, last: u64) -> Result<u64> {
        let spent = "the directory has granted its largest token: no further grant is possible";
        let refused = || error::refused(spent, self.directory.path());
        protocol::after(last, self.directory.token_base).ok_or_else(refused)
    }

    /// The counter of a grant: that of the file with the directory's base.
    fn told(&self, counter: u64) -> u64 {
        counter.saturating_add(self.directory.token_base)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

impl LockedFile {
    fn end(&mut self) -> io::Result<()> {
        if let Some(ending) = self.ending.take() {
            note(self.locked.file(), ending);
        }
        self.locked.unlock()
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Closing the file unlocks it if this could not.
        let _ = self.end();
    }
}

#[cfg(test)]
mod tests;
