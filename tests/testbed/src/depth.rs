//! How much a run tries, by one variable for every program.
//!
//! `LEASEHOLD_DEPTH` is `check` before a push, `ci` if it is not set, or `soak` for hours. `LEASEHOLD_SEED=n` replays
//! the seed `n` where seeds are played; `LEASEHOLD_SECONDS=n` is how long a hunt lasts.

use std::fmt::Display;
use std::ops::Range;
use std::str::FromStr;
use std::time::SystemTime;

/// How much a run tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Depth {
    /// Enough to notice a mistake within minutes.
    Check,
    /// Everything once.
    Ci,
    /// As much as a night has time for.
    Soak,
}

impl Depth {
    /// The depth of this run.
    pub fn of_run() -> Self {
        variable("LEASEHOLD_DEPTH", "check, ci or soak").unwrap_or(Self::Ci)
    }

    /// The number for this depth.
    pub fn pick<T>(self, check: T, ci: T, soak: T) -> T {
        match self {
            Self::Check => check,
            Self::Ci => ci,
            Self::Soak => soak,
        }
    }

    /// As many seeds as the number for this depth, which a run prints. They begin at 0, and at [`Self::Soak`] at
    /// others every day.
    pub fn seeds(self, check: u64, ci: u64, soak: u64) -> Range<u64> {
        let days = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs() / DAY;
        let first = self.pick(0, 0, days * soak);
        let seeds = first..first + self.pick(check, ci, soak);
        println!("seeds {} to {}", seeds.start, seeds.end - 1);
        seeds
    }
}

/// In seconds.
const DAY: u64 = 24 * 60 * 60;

impl FromStr for Depth {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "check" => Ok(Self::Check),
            "ci" => Ok(Self::Ci),
            "soak" => Ok(Self::Soak),
            _ => Err(()),
        }
    }
}

/// The one seed to replay, if there is one.
pub fn seed() -> Option<u64> {
    variable("LEASEHOLD_SEED", "a whole number")
}

/// For how many seconds what goes on for a time is to go on, if that is said.
pub fn seconds() -> Option<u64> {
    variable("LEASEHOLD_SECONDS", "a whole number")
}

fn variable<T: FromStr>(name: &str, expected: impl Display) -> Option<T> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is invalid: expected {expected}")))
}
