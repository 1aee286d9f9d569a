//! A wall clock for one server, that can be set while it runs.
//!
//! A few lines of C stand before the C library's own functions in the server's process. How much the
//! clock is off, or where it stands still, is in a file that they have mapped into memory, so a step is
//! in force once it is written. Monotonic clocks are left alone.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    process::Command,
    sync::Arc,
};

use crate::{Launch, Scratch};

/// A wall clock that begins as the host's; clones are the same one.
#[derive(Clone, Debug)]
pub struct WallClock {
    scratch: Arc<Scratch>,
    shift: Arc<File>,
}

impl WallClock {
    /// A clock that agrees with the host's.
    pub fn new() -> io::Result<Self> {
        let scratch = Scratch::new("clock")?;
        let source = scratch.path().join("clock.c");
        fs::write(&source, SOURCE)?;
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(scratch.path().join(LIBRARY))
            .arg(&source)
            .output()
            .map_err(|error| io::Error::other(format!("cc: {error}; run `make tools`")))?;
        if !compiled.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&compiled.stderr).into_owned()));
        }
        let shift = File::create_new(scratch.path().join(SHIFT))?;
        let clock = Self { scratch: Arc::new(scratch), shift: Arc::new(shift) };
        clock.stand_at(0)?;
        clock.shift_by(0)?;
        Ok(clock)
    }

    /// Lets the clock be off by `seconds` from the host's from now on.
    pub fn shift_by(&self, seconds: i64) -> io::Result<()> {
        self.shift.write_all_at(&(seconds * 1_000_000).to_ne_bytes(), 0)
    }

    /// Lets the clock stand still from now on, at `micros` after the epoch; 0 lets it go on.
    pub fn stand_at(&self, micros: u64) -> io::Result<()> {
        self.shift.write_all_at(&micros.to_ne_bytes(), 8)
    }

    /// Has a program that is to be started go by this clock.
    pub(super) fn rule(&self, launch: Launch) -> Launch {
        let path = self.scratch.path();
        launch.env("LD_PRELOAD", path.join(LIBRARY)).env("TESTBED_CLOCK", path.join(SHIFT))
    }
}

const SOURCE: &str = include_str!("clock.c");

const LIBRARY: &str = "clock.so";

const SHIFT: &str = "shift";
