//! What a seed decides before anything runs.

use std::time::Duration;

use leasehold_conformance::Dice;
use leasehold_conformance::invariants::Bounds;
use leasehold_conformance::network::Rates;
use leasehold_core::{LockName, Timing};

use crate::plants::Plant;

/// The cast and the rules of one run.
pub(crate) struct Scenario {
    pub(crate) dice: Dice,
    pub(crate) timing: Timing,
    pub(crate) names: Vec<LockName>,
    pub(crate) processes: u64,
    pub(crate) workers_at_most: u64,
    pub(crate) admins: u64,
    /// Whether they go all the way at once, and wait for nobody longer than they must.
    pub(crate) hurried: bool,
    /// The longest pause of a task between two acquisitions.
    pub(crate) pause: Duration,
    /// How often records are looked at.
    pub(crate) poll: Duration,
    pub(crate) storm: Duration,
    pub(crate) rates: Rates,
    /// Whether nothing goes wrong but that processes are replaced and administrators die.
    pub(crate) fair_weather: bool,
    pub(crate) planted: Option<Plant>,
}

impl Scenario {
    pub(crate) fn of_seed(seed: u64, planted: Option<Plant>) -> Self {
        let mut dice = Dice::new(seed);
        let ttl = Duration::from_millis(*dice.pick(&[1_000, 3_000, 15_000]));
        let mut timing = Timing::for_ttl(ttl);
        timing.op_timeout = ttl / *dice.pick(&[3, 5, 8]);
        timing.connect_timeout = ttl / 2;
        timing.handoff_limit = *dice.pick(&[0, 3, 256]);
        timing.handoff_window = ttl / *dice.pick(&[10, 40]);
        let names = dice.pick(&["a", "ab"]).chars();
        let fair_weather = dice.chance(150);
        let rate = if fair_weather { 0 } else { *dice.pick(&[0, 5, 30]) };
        Self {
            names: names.map(|name| LockName::new(name.to_string()).expect("a letter is a name")).collect(),
            processes: dice.between(3, 12),
            workers_at_most: dice.between(1, 2),
            admins: dice.between(1, 2),
            hurried: dice.chance(400),
            pause: ttl / *dice.pick(&[1, 2, 4]),
            poll: ttl / *dice.pick(&[8, 15, 30]),
            storm: ttl * *dice.pick(&[20, 30, 40]),
            rates: Rates {
                lose_request: rate,
                lose_reply: rate,
                delay_request: rate,
                delay_reply: rate * 2,
                duplicate: rate,
                longest_delay: ttl / *dice.pick(&[20, 4, 1]),
            },
            fair_weather,
            timing,
            planted,
            dice,
        }
    }

    /// The time after which the stores have forgotten whoever fell silent.
    pub(crate) fn forgotten_after(&self) -> Duration {
        self.bounds().hand_over
    }

    pub(crate) fn bounds(&self) -> Bounds {
        // Some locks ask for a ttl twice as long, and a new phase is heard of with the next look.
        Bounds::of(&self.timing, self.timing.ttl + self.poll)
    }
}
