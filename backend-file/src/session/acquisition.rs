//! How one lock is acquired: its file is created, locked or waited for, and the grant recorded in it.
//!
//! If another file has taken the place of the one that was opened, the acquisition begins again. After a wait the place in the
//! line is lost then, and the core repeats it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold_core::backend::{AcquireRequest, Attempt, Grant, StoreEvent};
use leasehold_core::{Error, LostReason, Result};

use super::{LockedFile, Session};
use crate::directory::{Locked, Opened, too_long};
use crate::error;
use crate::keys::Key;
use crate::protocol;
use crate::record::{Ending, FileRecord};
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
                // Another process returns a lock that none of its waiters wants any more, or is about to
                // record its grant.
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

    /// Waits until `file` can be locked, and acquires the lock; `Lost` if another file has taken its place, by force, by
    /// hand or by a sweep. A short wait is not shown to others, and reads no holder: that would cost as much as the wait.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it leaves the line; a thread that waits in the kernel unlocks the file.
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
            // A deleted file may never be unlocked, and its lock means nothing.
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

    pub(crate) fn patience(&self) -> Duration {
        PATIENCE.min(self.env.timing().op_timeout / 4)
    }

    async fn make(&self, request: &AcquireRequest, key: &Key) -> Result<Option<Grant>> {
        let record = |floor| Ok(self.record(request, self.after(floor)?));
        let Some((locked, counter)) = self.directory.create(&self.env, key, record).await? else {
            return Ok(None);
        };
        let ending = Some(Ending { counter, seq: protocol::FIRST, durable: true });
        let grant = self.grant(request, key, LockedFile { locked, ending, counter })?;
        if self.made.fetch_add(1, Ordering::Relaxed) >= self.keep {
            self.sweep_in_background();
        }
        Ok(Some(grant))
    }

    /// Records a grant in a file that we have locked; `None` when another has taken its place (file.directory-1).
    fn take(&self, request: &AcquireRequest, key: &Key, locked: Locked) -> Result<Option<Grant>> {
        // RACE: the file may have been removed between opening and locking it.
        if !self.directory.is_at(key, locked.inode())? {
            return Ok(None);
        }
        let seen = self.directory.see(locked.file(), &request.name)?;
        let counter = self.after(seen.counter())?;
        let steps = protocol::grant(&seen, self.record(request, counter)).ok_or_else(too_long)?;
        let ending = Ending { counter, seq: seen.next_seq(), durable: false };
        let mut held = LockedFile { locked, ending: Some(ending), counter };
        self.directory.carry_out(held.locked.file(), &steps, &self.directory.lock_path(key))?;
        held.ending = Some(Ending { durable: true, ..ending });
        // INVARIANT(file.session-2): a file is removed by force without its lock.
        if !self.directory.is_at(key, held.locked.inode())? {
            return Ok(None);
        }
        self.grant(request, key, held).map(Some)
    }

    fn record(&self, request: &AcquireRequest, counter: u64) -> FileRecord {
        FileRecord {
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

    /// Reports the holder that an acquisition waits for, if it has changed.
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

/// If a file is replaced so often, something is wrong.
const TRIES: u32 = 1000;
/// A shorter wait is not shown to others.
const SHORT: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_millis(100);
/// Between two checks of a locked file without a living holder.
pub(crate) const PAUSE: Duration = Duration::from_millis(1);
