//! A file: open, lock, write a number and sync it; unlock.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use contender_protocol::{Failure, Session};

pub(super) struct Directory(PathBuf);

pub(super) struct Locked {
    pub(super) file: fs::File,
    pub(super) token: u64,
}

/// A file for the lock; one that is there keeps its number.
pub(super) fn prepare(directory: &Path, name: &str) -> Result<PathBuf, Failure> {
    let path = directory.join(name);
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
    file.set_len(RECORD as u64)?;
    Ok(path)
}

/// Counts a grant in the file that is locked.
pub(super) fn count(file: fs::File) -> Result<Locked, Failure> {
    let mut record = [0; RECORD];
    file.read_exact_at(&mut record, 0)?;
    let (number, _rest) = record.split_at_mut(8);
    let token = u64::from_le_bytes(number.try_into()?) + 1;
    number.copy_from_slice(&token.to_le_bytes());
    file.write_all_at(&record, 0)?;
    file.sync_data()?;
    Ok(Locked { file, token })
}

impl Session for Directory {
    type Lock = PathBuf;
    type Held = Locked;

    const VERSION: &'static str = "std";

    async fn open(urls: &[String], _ttl: Duration) -> Result<Self, Failure> {
        let directory = PathBuf::from(super::place(urls)).join("floor");
        fs::create_dir_all(&directory)?;
        Ok(Self(directory))
    }

    async fn lock(&self, name: &str) -> Result<PathBuf, Failure> {
        prepare(&self.0, name)
    }

    async fn acquire(&self, path: &PathBuf) -> Result<Locked, Failure> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        file.try_lock()?;
        count(file)
    }

    fn token(held: &Locked) -> Option<u64> {
        Some(held.token)
    }

    async fn release(&self, held: Locked) -> Result<(), Failure> {
        Ok(held.file.unlock()?)
    }
}

/// A number, and as many bytes again as an owner and a time take.
const RECORD: usize = 64;
