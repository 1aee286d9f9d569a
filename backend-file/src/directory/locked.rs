//! An open file, and one that this process has locked.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

use leasehold_core::Result;

use super::inode::{Inode, Node};
use crate::error;

/// An open file, and its inode, which never changes.
#[derive(Debug)]
pub(crate) struct Opened {
    file: File,
    inode: Inode,
}

/// A file locked by us. Unlocked by name and not only closed: a forked child may have it open.
#[derive(Debug)]
pub(crate) struct Locked {
    opened: Opened,
    locked: bool,
}

impl Opened {
    /// The file, and whether it is a regular one.
    pub(super) fn new(file: File, path: &Path) -> Result<(Self, bool)> {
        let Node { inode, is_file, .. } =
            Node::of(&file).map_err(|e| error::of_system(e, "inspect the file", path))?;
        Ok((Self { file, inode }, is_file))
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn inode(&self) -> Inode {
        self.inode
    }

    /// Takes a shared lock, which disturbs no other reader; `None` if the file has an exclusive lock.
    pub(super) fn try_share(self, path: &Path) -> Result<Option<Locked>> {
        answer(self.file.try_lock_shared(), path).map(|got| got.then(|| Locked::got(self)))
    }
}

impl Locked {
    pub(crate) fn got(opened: Opened) -> Self {
        Self { opened, locked: true }
    }

    /// Locks a file; returns it if another has it locked.
    pub(crate) fn try_lock(opened: Opened, path: &Path) -> Result<Result<Self, Opened>> {
        let got = answer(opened.file().try_lock(), path)?;
        Ok(if got { Ok(Self::got(opened)) } else { Err(opened) })
    }

    pub(crate) fn file(&self) -> &File {
        self.opened.file()
    }

    pub(crate) fn inode(&self) -> Inode {
        self.opened.inode()
    }

    pub(crate) fn unlock(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.locked) { self.file().unlock() } else { Ok(()) }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing unlocks the file if this could not.
        let _ = self.unlock();
    }
}

fn answer(tried: Result<(), TryLockError>, path: &Path) -> Result<bool> {
    match tried {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(e)) => Err(error::of_system(e, "lock the file", path)),
    }
}
