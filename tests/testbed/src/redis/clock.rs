//! A wall clock for one server, that can be set while it runs.
//!
//! How much the clock is off, or where it stands still, is in a file that the server's process has mapped into memory, so a
//! step is in force once it is written. Monotonic clocks are left alone.

use std::{fs::File, io, os::unix::fs::FileExt, sync::Arc};

use super::preload::Preload;
use crate::Launch;

/// A wall clock that begins as the host's; clones are the same one.
#[derive(Clone, Debug)]
pub struct WallClock {
    library: Preload,
    shift: Arc<File>,
}

impl WallClock {
    /// A clock that agrees with the host's.
    pub fn new() -> io::Result<Self> {
        let library = Preload::compile(include_str!("clock.c"))?;
        let shift = File::create_new(library.scratch().path().join(SHIFT))?;
        let clock = Self { library, shift: Arc::new(shift) };
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
        let shift = self.library.scratch().path().join(SHIFT);
        self.library.rule(launch).env("TESTBED_CLOCK", shift)
    }
}

const SHIFT: &str = "shift";
