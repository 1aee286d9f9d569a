//! What a seed decides before anything runs.

use std::time::Duration;

use leasehold_core::{LockName, Timing};

use crate::dice::Dice;
use crate::invariants::Bounds;
use crate::network::Rates;

/// The cast and the rules of one run.
#[derive(Debug)]
#[non_exhaustive]
pub struct Scenario {
    /// Where all choices come from.
    pub dice: Dice,
    /// The times of all processes.
    pub timing: Timing,
    /// The locks.
    pub names: Vec<LockName>,
    /// How many processes there are at first.
    pub processes: u64,
    /// How many tasks a process has.
    pub workers_at_most: u64,
    /// The longest pause of a task between two acquisitions.
    pub pause: Duration,
    /// The most acquisitions of one task, which bounds the time that a seed takes.
    pub turns: u32,
    /// How long things go wrong.
    pub storm: Duration,
    /// How bad networks usually are.
    pub rates: Rates,
    /// Whether nothing goes wrong, so that nothing excuses anything.
    pub fair_weather: bool,
    /// How late leases may end.
    pub granularity: Duration,
}

impl Scenario {
    pub(super) fn of_seed(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let ttl = Duration::from_millis(*dice.pick(&[600, 1_000, 3_000, 15_000]));
        let mut timing = Timing::for_ttl(ttl);
        timing.op_timeout = ttl / *dice.pick(&[3, 5, 8]);
        timing.handoff_limit = *dice.pick(&[0, 1, 3, 256]);
        timing.handoff_window = ttl / *dice.pick(&[3, 10, 40]);
        let names = dice.pick(&["a", "ab", "abc"]).chars();
        let fair_weather = dice.chance(100);
        let rate = if fair_weather { 0 } else { *dice.pick(&[0, 5, 30, 100]) };
        Self {
            names: names.map(|name| LockName::new(name.to_string()).expect("a letter is a name")).collect(),
            processes: dice.between(2, 4),
            workers_at_most: dice.between(1, 4),
            pause: ttl / *dice.pick(&[4, 12, 60]),
            turns: 40,
            storm: ttl * *dice.pick(&[6, 8, 10, 12, 14]),
            rates: Rates {
                lose_request: rate,
                lose_reply: rate,
                delay_request: rate,
                delay_reply: rate * 2,
                duplicate: rate,
                longest_delay: ttl / *dice.pick(&[20, 4, 1]),
            },
            fair_weather,
            // Some locks ask for a ttl twice as long.
            granularity: ttl,
            timing,
            dice,
        }
    }

    /// The time after which the stores have forgotten a process that fell silent.
    pub fn forgotten_after(&self) -> Duration {
        self.bounds().hand_over
    }

    pub(super) fn bounds(&self) -> Bounds {
        Bounds::of(&self.timing, self.granularity)
    }
}
