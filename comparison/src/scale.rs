//! How much of everything is done: quickly, in ten minutes, or thoroughly.

use std::time::Duration;

use crate::options::Options;

/// The leases of those who are killed while they hold.
pub(crate) const CRASH_TTL: Duration = Duration::from_secs(3);

/// Numbers of contenders, lengths and repetitions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// As the report calls it.
    pub(crate) mode: &'static str,
    /// How many interleaved runs a figure is the median of.
    pub(crate) runs: u32,
    /// How long one of them takes.
    pub(crate) span: Duration,
    pub(crate) tasks: &'static [u32],
    /// One is the scenario without contention, two are the hand-off.
    pub(crate) processes: &'static [usize],
    /// How many wait.
    pub(crate) herd: &'static [u64],
    /// When those of a herd stop to come again.
    pub(crate) herd_span: Duration,
    /// How many clients count together.
    pub(crate) counters: &'static [u32],
    /// How many locks are held.
    pub(crate) locks: usize,
    /// The leases of those that are held.
    pub(crate) held_ttl: Duration,
    /// How many holders are killed.
    pub(crate) crashes: u32,
    /// Whether what is slow to start contends from one process, with a session each, and only where many
    /// processes want one lock.
    pub(crate) spares_heavy: bool,
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
        mode: "quick",
        runs: 1,
        tasks: &[64],
        processes: &[8],
        herd: &[1, 100],
        counters: &[10],
        locks: 2_000,
        held_ttl: Duration::from_secs(3),
        crashes: 1,
        ..Self::USUAL
    };

    const USUAL: Self = Self {
        mode: "usual",
        runs: 5,
        span: Duration::from_millis(200),
        tasks: &[8, 64],
        processes: &[8, 16],
        herd: &[1, 10, 100],
        herd_span: Duration::from_secs(2),
        counters: &[10, 100, 200],
        locks: 10_000,
        held_ttl: Duration::from_secs(6),
        crashes: 2,
        spares_heavy: true,
    };

    const FULL: Self = Self {
        mode: "full",
        span: Duration::from_millis(500),
        tasks: &[8, 64, 256],
        processes: &[4, 8, 16],
        herd: &[1, 10, 100, 1_000],
        crashes: 5,
        spares_heavy: false,
        ..Self::USUAL
    };
}
