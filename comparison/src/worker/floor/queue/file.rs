//! A file: as the floor, but the kernel is asked to wait. It serves in no order.

use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use std::time::Duration;

use contender_protocol::{Failure, Session};

use crate::worker::floor::file::{Locked, count, prepare};
use crate::worker::floor::place;

pub(in crate::worker::floor) struct Directory(PathBuf);

impl Session for Directory {
    type Lock = PathBuf;
    type Held = Locked;

    const VERSION: &'static str = "std";

    async fn open(urls: &[String], _ttl: Duration) -> Result<Self, Failure> {
        let directory = PathBuf::from(place(urls)).join("floor-queue");
        fs::create_dir_all(&directory)?;
        Ok(Self(directory))
    }

    async fn lock(&self, name: &str) -> Result<PathBuf, Failure> {
        prepare(&self.0, name)
    }

    async fn acquire(&self, path: &PathBuf) -> Result<Locked, Failure> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        // Who need not wait need not be another thread's work either.
        if file.try_lock().is_ok() {
            return count(file);
        }
        let locked = tokio::task::spawn_blocking(move || file.lock().map(|()| file)).await?;
        count(locked?)
    }

    fn token(held: &Locked) -> Option<u64> {
        Some(held.token)
    }

    async fn release(&self, held: Locked) -> Result<(), Failure> {
        Ok(held.file.unlock()?)
    }
}
