//! The counter above which new lock files begin, and how a lock file is taken from its holder.
//!
//! Whoever makes a lock file reads the floor under its shared lock and keeps that until the file is
//! visible; whoever raises it, or takes a lock file away by force, has the exclusive lock. Both are
//! short: nobody waits for a lock while having it.
//!
//! Taking away is three steps, so that a counter survives the death of whoever does it (D3): the
//! file is set aside, its counter goes into the floor, it is removed. A file set aside is found by
//! whoever makes a new one of that name, and the rest is done first.

use std::fs::{self, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockcore::{Env, Error, ErrorKind, Result};
use rustix::io::Errno;

use super::traces::TRIES;
use super::{Directory, Locked, OUT, inode_at, open, read, remove, see};
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

impl FloorLock {
    pub(crate) fn counter(&self) -> u64 {
        self.newest.value.counter
    }

    pub(crate) fn value(&self) -> Floor {
        self.newest.value
    }
}

impl Directory {
    /// Makes the floor of a new directory, or looks at it.
    pub(super) fn first_floor(&self, env: &Env) -> Result<Floor> {
        let path = self.own(FLOOR);
        for _ in 0..TRIES {
            if let Some(opened) = open(OpenOptions::new().read(true), &path)? {
                return Ok(read(opened.file(), &path, newest::<Floor>)?.value);
            }
            self.refuse_without_floor()?;
            drop(self.bear(env, Floor::default(), &path)?);
        }
        Err(gone(&path))
    }

    /// Locks the floor, within the bound of a request.
    ///
    /// # Cancel safety
    ///
    /// Nothing is locked while it waits.
    pub(crate) async fn floor(&self, env: &Env, access: Access) -> Result<FloorLock> {
        let give_up_at = env.now() + env.timing().op_timeout / 2;
        loop {
            if let Some(floor) = self.try_floor(access)? {
                return Ok(floor);
            }
            if give_up_at <= env.now() {
                let message = "another process has the directory's floor locked and does not go on";
                let error = Error::not_applied(ErrorKind::Unavailable, message);
                return Err(error.with_context("path", self.own(FLOOR).display()));
            }
            env.sleep(PAUSE).await;
        }
    }

    /// Makes the floor at least `counter`, durably.
    pub(crate) fn fold(&self, floor: &mut FloorLock, counter: u64) -> Result<()> {
        let path = self.own(FLOOR);
        let fold = protocol::fold(&floor.newest, counter).ok_or_else(super::too_long)?;
        self.carry_out(floor.file.file(), &fold.0, &path)?;
        floor.newest = fold.1;
        Ok(())
    }

    /// Takes the lock file of `key` from whoever holds it: the next one locks another inode.
    pub(crate) fn take_away(&self, key: &Key, floor: &mut FloorLock) -> Result<()> {
        self.finish_taking_away(key, floor)?;
        let path = self.lock_path(key);
        match fs::rename(&path, self.set_aside(key)) {
            Ok(()) => self.finish_taking_away(key, floor),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(error::of_system(e, "set the lock file aside", &path)),
        }
    }

    /// Whether the lock file of `key` was set aside by somebody who did not finish.
    pub(super) fn is_set_aside(&self, key: &Key) -> Result<bool> {
        Ok(inode_at(&self.set_aside(key))?.is_some())
    }

    /// Does what is left to do once a lock file is set aside. Nobody gets a grant on it any more
    /// (D1), so its counter is the last.
    pub(super) fn finish_taking_away(&self, key: &Key, floor: &mut FloorLock) -> Result<()> {
        let path = self.set_aside(key);
        let Some(opened) = open(OpenOptions::new().read(true), &path)? else {
            return Ok(());
        };
        let counter = see(opened.file(), &path)?.record().counter;
        self.fold(floor, counter)?;
        remove(&path)
    }

    fn try_floor(&self, access: Access) -> Result<Option<FloorLock>> {
        let path = self.own(FLOOR);
        let opened = open(OpenOptions::new().read(true).write(true), &path)?.ok_or_else(|| gone(&path))?;
        let tried = match access {
            Access::Read => opened.file().try_lock_shared(),
            Access::Raise => opened.file().try_lock(),
        };
        match tried {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(e)) => {
                return Err(error::of_system(e, "lock the floor", &path));
            }
        }
        let file = Locked::got(opened);
        let newest = read(file.file(), &path, newest)?;
        Ok(Some(FloorLock { file, newest }))
    }

    /// A directory with lock files and no floor has lost the counters of those that were removed.
    fn refuse_without_floor(&self) -> Result<()> {
        for key in self.keys()? {
            // RACE: whoever made the lock file has made the floor before.
            if self.newest(&key)?.is_some() && inode_at(&self.own(FLOOR))?.is_none() {
                let message = "there are lock files but no floor: it was removed, and with it the \
                               counters of lock files that are gone; see docs/file.md";
                return Err(error::refused(message, &self.own(FLOOR)));
            }
        }
        Ok(())
    }

    fn set_aside(&self, key: &Key) -> PathBuf {
        self.own(OUT).join(key.as_str())
    }
}

fn gone(path: &Path) -> Error {
    error::of_system(Errno::NOENT.into(), "open the floor", path)
}

const FLOOR: &str = "floor";
const PAUSE: Duration = Duration::from_millis(2);
