//! The contender among model servers: bounded search, random schedules, and what is broken on purpose.

mod differential;
mod events;
mod model;
mod recovery;
mod rules;
mod standings;
mod stories;
mod world;

use ::model::{Search, explore};

use self::events::{Event, Mutant, Setting};
use self::world::{TTL, World};

/// A small generator: a seed is a schedule.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 11) % bound as u64).unwrap()
    }
}

/// Servers, blank ones at most, how far clocks are apart, and how many servers more than a majority have to agree.
fn of(servers: usize, blank: usize, apart: u64, spare: usize) -> Setting {
    let (trusts, is_fresh, is_mixed, mutant) = (false, false, false, Mutant::Original);
    Setting { servers, clients: 3, apart, blank, spare, trusts, is_fresh, is_mixed, mutant }
}

fn setting(mutant: Mutant) -> Setting {
    Setting { mutant, ..of(3, 1, 0, 0) }
}

/// Plays one schedule; the broken rule, how many held, and the schedule.
fn play(seed: u64, setting: Setting, steps: usize) -> (Option<String>, usize, Vec<Event>) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut skews: Vec<_> = (0..setting.servers).map(|_| dice.below(4) as u64 * setting.apart / 3).collect();
    skews.rotate_left(1);
    let mut world = World::new(setting, skews);
    let mut story = Vec::new();
    for _ in 0..steps {
        let event = choose(&mut dice, &world);
        story.push(event);
        world.apply(event);
        if world.wrong.is_some() {
            break;
        }
    }
    (world.wrong.take(), world.holds, story)
}

/// Mostly what moves on, and time that passes slowly.
fn choose(dice: &mut Dice, world: &World) -> Event {
    let is_usual = |event: &Event| match event {
        Event::Deliver(_) | Event::Start(_) | Event::Renew(_) => true,
        Event::Look(_, answers) => *answers,
        event => matches!(event, Event::Recover(_) | Event::RecoverWith(..)),
    };
    let millis = match dice.below(100) {
        0..16 => Some(dice.below(3)),
        16..19 => Some(dice.below(TTL as usize)),
        _ => None,
    };
    if let Some(millis) = millis {
        return Event::Pass(millis as u64);
    }
    let wants_rare = dice.below(10) == 0;
    let mut events = world.events(wants_rare);
    events.retain(|event| is_usual(event) != wants_rare);
    let is_drastic = |event: &Event| match event {
        Event::Restart(..) | Event::Replace(_) | Event::Promote(..) | Event::PromoteInPlace(_) => true,
        event => matches!(event, Event::Empty(_) | Event::Step(_) | Event::Force(_) | Event::ForceAt(..)),
    };
    if events.iter().any(is_drastic) && dice.below(4) == 0 {
        events.retain(is_drastic);
    }
    if events.is_empty() { Event::Pass(1) } else { events[dice.below(events.len())] }
}

fn seeds() -> u64 {
    testbed::Depth::of_run().pick(200, 500, 100_000)
}

/// Random schedules of each setting: one holds at a time, tokens grow, and what was released for good stays so.
fn excludes(settings: &[Setting], steps: usize, least: u64) {
    let mut holds = 0;
    for seed in 0..seeds() {
        for setting in settings {
            let (wrong, held, schedule) = play(seed, *setting, steps);
            assert_eq!(wrong, None, "seed {seed}, {setting:?}: {schedule:#?}");
            holds += held;
        }
    }
    assert!(holds as u64 > least * seeds(), "only {holds} held");
}

#[test]
fn a_quorum_excludes_and_its_tokens_grow() {
    let (is_fresh, is_mixed, trusts) = (true, true, true);
    let settings = [
        of(3, 1, 0, 0),
        Setting { is_mixed, ..of(3, 1, 500, 0) },
        Setting { is_fresh, is_mixed, ..of(3, 1, 500, 0) },
        of(5, 2, 500, 0),
        Setting { is_fresh, ..of(5, 1, 500, 1) },
        of(3, 0, 500, 0),
        Setting { trusts, ..of(3, 1, 500, 0) },
    ];
    excludes(&settings, 300, 3);
}

/// Where more servers forget than a quorum can spare; tokens grow by the clock.
#[test]
fn a_quorum_that_forgets_excludes() {
    excludes(&[of(3, 3, 0, 0), of(3, 3, TTL / 3, 0), of(5, 3, 0, 0), of(5, 4, 0, 1)], 350, 1);
}

#[test]
fn random_schedules_find_mutants() {
    for (mutant, apart) in [
        (Mutant::NoConfirm, 500),
        (Mutant::MinorityCounts, 0),
        (Mutant::NoPause, 0),
        (Mutant::PausesByTheOthers, 0),
        (Mutant::PausesByUptime, 0),
        (Mutant::KeepsRun, 0),
        (Mutant::AnyRequestIsFirst, 0),
        (Mutant::EveryReleaseSettles, 0),
    ] {
        let setting = Setting { apart, ..setting(mutant) };
        let found = (0..5_000).find_map(|seed| play(seed, setting, 300).0);
        assert!(found.is_some(), "{mutant:?} was not found");
        ::model::caught("quorum", mutant, "random schedules");
    }
}

/// Two contenders, with faults or without; every schedule is looked at.
#[derive(Clone, Hash)]
struct Pair {
    world: World,
    faults: bool,
}

impl ::model::World for Pair {
    type Step = Event;

    fn steps(&self, found: &mut Vec<(Event, Self)>) {
        for event in self.world.events(self.faults).into_iter().chain([Event::Pass(TTL / 2)]) {
            let mut next = self.clone();
            next.world.apply(event);
            found.push((event, next));
        }
    }

    fn broken(&self) -> Option<&'static str> {
        self.world.wrong.as_ref().map(|_| "one holds at a time, tokens grow, and releases are final")
    }
}

#[test]
fn no_short_schedule_breaks_it() {
    for faults in [false, true] {
        let setting = Setting { clients: 2, ..setting(Mutant::Original) };
        let pair = Pair { world: World::new(setting, vec![0, 7, 3]), faults };
        let explored = explore(&pair, Search::States(20_000));
        assert!(explored.wrong.is_none(), "{}", explored.wrong.unwrap());
        assert_eq!(explored.states, 20_000);
    }
}
