//! What is no lock: whoever checks exclusion must find it out, or has seen nothing of the others either.
//!
//! Both take as long to be asked as a store on another host does, which is what makes them hard to see:
//! they are held for a small part of the time.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Duration;

use contender_protocol::{Failure, Session};

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
        let directory = urls.first().and_then(|url| url.strip_prefix("file://"));
        let directory = PathBuf::from(directory.ok_or_else(|| Failure::new("no directory is named"))?);
        fs::create_dir_all(&directory)?;
        Ok(Self(directory))
    }

    async fn lock(&self, name: &str) -> Result<[PathBuf; 2], Failure> {
        Ok([0, 1].map(|half| self.0.join(format!("{name}-{half}"))))
    }

    async fn acquire(&self, halves: &[PathBuf; 2]) -> Result<File, Failure> {
        loop {
            tokio::time::sleep(AWAY).await;
            for half in halves {
                let file = File::create(half)?;
                match file.try_lock() {
                    Ok(()) => return Ok(file),
                    Err(fs::TryLockError::WouldBlock) => {}
                    Err(fs::TryLockError::Error(error)) => return Err(error.into()),
                }
            }
        }
    }

    async fn release(&self, held: File) -> Result<(), Failure> {
        tokio::time::sleep(AWAY).await;
        Ok(held.unlock()?)
    }
}

/// As long as a store takes to answer.
const AWAY: Duration = Duration::from_millis(1);
