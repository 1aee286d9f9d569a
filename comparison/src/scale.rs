//! How much of everything is done: quickly, in twenty minutes, or thoroughly.

use std::time::Duration;

use crate::options::Options;

/// The leases of those who are killed while they hold.
pub(crate) const CRASH_TTL: Duration = Duration::from_secs(3);

/// Numbers of contenders, lengths and repetitions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// As the report calls it.
    pub(crate) mode: &'static str,
    /// How many rounds of turns a contest has, and how many times as many where something is undecided.
    pub(crate) rounds: u32,
    pub(crate) longer: u32,
    /// How long a turn takes at least, and at most.
    pub(crate) turn: Duration,
    pub(crate) longest: Duration,
    /// How long all turns of somebody take together, unless they would be too few.
    pub(crate) each: Duration,
    /// How many runs there are, and how long each takes, where it has to be long.
    pub(crate) runs: (u32, Duration),
    /// How long exclusion is looked at.
    pub(crate) checked: Duration,
    /// How long requests are counted, at most.
    pub(crate) counted: Duration,
    /// How long who is compiled while it runs goes before it is timed.
    pub(crate) warm_up: Duration,
    pub(crate) tasks: &'static [u32],
    /// How many names are wanted at a time by one client.
    pub(crate) names: &'static [u32],
    /// One is the scenario without contention, two are the hand-off.
    pub(crate) processes: &'static [usize],
    /// How many contend with a session each in one process; one is the scenario without contention.
    pub(crate) crowd: &'static [u64],
    /// The same where votes split, and most libraries ask again and again.
    pub(crate) crowd_of_voters: &'static [u64],
    /// How many clients count together.
    pub(crate) counters: &'static [u32],
    /// How many locks are held.
    pub(crate) locks: &'static [usize],
    /// The leases of those that are held.
    pub(crate) held_ttl: Duration,
    /// How many holders are killed.
    pub(crate) crashes: u32,
    /// How many names are wanted a second, and for how long; nobody asks if that is nothing.
    pub(crate) churn: (u64, Duration),
    /// How long a move stays in each of its phases.
    pub(crate) phase: Duration,
    /// Whether what has a virtual machine or an interpreter takes part where it is slow to start, too.
    pub(crate) with_heavy: bool,
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
        rounds: 12,
        longer: 1,
        longest: Duration::from_millis(400),
        each: Duration::from_millis(300),
        runs: (5, Duration::from_millis(100)),
        checked: Duration::from_millis(150),
        counted: Duration::from_millis(200),
        warm_up: Duration::ZERO,
        names: &[1, 64],
        crowd: &[8, 100],
        counters: &[10],
        locks: &[2_000],
        crashes: 1,
        phase: Duration::from_millis(500),
        ..Self::USUAL
    };

    pub(crate) const USUAL: Self = Self {
        mode: "usual",
        rounds: 50,
        longer: 3,
        turn: Duration::from_millis(20),
        longest: Duration::from_secs(2),
        each: Duration::from_millis(1_700),
        runs: (5, Duration::from_millis(200)),
        checked: Duration::from_millis(150),
        counted: Duration::from_millis(250),
        warm_up: Duration::from_secs(2),
        tasks: &[64, 10_000],
        names: &[1, 8, 64],
        processes: &[8],
        crowd: &[8, 16, 100],
        crowd_of_voters: &[8, 32],
        counters: &[100],
        locks: &[10_000],
        held_ttl: Duration::from_secs(3),
        crashes: 3,
        churn: (0, Duration::ZERO),
        phase: Duration::from_secs(1),
        with_heavy: false,
    };

    // Numbers are those at which something is decided or a line that is drawn over them turns: from one to the next it is
    // a step of the logarithm.
    pub(crate) const FULL: Self = Self {
        mode: "full",
        turn: Duration::from_millis(40),
        longest: Duration::from_secs(5),
        each: Duration::from_secs(4),
        runs: (5, Duration::from_millis(600)),
        checked: Duration::from_millis(300),
        warm_up: Duration::from_secs(20),
        tasks: &[64, 1_000, 100_000],
        crowd: &[2, 8, 32, 100, 1_000],
        crowd_of_voters: &[8, 32, 100],
        counters: &[10, 100, 200],
        locks: &[100, 10_000, 1_000_000],
        held_ttl: Duration::from_secs(6),
        crashes: 5,
        churn: (10_000, Duration::from_secs(5)),
        phase: Duration::from_secs(3),
        with_heavy: true,
        ..Self::USUAL
    };
}
