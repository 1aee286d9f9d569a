//! One manager's dealings with a directory: what it holds, how it gets that, and what it hears.
//!
//! Every call to the system is made in place: each is short, waiting for a holder apart, which is
//! [`waiter`](crate::waiter)'s. The longest is the sync of a grant's record.
//!
//! # Invariants
//! - **file.session-1** What is held is in `holds`, as a locked file, from before the grant is returned until it
//!   is released, closed or dropped; then it is unlocked (G4, G8).
//! - **file.session-2** A grant is returned only if the path named the locked inode after the record was on the
//!   disk, so whoever takes a lock file away sees the last counter granted on it (G3).
//! - **file.session-3** Nothing is locked across a wait, the gate of the floor apart.

mod revocation;
mod token_base;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use leasehold_core::backend::{AcquireRequest, Grant, Holder, Lease, LeaseId, LeaseScope, Mode, StoreEvent};
use leasehold_core::clock::Deadline;
use leasehold_core::{Effect, Env, Error, ErrorKind, LockName, LostReason, OwnerId, Result};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::config::FileConfig;
use crate::directory::{Directory, Locked, Opened, Presence, note, too_long};
use crate::error;
use crate::keys::Key;
use crate::protocol;
use crate::record::{Ending, Record, SessionId};
use crate::waiter;

#[derive(Debug)]
pub(crate) struct Session {
    env: Env,
    directory: Arc<Directory>,
    id: SessionId,
    state: Mutex<State>,
    closing: CancellationToken,
    events: mpsc::UnboundedSender<StoreEvent>,
    bell: Arc<Notify>,
    leases: AtomicU64,
    /// Lock files made since the last sweep.
    made: AtomicUsize,
    keep: usize,
}

#[derive(Debug)]
struct State {
    // Dropped in this order: a hold is over before its session.
    holds: BTreeMap<LeaseId, Hold>,
    /// `None` once closed.
    presence: Option<Presence>,
    /// The last patrol could not look.
    blind: bool,
}

/// A grant of ours.
#[derive(Debug)]
struct Hold {
    name: LockName,
    key: Key,
    owner: OwnerId,
    tenure: Tenure,
    told: bool,
}

/// A locked file with a record of ours, whose end is noted in it.
#[derive(Debug)]
struct Tenure {
    locked: Locked,
    ending: Option<Ending>,
    counter: u64,
}

/// What an attempt to take a lock came to.
#[derive(Debug)]
pub(crate) enum Attempted {
    Granted(Grant),
    /// Somebody has the file locked: the holder, if there is one that lives; else somebody who is
    /// about to hold it or to give it back.
    Busy {
        file: Opened,
        holder: Option<Record>,
    },
}

impl Session {
    pub(crate) fn open(
        config: &FileConfig,
        env: Env,
        events: mpsc::UnboundedSender<StoreEvent>,
    ) -> Result<Self> {
        let directory = Arc::new(Directory::open(config, &env)?);
        let presence = directory.begin_session(&env)?;
        let session = Self {
            directory,
            id: presence.id(),
            state: Mutex::new(State { holds: BTreeMap::new(), presence: Some(presence), blind: false }),
            closing: CancellationToken::new(),
            events,
            bell: Arc::new(Notify::new()),
            leases: AtomicU64::new(0),
            made: AtomicUsize::new(0),
            keep: config.kept(),
            env,
        };
        if session.directory.keys()?.len() > session.keep {
            session.sweep_in_background();
        }
        Ok(session)
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
    }

    pub(crate) fn open_or_refuse(&self) -> Result<()> {
        if self.closing.is_cancelled() { Err(error::closed()) } else { Ok(()) }
    }

    /// Takes the lock unless somebody has its file locked.
    ///
    /// # Cancel safety
    ///
    /// Nothing but the gate of the floor is locked while it waits, for the floor at most.
    pub(crate) async fn attempt(&self, request: &AcquireRequest, key: &Key) -> Result<Attempted> {
        let Mode::Exclusive = request.mode else {
            return Err(Error::not_applied(ErrorKind::Unsupported, "this store has exclusive locks only"));
        };
        for _ in 0..TRIES {
            self.open_or_refuse()?;
            let Some(file) = self.directory.open_lock(key)? else {
                match self.make(request, key).await? {
                    Some(grant) => return Ok(Attempted::Granted(grant)),
                    None => continue,
                }
            };
            match Locked::try_lock(file, &self.directory.lock_path(key))? {
                Ok(locked) => {
                    if let Some(grant) = self.take(request, key, locked)? {
                        return Ok(Attempted::Granted(grant));
                    }
                }
                Err(file) => {
                    if self.directory.is_at(key, file.inode())? {
                        let holder = self.directory.live_in(file.file(), &request.name)?;
                        return Ok(Attempted::Busy { file, holder });
                    }
                }
            }
            self.directory.require_in_place()?;
        }
        Err(error::refused("the lock file is replaced again and again", &self.directory.lock_path(key)))
    }

    /// Waits until `file` can be locked, and takes the lock. `None` when it has to be tried again,
    /// because another file has taken its place.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it leaves the line and nothing of it stays; a thread that waits in the kernel gives
    /// the lock back.
    pub(crate) async fn wait(
        &self,
        request: &AcquireRequest,
        key: &Key,
        file: Opened,
    ) -> Result<Option<Grant>> {
        let path = self.directory.lock_path(key);
        let _shown = self.directory.show_waiting(key, self.id)?;
        let mut place = waiter::join(file).map_err(|e| error::of_system(e, "wait for the lock", &path))?;
        let mut heard = None;
        loop {
            self.hear(request, &mut heard)?;
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return Err(error::closed()),
                turn = place.turn() => return match turn {
                    Some(Ok(locked)) => self.take(request, key, locked),
                    Some(Err(e)) => Err(error::of_system(e, "wait for the lock", &path)),
                    None => Ok(None),
                },
                () = self.env.sleep(self.patrol_every()) => {}
            }
            // Taken away by force or by hand: its lock may never come, and is worth nothing.
            if !self.directory.is_at(key, place.inode())? {
                return Ok(None);
            }
        }
    }

    /// Ends a hold: the kernel has let go when this returns.
    pub(crate) fn release(&self, grant: &Grant) -> Result<()> {
        let mut state = self.state.lock();
        let ours = state.holds.get(&grant.lease.id).is_some_and(|hold| {
            hold.name == grant.name
                && hold.owner == grant.owner
                && self.told(hold.tenure.counter) == grant.counter
        });
        let hold = if ours { state.holds.remove(&grant.lease.id) } else { None };
        drop(state);
        let Some(mut hold) = hold else {
            return Err(Error::lost(LostReason::Gone));
        };
        // Was it taken away, or the directory? Then the hold was lost, whatever happens to it now.
        let replaced = !self.has_its_path(&hold);
        let path = self.directory.lock_path(&hold.key);
        let ended = hold.tenure.end();
        ended.map_err(|e| error::of_system(e, "unlock the file", &path).with_effect(Effect::Unknown))?;
        if replaced { Err(Error::lost(LostReason::Gone)) } else { Ok(()) }
    }

    /// Whether the lease is that of a hold whose file is still in its place.
    pub(crate) fn is_held(&self, lease: LeaseId) -> bool {
        self.state.lock().holds.get(&lease).is_some_and(|hold| self.has_its_path(hold))
    }

    /// Ends everything. Nobody is waited for.
    pub(crate) fn close(&self) {
        self.closing.cancel();
        let mut state = self.state.lock();
        let (holds, presence) = (std::mem::take(&mut state.holds), state.presence.take());
        drop(state);
        drop(holds);
        drop(presence);
        // Nobody answers them any more.
        for request in self.directory.requests(self.id).unwrap_or_default() {
            self.directory.withdraw(&request);
        }
    }

    pub(crate) fn holds_anything(&self) -> bool {
        !self.state.lock().holds.is_empty()
    }

    /// Rings when something is held after nothing was.
    pub(crate) fn bell(&self) -> &Arc<Notify> {
        &self.bell
    }

    pub(crate) fn patrol_every(&self) -> Duration {
        self.env.timing().op_timeout / 4
    }

    /// How long a locked file without a living holder is tried again.
    pub(crate) fn patience(&self) -> Duration {
        PATIENCE.min(self.env.timing().op_timeout / 4)
    }

    pub(crate) fn tell(&self, event: StoreEvent) {
        // Nobody listens to a manager that is over.
        let _ = self.events.send(event);
    }

    /// The holder as everybody sees it.
    pub(crate) fn holder(&self, record: Record) -> Holder {
        let mut holder = Holder::new(record.label).with_counter(self.told(record.counter));
        holder.since = record.since;
        holder.metadata = record.metadata;
        holder.ttl = Some(record.ttl);
        holder
    }

    /// Whether the path still names the file that is held. A look that fails takes nothing away.
    fn has_its_path(&self, hold: &Hold) -> bool {
        self.directory.is_at(&hold.key, hold.tenure.locked.inode()).unwrap_or(true)
    }

    /// Makes the lock file of a name that has none.
    async fn make(&self, request: &AcquireRequest, key: &Key) -> Result<Option<Grant>> {
        let record = |floor| Ok(self.record(request, self.after(floor)?));
        let Some((locked, counter)) = self.directory.create(&self.env, key, record).await? else {
            return Ok(None);
        };
        let ending = Some(Ending { counter, seq: protocol::FIRST, durable: true });
        let grant = self.grant(request, key, Tenure { locked, ending, counter })?;
        if self.made.fetch_add(1, Ordering::Relaxed) >= self.keep {
            self.sweep_in_background();
        }
        Ok(Some(grant))
    }

    /// Records a grant in a file that we have locked; `None` when another has taken its place (file.directory-1).
    fn take(&self, request: &AcquireRequest, key: &Key, locked: Locked) -> Result<Option<Grant>> {
        // RACE: the file may have been swept or taken away between opening and locking it.
        if !self.directory.is_at(key, locked.inode())? {
            return Ok(None);
        }
        let seen = self.directory.see(locked.file(), &request.name)?;
        let counter = self.after(seen.counter())?;
        let steps = protocol::grant(&seen, self.record(request, counter)).ok_or_else(too_long)?;
        let ending = Ending { counter, seq: seen.next_seq(), durable: false };
        let mut tenure = Tenure { locked, ending: Some(ending), counter };
        self.directory.carry_out(tenure.locked.file(), &steps, &self.directory.lock_path(key))?;
        tenure.ending = Some(Ending { durable: true, ..ending });
        // INVARIANT(file.session-2): taking a file away by force needs no lock of it.
        if !self.directory.is_at(key, tenure.locked.inode())? {
            return Ok(None);
        }
        self.grant(request, key, tenure).map(Some)
    }

    fn grant(&self, request: &AcquireRequest, key: &Key, tenure: Tenure) -> Result<Grant> {
        let id = LeaseId::new(self.leases.fetch_add(1, Ordering::Relaxed) + 1);
        let lease = Lease::new(id, LeaseScope::Entry, request.ttl, Deadline::Never);
        let grant = Grant::new(request.name.clone(), request.owner, lease, self.told(tenure.counter));
        let (name, owner) = (request.name.clone(), request.owner);
        let hold = Hold { name, key: key.clone(), owner, tenure, told: false };
        let mut state = self.state.lock();
        // RACE: under the mutex, so that nothing is held once everything was let go.
        if state.presence.is_none() {
            drop(state);
            drop(hold);
            return Err(error::closed());
        }
        state.holds.insert(id, hold);
        let first = state.holds.len() == 1;
        drop(state);
        if first {
            self.bell.notify_one();
        }
        Ok(grant)
    }

    fn record(&self, request: &AcquireRequest, counter: u64) -> Record {
        Record {
            name: request.name.clone(),
            counter,
            session: self.id,
            owner: request.owner,
            ttl: request.ttl,
            since: Some(self.env.wall_time()),
            label: request.label.as_ref().to_owned(),
            metadata: request.metadata.as_deref().map(str::to_owned),
        }
    }

    /// Says whom an acquisition waits for, when that has changed.
    fn hear(&self, request: &AcquireRequest, heard: &mut Option<u64>) -> Result<()> {
        if let Some(record) = self.directory.live(&request.name)?
            && heard.replace(record.counter) != Some(record.counter)
        {
            let (name, holder) = (request.name.clone(), self.holder(record));
            self.tell(StoreEvent::Queued { name, holder });
        }
        Ok(())
    }

    fn sweep_in_background(&self) {
        self.made.store(0, Ordering::Relaxed);
        let directory = Arc::clone(&self.directory);
        let (env, closing, events) = (self.env.clone(), self.closing.clone(), self.events.downgrade());
        self.env.spawn(async move {
            // The core stops listening before it waits for this task.
            let go_on =
                || !closing.is_cancelled() && events.upgrade().is_some_and(|events| !events.is_closed());
            if let Err(error) = directory.sweep(&env, go_on).await
                && let Some(events) = events.upgrade()
            {
                let _ = events
                    .send(StoreEvent::Warning(format!("idle lock files were not removed: {error:#}").into()));
            }
        });
    }

    /// The counter after `last`.
    fn after(&self, last: u64) -> Result<u64> {
        protocol::after(last, self.directory.token_base()).ok_or_else(|| {
            error::refused("the directory has given out its last token", self.directory.path())
        })
    }

    /// A counter of a file as it is told, with the directory's base.
    fn told(&self, counter: u64) -> u64 {
        counter.saturating_add(self.directory.token_base())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

impl Tenure {
    fn end(&mut self) -> io::Result<()> {
        if let Some(ending) = self.ending.take() {
            note(self.locked.file(), ending);
        }
        self.locked.unlock()
    }
}

impl Drop for Tenure {
    fn drop(&mut self) {
        // Closing the file unlocks what this could not.
        let _ = self.end();
    }
}

/// How often a file may be replaced under us before something is wrong.
const TRIES: u32 = 1000;
const PATIENCE: Duration = Duration::from_millis(100);
/// Between two looks at a locked file without a living holder.
pub(crate) const PAUSE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests;
