//! A file: open, lock, write a number and sync it; unlock. With a queue the kernel is asked to wait, and serves in no
//! order. With our own calls it is checked, too, that the file is the one under its name, when it was opened, locked and
//! written, and before its release, and the release is written.

use std::fs::{self, OpenOptions, TryLockError};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use contender_protocol::{Failure, Session};

pub(super) struct Directory<const WAITS: bool, const OURS: bool>(PathBuf);

pub(super) struct Locked {
    file: fs::File,
    path: PathBuf,
    token: u64,
}

impl<const WAITS: bool, const OURS: bool> Session for Directory<WAITS, OURS> {
    type Lock = PathBuf;
    type Held = Locked;

    const VERSION: &'static str = "std";

    async fn open(urls: &[String], _ttl: Duration) -> Result<Self, Failure> {
        let name = match (WAITS, OURS) {
            (true, _) => "floor-queue",
            (_, true) => "floor-calls",
            _ => "floor",
        };
        let directory = PathBuf::from(super::place(urls)).join(name);
        fs::create_dir_all(&directory)?;
        Ok(Self(directory))
    }

    /// A file that is there keeps its number.
    async fn lock(&self, name: &str) -> Result<PathBuf, Failure> {
        let path = self.0.join(name);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
        file.set_len(if OURS { OUR_LENGTH } else { RECORD } as u64)?;
        Ok(path)
    }

    async fn acquire(&self, path: &PathBuf) -> Result<Locked, Failure> {
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        if OURS {
            file.metadata()?;
        }
        match file.try_lock() {
            // A thread of its own is only for a wait.
            Err(TryLockError::WouldBlock) if WAITS => {
                file = tokio::task::spawn_blocking(move || file.lock().map(|()| file)).await??;
            }
            tried => tried?,
        }
        if !OURS {
            let token = count(&file, &mut [0; RECORD], RECORD)?;
            return Ok(Locked { file, path: path.clone(), token });
        }
        fs::symlink_metadata(path)?;
        let token = count(&file, &mut [0; OUR_LENGTH], OUR_RECORD)?;
        fs::symlink_metadata(path)?;
        Ok(Locked { file, path: path.clone(), token })
    }

    fn token(held: &Locked) -> Option<u64> {
        Some(held.token)
    }

    async fn release(&self, held: Locked) -> Result<(), Failure> {
        if OURS {
            fs::symlink_metadata(&held.path)?;
            held.file.write_all_at(&[0; OUR_RELEASE], (OUR_LENGTH - OUR_RELEASE) as u64)?;
        }
        Ok(held.file.unlock()?)
    }
}

/// Counts a grant in the file that is locked: reads it into `bytes`, and writes so many.
fn count(file: &fs::File, bytes: &mut [u8], written: usize) -> Result<u64, Failure> {
    file.read_exact_at(bytes, 0)?;
    let (number, _rest) = bytes.split_at_mut(8);
    let token = u64::from_le_bytes((&*number).try_into()?) + 1;
    number.copy_from_slice(&token.to_le_bytes());
    file.write_all_at(&bytes[..written], 0)?;
    file.sync_data()?;
    Ok(token)
}

/// A number, and as many bytes again as an owner and a time take.
const RECORD: usize = 64;

/// What ours reads, and what it writes of that at a grant and at a release.
const OUR_LENGTH: usize = 8192;
const OUR_RECORD: usize = 144;
const OUR_RELEASE: usize = 40;
