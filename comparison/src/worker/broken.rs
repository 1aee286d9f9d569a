//! Broken locks: a check of exclusion that does not find them proves nothing about the others.
//!
//! Each is a number in a file. A grant adds to it while the sum fits, and a release subtracts. The file names no holder, so a
//! killed holder never returns its part, and a second release makes a permit up. They differ in what each grant adds, and
//! in the capacity. Each answers as slowly as a store on another host, so that it is held for a small part of the time only,
//! which makes its faults hard to see.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use contender_protocol::{Failure, Mode, Session};

use crate::implementation::Broken;

pub(super) struct Number {
    how: Broken,
    directory: PathBuf,
    /// Let go last.
    last: Mutex<Option<Taken>>,
}

/// What is taken of the number in a file, or would be.
#[derive(Clone)]
pub(super) struct Taken {
    path: PathBuf,
    mode: Mode,
}

impl Taken {
    /// Adds so many to those that are taken, if no more are then than there are.
    fn add(&self, count: i64) -> Result<bool, Failure> {
        let file = File::options().create(true).truncate(false).read(true).write(true).open(&self.path)?;
        file.lock()?;
        let mut text = [b' '; DIGITS];
        let length = file.read_at(&mut text, 0)?;
        let taken = String::from_utf8_lossy(&text[..length]).trim().parse().unwrap_or(0) + count;
        let fits = taken <= i64::from(self.mode.capacity);
        if fits {
            file.write_all_at(format!("{taken:DIGITS$}").as_bytes(), 0)?;
        }
        Ok(fits)
    }
}

impl Session for Number {
    type Lock = Taken;
    type Held = Taken;

    const VERSION: &'static str = "none";

    /// On the directory of the last URL, broken as the first word says.
    async fn open(urls: &[String], _ttl: Duration) -> Result<Self, Failure> {
        let [how, url] = urls else { return Err(Failure::new("how it is broken, and a directory")) };
        let how = Broken::ALL.into_iter().find(|broken| broken.name() == how);
        let directory = Path::new(url.trim_start_matches("file://")).to_owned();
        fs::create_dir_all(&directory)?;
        Ok(Self { how: how.ok_or_else(|| Failure::new("not broken so"))?, directory, last: Mutex::default() })
    }

    async fn lock(&self, name: &str) -> Result<Taken, Failure> {
        self.lock_as(name, Mode::EXCLUSIVE).await
    }

    async fn lock_as(&self, name: &str, asked: Mode) -> Result<Taken, Failure> {
        let mode = match self.how {
            Broken::Null => Mode::SHARED,
            Broken::Twice => Mode { weight: 1, capacity: 2 },
            Broken::Beside if asked == Mode::SHARED => Mode { weight: 0, capacity: u32::MAX },
            Broken::Beside | Broken::Leaky => asked,
        };
        Ok(Taken { path: self.directory.join(name), mode })
    }

    async fn acquire(&self, lock: &Taken) -> Result<Taken, Failure> {
        loop {
            if let Some(held) = self.try_acquire(lock).await? {
                return Ok(held);
            }
        }
    }

    async fn try_acquire(&self, lock: &Taken) -> Result<Option<Taken>, Failure> {
        tokio::time::sleep(AWAY).await;
        Ok(lock.add(lock.mode.weight.into())?.then(|| lock.clone()))
    }

    async fn release(&self, held: Taken) -> Result<(), Failure> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
        self.release_again().await
    }

    async fn release_again(&self) -> Result<(), Failure> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let last = last.ok_or_else(|| Failure::new("nothing was held"))?;
        last.add(-i64::from(last.mode.weight))?;
        tokio::time::sleep(AWAY).await;
        Ok(())
    }
}

/// Of a number in a file, always as many: a file that gets shorter may have to reach the disk.
const DIGITS: usize = 20;

/// As long as a store takes to answer.
const AWAY: Duration = Duration::from_millis(1);
