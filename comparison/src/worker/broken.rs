//! What is no lock: whoever checks exclusion must find it out, or has seen nothing of the others either.
//!
//! All take as long to be asked as a store on another host does, which is what makes them hard to see:
//! they are held for a small part of the time.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use contender_protocol::{Failure, Mode, Session};

/// Everybody holds it at once.
pub(super) struct Null;

impl Session for Null {
    type Lock = ();
    type Held = ();

    const VERSION: &'static str = "none";

    async fn open(_urls: &[String], _ttl: Duration) -> Result<Self, Failure> {
        Ok(Self)
    }

    async fn lock(&self, _name: &str) -> Result<(), Failure> {
        Ok(())
    }

    async fn acquire(&self, (): &()) -> Result<(), Failure> {
        tokio::time::sleep(AWAY).await;
        Ok(())
    }

    async fn release(&self, (): ()) -> Result<(), Failure> {
        tokio::time::sleep(AWAY).await;
        Ok(())
    }
}

/// Two hold it at once, as when half of the processes have another idea of its name; a third one waits.
pub(super) struct Twice(PathBuf);

impl Session for Twice {
    type Lock = [PathBuf; 2];
    type Held = File;

    const VERSION: &'static str = "none";

    async fn open(urls: &[String], _ttl: Duration) -> Result<Self, Failure> {
        directory(urls).map(Self)
    }

    async fn lock(&self, name: &str) -> Result<[PathBuf; 2], Failure> {
        Ok([0, 1].map(|half| self.0.join(format!("{name}-{half}"))))
    }

    async fn acquire(&self, halves: &[PathBuf; 2]) -> Result<File, Failure> {
        loop {
            tokio::time::sleep(AWAY).await;
            for half in halves {
                if let Some(file) = locked(half)? {
                    return Ok(file);
                }
            }
        }
    }

    async fn release(&self, held: File) -> Result<(), Failure> {
        tokio::time::sleep(AWAY).await;
        Ok(held.unlock()?)
    }
}

/// Writers exclude each other, and readers hold when they please.
pub(super) struct Beside(PathBuf);

impl Session for Beside {
    /// Of a writer.
    type Lock = Option<PathBuf>;
    type Held = Option<File>;

    const VERSION: &'static str = "none";

    async fn open(urls: &[String], _ttl: Duration) -> Result<Self, Failure> {
        directory(urls).map(Self)
    }

    async fn lock(&self, name: &str) -> Result<Option<PathBuf>, Failure> {
        Ok(Some(self.0.join(name)))
    }

    async fn lock_as(&self, name: &str, mode: Mode) -> Result<Option<PathBuf>, Failure> {
        if mode == Mode::SHARED { Ok(None) } else { self.lock(name).await }
    }

    async fn acquire(&self, lock: &Option<PathBuf>) -> Result<Option<File>, Failure> {
        loop {
            tokio::time::sleep(AWAY).await;
            let Some(path) = lock else { return Ok(None) };
            if let Some(file) = locked(path)? {
                return Ok(Some(file));
            }
        }
    }

    async fn release(&self, held: Option<File>) -> Result<(), Failure> {
        tokio::time::sleep(AWAY).await;
        held.map_or(Ok(()), |file| Ok(file.unlock()?))
    }
}

/// Permits are a number in a file: what a killed holder had is lost, and who lets go twice makes one up.
pub(super) struct Leaky {
    directory: PathBuf,
    /// Let go last.
    last: Mutex<Option<Permits>>,
}

/// Some of those of a file.
#[derive(Clone)]
pub(super) struct Permits {
    path: PathBuf,
    mode: Mode,
}

impl Permits {
    /// Adds so many to those that are taken, if no more are then than there are.
    fn take(&self, count: i64) -> Result<bool, Failure> {
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

impl Session for Leaky {
    type Lock = Permits;
    type Held = Permits;

    const VERSION: &'static str = "none";

    async fn open(urls: &[String], _ttl: Duration) -> Result<Self, Failure> {
        Ok(Self { directory: directory(urls)?, last: Mutex::default() })
    }

    async fn lock(&self, name: &str) -> Result<Permits, Failure> {
        self.lock_as(name, Mode::EXCLUSIVE).await
    }

    async fn lock_as(&self, name: &str, mode: Mode) -> Result<Permits, Failure> {
        Ok(Permits { path: self.directory.join(name), mode })
    }

    async fn acquire(&self, lock: &Permits) -> Result<Permits, Failure> {
        loop {
            if let Some(held) = self.try_acquire(lock).await? {
                return Ok(held);
            }
        }
    }

    async fn try_acquire(&self, lock: &Permits) -> Result<Option<Permits>, Failure> {
        tokio::time::sleep(AWAY).await;
        Ok(lock.take(lock.mode.weight.into())?.then(|| lock.clone()))
    }

    async fn release(&self, held: Permits) -> Result<(), Failure> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
        self.release_again().await
    }

    async fn release_again(&self) -> Result<(), Failure> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let last = last.ok_or_else(|| Failure::new("nothing was held"))?;
        last.take(-i64::from(last.mode.weight))?;
        tokio::time::sleep(AWAY).await;
        Ok(())
    }
}

fn directory(urls: &[String]) -> Result<PathBuf, Failure> {
    let directory = urls.first().and_then(|url| url.strip_prefix("file://"));
    let directory = PathBuf::from(directory.ok_or_else(|| Failure::new("no directory is named"))?);
    fs::create_dir_all(&directory)?;
    Ok(directory)
}

/// If nobody else has it.
fn locked(path: &Path) -> Result<Option<File>, Failure> {
    let file = File::create(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(error.into()),
    }
}

/// Of a number in a file, always as many: a file that gets shorter may have to reach the disk.
const DIGITS: usize = 20;

/// As long as a store takes to answer.
const AWAY: Duration = Duration::from_millis(1);
