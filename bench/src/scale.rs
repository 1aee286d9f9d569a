//! How much of everything is done: quickly, in ten minutes, or thoroughly.

use std::time::Duration;

use crate::options::Options;

/// Numbers of contenders, lengths and repetitions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// How many interleaved runs a figure is the median of.
    pub(crate) runs: u32,
    /// How long one of them takes.
    pub(crate) span: Duration,
    pub(crate) tasks: &'static [u32],
    /// One is the scenario without contention, two are the hand-off.
    pub(crate) processes: &'static [usize],
    /// How many wait.
    pub(crate) herd: &'static [u64],
    /// How many clients count together.
    pub(crate) counters: &'static [u32],
    /// How many locks are held.
    pub(crate) locks: usize,
    /// How many holders are killed.
    pub(crate) crashes: u32,
}

impl Scale {
    pub(crate) fn of(options: &Options) -> Self {
        if options.quick {
            Self::QUICK
        } else if options.full {
            Self::FULL
        } else {
            Self::USUAL
        }
    }

    const QUICK: Self = Self {
        runs: 1,
        span: Duration::from_millis(200),
        tasks: &[64],
        processes: &[8],
        herd: &[1, 100],
        counters: &[10],
        locks: 2_000,
        crashes: 1,
    };

    const USUAL: Self = Self {
        runs: 3,
        span: Duration::from_millis(300),
        tasks: &[8, 64, 256],
        processes: &[4, 8, 16],
        herd: &[1, 10, 100, 1_000],
        counters: &[10, 100, 200],
        locks: 10_000,
        crashes: 2,
    };

    const FULL: Self = Self { runs: 5, span: Duration::from_secs(1), crashes: 5, ..Self::USUAL };
}
