//! A file: open, lock, write a number and sync it; unlock. With a queue the kernel is asked to wait, and serves in no
//! order.

use std::fs::{self, OpenOptions, TryLockError};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use contender_protocol::{Failure, Session};

pub(super) struct Directory<const WAITS: bool>(PathBuf);

pub(super) struct Locked {
    file: fs::File,
    token: u64,
}

impl<const WAITS: bool> Session for Directory<WAITS> {
    type Lock = PathBuf;
    type Held = Locked;

    const VERSION: &'static str = "std";

    async fn open(urls: &[String], _ttl: Duration) -> Result<Self, Failure> {
        let directory = PathBuf::from(super::place(urls)).join(if WAITS { "floor-queue" } else { "floor" });
        fs::create_dir_all(&directory)?;
        Ok(Self(directory))
    }

    /// A file that is there keeps its number.
    async fn lock(&self, name: &str) -> Result<PathBuf, Failure> {
        let path = self.0.join(name);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
        file.set_len(RECORD as u64)?;
        Ok(path)
    }

    async fn acquire(&self, path: &PathBuf) -> Result<Locked, Failure> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        match file.try_lock() {
            // A thread of its own is only for a wait.
            Err(TryLockError::WouldBlock) if WAITS => {
                count(tokio::task::spawn_blocking(move || file.lock().map(|()| file)).await??)
            }
            tried => {
                tried?;
                count(file)
            }
        }
    }

    fn token(held: &Locked) -> Option<u64> {
        Some(held.token)
    }

    async fn release(&self, held: Locked) -> Result<(), Failure> {
        Ok(held.file.unlock()?)
    }
}

/// Counts a grant in the file that is locked.
fn count(file: fs::File) -> Result<Locked, Failure> {
    let mut record = [0; RECORD];
    file.read_exact_at(&mut record, 0)?;
    let (number, _rest) = record.split_at_mut(8);
    let token = u64::from_le_bytes(number.try_into()?) + 1;
    number.copy_from_slice(&token.to_le_bytes());
    file.write_all_at(&record, 0)?;
    file.sync_data()?;
    Ok(Locked { file, token })
}

/// A number, and as many bytes again as an owner and a time take.
const RECORD: usize = 64;
