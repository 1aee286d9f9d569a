//! The counter above which new lock files begin, and how a lock file is taken from its holder.
//!
//! Whoever makes a lock file reads the floor under its shared lock and keeps that until the file is
//! visible; whoever raises it, or takes a lock file away by force, has the exclusive lock. Both are
//! short: nobody waits for anything while having it.
//!
//! Neither side starves the other: whoever wants the floor first locks the *gate* in the same way, and
//! keeps that until he has the floor. So who is to raise it lets nobody in before him, and who waits
//! for the end of a raise is not overtaken by the next one. The gate is an aid and excludes nobody from
//! anything: one that cannot be opened, made or locked is passed by at once. After half of one's patience
//! everybody passes it by and leaves it, since a process may be stopped there.
//!
//! Taking away is three steps, so that a counter survives the death of whoever does it (file.directory-3): the
//! file is set aside, its counter goes into the floor, it is removed. A file set aside is found by
//! whoever makes a new one of that name, and the rest is done first.

use std::path::Path;
use std::time::Duration;

use leasehold_core::{Env, Error, ErrorKind, Result};
use rustix::io::Errno;

use super::traces::TRIES;
use super::{Directory, Locked, Opened, read, see};
use crate::error;
use crate::keys::Key;
use crate::protocol;
use crate::record::{Floor, Stamped, newest};

/// What the floor is locked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// To stay above it.
    Read,
    /// To raise it.
    Raise,
}

/// The floor, locked.
#[derive(Debug)]
pub(crate) struct FloorLock {
    file: Locked,
    newest: Stamped<Floor>,
}

/// What stands before the floor.
#[derive(Debug)]
enum Gate {
    /// Others have it locked.
    Shut,
    /// Locked by us, or passed by.
    Open { _locked: Option<Locked> },
}

impl Access {
    fn try_lock(self, opened: Opened, path: &Path) -> Result<Option<Locked>> {
        match self {
            Self::Read => opened.try_share(path),
            Self::Raise => Locked::try_lock(opened, path).map(Result::ok),
        }
    }
}

impl FloorLock {
    pub(crate) fn counter(&self) -> u64 {
        self.newest.value.counter
    }
}

impl Directory {
    /// Makes the floor of a new directory, or looks at it.
    pub(super) fn first_floor(&self, env: &Env) -> Result<Floor> {
        let own = &self.parts.own;
        for _ in 0..TRIES {
            if let Some(floor) = self.look_at_floor()? {
                return Ok(floor);
            }
            self.refuse_without_floor()?;
            drop(self.bear(env, Floor::default(), own, FLOOR)?);
        }
        Err(gone(&own.at(FLOOR)))
    }

    /// The floor, read without its lock; `None` when there is none.
    pub(crate) fn look_at_floor(&self) -> Result<Option<Floor>> {
        let own = &self.parts.own;
        let newest = |opened: Opened| read(opened.file(), &own.at(FLOOR), newest::<Floor>);
        Ok(own.read(FLOOR)?.map(newest).transpose()?.map(|newest| newest.value))
    }

    /// Locks the floor, within the bound of a request.
    ///
    /// # Cancel safety
    ///
    /// Nothing is locked but the gate while it waits.
    pub(crate) async fn floor(&self, env: &Env, access: Access) -> Result<FloorLock> {
        let patience = env.timing().op_timeout / 2;
        let begun = env.now();
        let mut gate = Gate::Shut;
        loop {
            if begun + patience / 2 <= env.now() {
                gate = Gate::Open { _locked: None };
            } else if let Gate::Shut = gate {
                gate = self.try_gate(access);
            }
            if matches!(gate, Gate::Open { .. })
                && let Some(floor) = self.try_floor(access)?
            {
                return Ok(floor);
            }
            if begun + patience <= env.now() {
                let message = "timed out while locking the directory's floor: a stopped process holds it";
                let error = Error::not_applied(ErrorKind::Unavailable, message);
                return Err(error.with_context("path", self.parts.own.at(FLOOR).display()));
            }
            env.sleep(PAUSE).await;
        }
    }

    /// Makes the floor's counter at least `counter`, durably.
    pub(crate) fn fold(&self, floor: &mut FloorLock, counter: u64) -> Result<()> {
        self.raise(floor, Floor { counter, ..Floor::default() })
    }

    /// Makes each number of the floor at least that of `least`, durably.
    pub(crate) fn raise(&self, floor: &mut FloorLock, least: Floor) -> Result<()> {
        let path = self.parts.own.at(FLOOR);
        let raise = protocol::raise(&floor.newest, least).ok_or_else(super::too_long)?;
        self.carry_out(floor.file.file(), &raise.0, &path)?;
        floor.newest = raise.1;
        Ok(())
    }

    /// Takes the lock file of `key` from whoever holds it: the next one locks another inode.
    pub(crate) fn take_away(&self, key: &Key, floor: &mut FloorLock) -> Result<()> {
        self.finish_taking_away(key, floor)?;
        match self.folder.rename(&key.lock_file(), &self.parts.out, key.as_str()) {
            Ok(()) => self.finish_taking_away(key, floor),
            Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(error::of_system(e.into(), "move the lock file away", &self.lock_path(key))),
        }
    }

    /// Whether the lock file of `key` was set aside by somebody who did not finish.
    pub(super) fn is_set_aside(&self, key: &Key) -> Result<bool> {
        Ok(self.parts.out.inode_of(key.as_str())?.is_some())
    }

    /// Does what is left to do once a lock file is set aside. Nobody gets a grant on it any more
    /// (file.directory-1), so its counter is the last.
    pub(super) fn finish_taking_away(&self, key: &Key, floor: &mut FloorLock) -> Result<()> {
        let out = &self.parts.out;
        let Some(opened) = out.read(key.as_str())? else {
            return Ok(());
        };
        let counter = see(opened.file(), &out.at(key.as_str()))?.record().counter;
        self.fold(floor, counter)?;
        out.remove(key.as_str())
    }

    fn try_gate(&self, access: Access) -> Gate {
        let own = &self.parts.own;
        let try_lock = || {
            let opened = match own.write(GATE)? {
                Some(opened) => Some(opened),
                None => own.make(GATE, self.mode)?,
            };
            opened.map_or(Ok(None), |opened| access.try_lock(opened, &own.at(GATE)))
        };
        match try_lock() {
            Ok(Some(locked)) => Gate::Open { _locked: Some(locked) },
            Ok(None) => Gate::Shut,
            // Another's file, a full disk: whatever it is, those who lock the floor are told of it there.
            Err(_) => Gate::Open { _locked: None },
        }
    }

    fn try_floor(&self, access: Access) -> Result<Option<FloorLock>> {
        let path = self.parts.own.at(FLOOR);
        let opened = self.parts.own.write(FLOOR)?.ok_or_else(|| gone(&path))?;
        let Some(file) = access.try_lock(opened, &path)? else { return Ok(None) };
        let newest = read(file.file(), &path, newest)?;
        Ok(Some(FloorLock { file, newest }))
    }

    /// A directory with lock files and no floor has lost the counters of those that were removed.
    fn refuse_without_floor(&self) -> Result<()> {
        for key in self.keys()? {
            // RACE: whoever made the lock file has made the floor before.
            if self.newest(&key)?.is_some() && self.parts.own.inode_of(FLOOR)?.is_none() {
                let message = "the directory has lock files but no floor: the floor was removed, so the \
                     counters of deleted lock files are lost; see docs/file.md";
                return Err(error::refused(message, &self.parts.own.at(FLOOR)));
            }
        }
        Ok(())
    }
}

fn gone(path: &Path) -> Error {
    error::of_system(Errno::NOENT.into(), "open the floor", path)
}

const FLOOR: &str = "floor";
const GATE: &str = "gate";
const PAUSE: Duration = Duration::from_millis(2);
