//! How one lock is got: its file is made, or locked, or waited for, and the grant recorded in it.
//!
//! Whoever finds another file in the place of the one that it has opened begins again, unless it has waited:
//! then its wait is lost, and the core asks again.

use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold_core::backend::{AcquireRequest, Attempt, Grant, StoreEvent};
use leasehold_core::{Error, LostReason, Result};

use super::{HeldFile, Session};
use crate::directory::{Locked, Opened, too_long};
use crate::error;
use crate::keys::Key;
use crate::protocol;
use crate::record::{Ending, Record};
use crate::waiter;

impl Session {
    pub(crate) async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let key = Key::of(&request.name);
        let env = &self.env;
        let give_up_at = env.now() + self.patience();
        loop {
            let file = match self.attempt(request, &key).await? {
                Ok(grant) => return Ok(Attempt::Granted(grant)),
                Err(file) => file,
            };
            match self.directory.live_in(file.file(), &request.name)? {
                Some(record) => return Ok(Attempt::Held { holder: Some(self.holder(record)) }),
                None if give_up_at <= env.now() => return Ok(Attempt::Held { holder: None }),
                // Somebody gives back a lock that nobody of his process wants any more, or is about
                // to record his grant.
                None => {
                    drop(file);
                    env.sleep(PAUSE).await;
                }
            }
        }
    }

    pub(crate) async fn acquire(&self, request: &AcquireRequest) -> Result<Grant> {
        let key = Key::of(&request.name);
        match self.attempt(request, &key).await? {
            Ok(grant) => Ok(grant),
            Err(file) => self.wait(request, &key, file).await,
        }
    }

    /// Acquires the lock; the open file, if another has it locked.
    ///
    /// # Cancel safety
    ///
    /// Nothing but the gate of the floor is locked while it waits, for the floor at most.
    pub(super) async fn attempt(&self, request: &AcquireRequest, key: &Key) -> Result<Result<Grant, Opened>> {
        for _ in 0..TRIES {
            self.open_or_refuse()?;
            let Some(file) = self.directory.open_lock(key)? else {
                match self.make(request, key).await? {
                    Some(grant) => return Ok(Ok(grant)),
                    None => continue,
                }
            };
            match Locked::try_lock(file, &self.directory.lock_path(key))? {
                Ok(locked) => {
                    if let Some(grant) = self.take(request, key, locked)? {
                        return Ok(Ok(grant));
                    }
                }
                Err(file) => {
                    if self.directory.is_at(key, file.inode())? {
                        return Ok(Err(file));
                    }
                }
            }
            self.directory.require_in_place()?;
        }
        let why = "cannot lock the file: it was replaced at every attempt";
        Err(error::refused(why, &self.directory.lock_path(key)))
    }

    /// Waits until `file` can be locked, and takes the lock; `Lost` when another file has taken its place,
    /// by force, by hand or by a sweep.
    ///
    /// A short wait is shown to nobody, and asks for nobody: that would cost as much as the whole of it.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it leaves the line and nothing of it stays; a thread that waits in the kernel gives
    /// the lock back.
    async fn wait(&self, request: &AcquireRequest, key: &Key, file: Opened) -> Result<Grant> {
        let failed = |e| error::of_system(e, "wait for the lock", &self.directory.lock_path(key));
        let mut place = waiter::join(file).map_err(failed)?;
        let (mut shown, mut heard, mut look_in) = (None, None, SHORT);
        let granted = loop {
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return Err(error::closed()),
                turn = place.turn() => break match turn {
                    Some(locked) => self.take(request, key, locked.map_err(failed)?)?,
                    None => None,
                },
                () = self.env.sleep(look_in) => {}
            }
            // The lock of a file that is gone may never come, and is worth nothing.
            if !self.directory.is_at(key, place.inode())? {
                break None;
            }
            if shown.is_none() {
                shown = Some(self.directory.show_waiting(key, self.id)?);
            }
            self.hear(request, &mut heard)?;
            look_in = self.look_every();
        };
        granted.ok_or_else(|| Error::lost(LostReason::Gone))
    }

    /// How long a locked file without a living holder is tried again.
    pub(crate) fn patience(&self) -> Duration {
        PATIENCE.min(self.env.timing().op_timeout / 4)
    }

    /// Makes the lock file of a name that has none.
    async fn make(&self, request: &AcquireRequest, key: &Key) -> Result<Option<Grant>> {
        let record = |floor| Ok(self.record(request, self.after(floor)?));
        let Some((locked, counter)) = self.directory.create(&self.env, key, record).await? else {
            return Ok(None);
        };
        let ending = Some(Ending { counter, seq: protocol::FIRST, durable: true });
        let grant = self.grant(request, key, HeldFile { locked, ending, counter })?;
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
        let mut held = HeldFile { locked, ending: Some(ending), counter };
        self.directory.carry_out(held.locked.file(), &steps, &self.directory.lock_path(key))?;
        held.ending = Some(Ending { durable: true, ..ending });
        // INVARIANT(file.session-2): taking a file away by force needs no lock of it.
        if !self.directory.is_at(key, held.locked.inode())? {
            return Ok(None);
        }
        self.grant(request, key, held).map(Some)
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
            self.events.tell(StoreEvent::Queued { name, holder });
        }
        Ok(())
    }
}

/// How often a file may be replaced under us before something is wrong.
const TRIES: u32 = 1000;
/// Of a wait that is not shown.
const SHORT: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_millis(100);
/// Between two looks at a locked file without a living holder.
pub(crate) const PAUSE: Duration = Duration::from_millis(1);
