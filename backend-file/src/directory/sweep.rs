//! Removes unused lock files, and the files of sessions that have ended.
//!
//! The counters of all of them go into the floor first, in one write; then each is locked, checked again and removed, which
//! takes microseconds, so that it hardly delays an acquire (file.directory-3).

use leasehold_core::{Env, ErrorKind, Result};
use tokio::task::coop::consume_budget;

use super::{Access, Directory, Locked, Opened, see};
use crate::keys::Key;

impl Directory {
    /// Removes every idle lock file while `go_on` returns true; returns their number.
    ///
    /// # Cancel safety
    ///
    /// Stops between two files.
    pub(crate) async fn sweep(&self, env: &Env, go_on: impl Fn() -> bool + Send + Sync) -> Result<usize> {
        self.sweep_traces()?;
        for key in self.parts.out.entries()?.iter().filter_map(|file| Key::parse(file)) {
            let mut floor = self.floor(env, Access::Raise).await?;
            match self.finish_taking_away(&key, &mut floor) {
                // Foreign, or not readable; an acquire of that name returns the error (file.directory-4).
                Err(error) if *error.kind() == ErrorKind::Protocol => {}
                finished => finished?,
            }
        }
        let mut idle = Vec::new();
        let mut highest = 0;
        for key in self.keys()?.into_iter().take_while(|_| go_on()) {
            consume_budget().await;
            if let Some((record, false)) = self.newest(&key)? {
                highest = highest.max(record.counter);
                idle.push(key);
            }
        }
        if idle.is_empty() {
            return Ok(0);
        }
        let mut floor = self.floor(env, Access::Raise).await?;
        self.fold(&mut floor, highest)?;
        // A later value may not be on the disk yet.
        let folded = floor.counter();
        drop(floor);
        let mut removed = 0;
        for keys in idle.chunks(CHUNK).take_while(|_| go_on()) {
            let floor = self.floor(env, Access::Read).await?;
            for key in keys {
                if let Some(opened) = self.open_lock(key)? {
                    removed += usize::from(self.remove_idle(key, opened, folded)?);
                }
            }
            drop(floor);
            tokio::task::yield_now().await;
        }
        Ok(removed)
    }

    /// Removes the lock file that is `opened`, unless it is in use, another is in its place, or its counter is above
    /// `folded`. The caller has the floor's lock, so the file is not removed by force meanwhile.
    pub(super) fn remove_idle(&self, key: &Key, opened: Opened, folded: u64) -> Result<bool> {
        let path = self.lock_path(key);
        let Ok(locked) = Locked::try_lock(opened, &path)? else {
            return Ok(false);
        };
        if !self.is_at(key, locked.inode())? || see(locked.file(), &path)?.record().counter > folded {
            return Ok(false);
        }
        self.folder.remove(&key.lock_file())?;
        Ok(true)
    }
}

const CHUNK: usize = 64;
