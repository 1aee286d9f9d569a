//! The counter above which new lock files begin, and how a lock file is removed from its holder.
//!
//! A process that creates a lock file reads the floor under its shared lock, and keeps that lock until the file is visible. A
//! process that raises the floor, or removes a lock file by force, has the exclusive lock. Both are short: no process waits for
//! anything while it has the lock.
//!
//! Neither side starves the other: each first locks the *gate* in the same way, and keeps it until it has the floor. So no
//! process gets the floor before one that waits to raise it, and a raise does not overtake one that waits for the end of the
//! raise before. The gate only orders, and excludes no process: a gate that cannot be opened, created or locked is skipped at
//! once. After half of its patience every process skips the gate and unlocks it, since a process may be stopped there.
//!
//! Removing by force is three steps, so that a counter survives a crash in between (file.directory-3): the file is set
//! aside, its counter goes into the floor, it is removed. A process that creates a new file of that name finds the one that
//! was set aside, and does the remaining steps first.

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// To stay above it.
    Read,
    /// To raise it.
    Raise,
}

#[derive(Debug)]
pub(crate) struct FloorLock {
    file: Locked,
    newest: Stamped<Floor>,
}

#[derive(Debug)]
enum Gate {
    /// Others have it locked.
    Shut,
    /// Locked by us, or skipped.
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
    /// Creates the floor of a new directory, or reads it.
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

    /// Removes the lock file of `key` from its holder: the next one locks another inode.
    pub(crate) fn take_away(&self, key: &Key, floor: &mut FloorLock) -> Result<()> {
        self.finish_taking_away(key, floor)?;
        match self.folder.rename(&key.lock_file(), &self.parts.out, key.as_str()) {
            Ok(()) => self.finish_taking_away(key, floor),
            Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(error::of_system(e.into(), "move the lock file away", &self.lock_path(key))),
        }
    }

    /// Whether the lock file of `key` was set aside, and the remaining steps are missing.
    pub(super) fn is_set_aside(&self, key: &Key) -> Result<bool> {
        Ok(self.parts.out.inode_of(key.as_str())?.is_some())
    }

    /// Does the remaining steps for a lock file that was set aside. There is no later grant on it (file.directory-1), so its
    /// counter is the last.
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
            // A foreign file, a full disk: the error comes again when the floor is locked.
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

    /// A directory with lock files and no floor has lost the counters of the removed ones.
    fn refuse_without_floor(&self) -> Result<()> {
        for key in self.keys()? {
            // RACE: the floor was created before the lock file.
            if self.newest(&key)?.is_some() && self.parts.own.inode_of(FLOOR)?.is_none() {
                let message = "the directory has lock files but no floor: the floor was removed, so the \
                     counters of deleted lock files are lost; see docs/src/file-operations.md";
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
