//! What a seed decides before anything runs.

use std::time::Duration;

use leasehold_core::{LockName, Timing};

use crate::bugs::{Bug, Mutation};
use crate::dice::Dice;
use crate::invariants::Bounds;
use crate::network::Rates;

/// The cast and the rules of one run.
pub(super) struct Scenario {
    pub(super) dice: Dice,
    pub(super) timing: Timing,
    pub(super) names: Vec<LockName>,
    pub(super) processes: u64,
    pub(super) workers_at_most: u64,
    /// The longest pause of a task between two acquisitions.
    pub(super) pause: Duration,
    pub(super) storm: Duration,
    pub(super) rates: Rates,
    /// Whether nothing goes wrong, so that nothing excuses anything.
    pub(super) fair_weather: bool,
    /// Whether the store may end holds too early (against A2), and administrators use force.
    pub(super) breaks_a2: bool,
    pub(super) planted: Option<Mutation>,
}

impl Scenario {
    pub(super) fn of_seed(seed: u64, planted: Option<&Bug>) -> Self {
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
            breaks_a2: dice.chance(250),
            timing,
            planted: planted.map(|bug| (bug.make)()),
            dice,
        }
    }

    /// The time after which the store has forgotten whoever fell silent.
    pub(super) fn forgotten_after(&self) -> Duration {
        self.bounds().hand_over
    }

    pub(super) fn bounds(&self) -> Bounds {
        // Some locks ask for a ttl twice as long.
        Bounds::of(&self.timing, self.timing.ttl)
    }
}
