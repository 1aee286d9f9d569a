//! Random schedules of events, for each setting of the world.

use proptest::test_runner::{Config, TestRng, TestRunner};

use super::*;

/// What a random schedule is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Setting {
    /// Exclusive locks of ours, or that foreign clients take too.
    Exclusive,
    /// Locks in all modes, and clients that die.
    Shared,
    Restarts,
    /// Replicas that are promoted, while the primary before goes on.
    Promotions,
    /// The same in a cluster, whose slots move.
    Cluster,
    Moves,
}

/// The network, whether foreign clients take the lock too, how each client wants it, and the events.
pub(super) type Schedule = (Network, bool, Vec<Mode>, Vec<(u8, u16)>);

impl Setting {
    fn schedules(self) -> impl Strategy<Value = Schedule> {
        let is_forgetful = !matches!(self, Self::Exclusive | Self::Shared);
        let (kinds, longest) = if is_forgetful { (0_u8..12, 150) } else { (0..14, 120) };
        let event = (kinds, any::<u16>()).prop_map(move |(kind, pick)| match self {
            // Foreign clients have no such locks.
            Self::Shared if kind == 13 => (14, pick),
            _ => (kind, pick),
        });
        let network = match self {
            _ if is_forgetful => Just(Network::Any).boxed(),
            _ => prop_oneof![Just(Network::Ordered), Just(Network::Any)].boxed(),
        };
        let foreign = any::<bool>().prop_map(move |foreign| foreign && matches!(self, Self::Exclusive));
        let mode = match self {
            Self::Exclusive => Just(Mode::EXCLUSIVE).boxed(),
            _ => sharing::mode().boxed(),
        };
        let modes = prop::collection::vec(mode, CLIENTS);
        (network, foreign, modes, prop::collection::vec(event, 0..longest))
    }

    pub(super) fn search(self, cases: u32, mutant: Mutant) -> Result<(), TestError<Schedule>> {
        let is_repeatable = mutant != Mutant::None;
        walk(cases, is_repeatable, &self.schedules(), |(network, foreign, modes, events)| {
            let shared = foreign.then_some(Shared { signals: true, after: 2, ..Shared::STRINGS });
            let mut world = World::new(*network, shared, mutant);
            world.modes.copy_from_slice(modes);
            world.runs = match self {
                Self::Exclusive | Self::Shared => None,
                Self::Restarts => Some(Runs::new(0)),
                Self::Promotions => Some(Runs::new(promotions::LAG)),
                Self::Cluster => Some(Runs::in_cluster(false)),
                Self::Moves => Some(Runs::in_cluster(true)),
            };
            for (kind, pick) in events {
                world.event(*kind, usize::from(*pick))?;
            }
            world.settle()
        })
    }

    /// Each of `mutants` breaks a guarantee in some schedule.
    pub(super) fn catches(self, mutants: &[Mutant]) {
        for mutant in mutants {
            let outcome = self.search(60_000, *mutant);
            assert!(matches!(outcome, Err(TestError::Fail(..))), "{mutant:?} was not caught");
            ::model::caught(&format!("redis {self:?}"), mutant, "random schedules");
        }
    }
}

/// Tries random schedules: the same ones each time, or new ones of which the shortest failing one is shown.
pub(super) fn walk<S: Strategy>(
    cases: u32,
    is_repeatable: bool,
    schedules: &S,
    play: impl Fn(&S::Value) -> Result<(), String>,
) -> Result<(), TestError<S::Value>> {
    let config = Config { failure_persistence: None, ..Config::with_cases(cases) };
    let mut runner = if is_repeatable {
        let rng = TestRng::deterministic_rng(config.rng_algorithm);
        TestRunner::new_with_rng(Config { max_shrink_iters: 0, ..config }, rng)
    } else {
        TestRunner::new(config)
    };
    runner.run(schedules, |schedule| play(&schedule).map_err(TestCaseError::fail))
}
