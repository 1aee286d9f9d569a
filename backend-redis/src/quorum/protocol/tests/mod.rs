//! The contender among model servers: bounded search, random schedules, and what is broken on purpose.

mod differential;
mod events;
mod model;
mod namespace;
mod recovery;
mod rules;
mod standings;
mod steps;
mod stories;
mod world;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

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

fn setting(mutant: Mutant) -> Setting {
    let (is_fresh, is_mixed) = (false, false);
    Setting {
        servers: 3,
        clients: 3,
        apart: 0,
        blank: 1,
        spare: 0,
        trusts: false,
        is_fresh,
        is_mixed,
        mutant,
    }
}

/// Plays one schedule; what was wrong with it, how many held, and what happened.
fn play(seed: u64, setting: Setting, steps: usize) -> (Option<String>, usize, Vec<Event>) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut skews: Vec<_> = (0..setting.servers).map(|_| dice.below(4) as u64 * setting.apart / 3).collect();
    skews.rotate_left(1);
    let mut world = World::new(setting, |at| skews[at]);
    let mut story = Vec::new();
    for _ in 0..steps {
        let event = choose(&mut dice, &world);
        story.push(event);
        world.apply(event);
        if world.wrong.is_some() {
            break;
        }
    }
    world.end();
    (world.wrong.take(), world.holds, story)
}

/// Mostly what moves on, and time that passes slowly.
fn choose(dice: &mut Dice, world: &World) -> Event {
    let is_rare = |event: &Event| match event {
        Event::Deliver(_) | Event::Start(_) | Event::Renew(_) => false,
        Event::Look(_, true) | Event::Recover(_) | Event::RecoverWith(..) => false,
        Event::Leave(_) | Event::Die(_) | Event::Lose(_) | Event::Delay(_) | Event::Save(_) => true,
        Event::Restart(..) | Event::Look(_, false) | Event::Pass(_) => true,
        Event::Force(_) | Event::ForceAt(..) => true,
        Event::Replace(_) | Event::Promote(..) | Event::PromoteInPlace(_) | Event::Empty(_) => true,
        Event::Step(_) | Event::SetBack(_) => true,
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
    events.retain(|event| is_rare(event) == wants_rare);
    let is_forced = |event: &Event| matches!(event, Event::Force(_) | Event::ForceAt(..));
    let is_drastic = |event: &Event| match event {
        Event::Restart(..) | Event::Replace(_) | Event::Promote(..) | Event::PromoteInPlace(_) => true,
        Event::Empty(_) | Event::Step(_) => true,
        event => is_forced(event),
    };
    if events.iter().any(is_drastic) && dice.below(4) == 0 {
        events.retain(is_drastic);
    }
    if events.is_empty() { Event::Pass(1) } else { events[dice.below(events.len())] }
}

fn seeds() -> u64 {
    testbed::Depth::of_run().pick(200, 1_000, 100_000)
}

/// Whatever is lost, late, forgotten or out of step: one holds at a time, and tokens grow.
#[test]
fn a_quorum_excludes_and_its_tokens_grow() {
    let mut holds = 0;
    for seed in 0..seeds() {
        for (servers, spare, blank, apart, (trusts, is_fresh, is_mixed)) in [
            (3, 0, 1, 0, (false, false, false)),
            (3, 0, 1, 500, (false, false, true)),
            (3, 0, 1, 500, (false, true, true)),
            (5, 0, 2, 500, (false, false, false)),
            (5, 1, 1, 500, (false, true, false)),
            (3, 0, 0, 500, (false, false, false)),
            (3, 0, 1, 500, (true, false, false)),
        ] {
            let of_all = setting(Mutant::None);
            let setting = Setting { servers, spare, blank, apart, trusts, is_fresh, is_mixed, ..of_all };
            let (wrong, held, story) = play(seed, setting, 300);
            assert_eq!(wrong, None, "seed {seed}, {setting:?}: {story:#?}");
            holds += held;
        }
    }
    assert!(holds as u64 > 3 * seeds(), "only {holds} held");
}

/// Where more servers forget than a quorum can spare, one still holds at a time; tokens grow by the clock.
#[test]
fn a_quorum_that_forgets_excludes() {
    let mut holds = 0;
    for seed in 0..seeds() {
        for (servers, spare, blank, apart) in [(3, 0, 3, 0), (3, 0, 3, TTL / 3), (5, 0, 3, 0), (5, 1, 4, 0)] {
            let setting = Setting { servers, spare, blank, apart, ..setting(Mutant::None) };
            let (wrong, held, story) = play(seed, setting, 350);
            assert_eq!(wrong, None, "seed {seed}, {setting:?}: {story:#?}");
            holds += held;
        }
    }
    assert!(holds as u64 > seeds(), "only {holds} held");
}

/// What is broken most plainly is found by chance.
#[test]
fn random_schedules_find_what_is_broken() {
    for (mutant, apart) in [
        (Mutant::NoConfirm, 500),
        (Mutant::MinorityCounts, 0),
        (Mutant::NoPause, 0),
        (Mutant::PausesByTheOthers, 0),
        (Mutant::PausesByUptime, 0),
        (Mutant::KeepsRun, 0),
    ] {
        let setting = Setting { apart, ..setting(mutant) };
        let found = (0..5_000).find_map(|seed| play(seed, setting, 300).0);
        assert!(found.is_some(), "{mutant:?} was not found");
        ::model::caught("quorum", mutant, "random schedules");
    }
}

/// All schedules of two contenders up to a depth, without faults and with.
#[test]
fn no_short_schedule_breaks_it() {
    for (faults, depth) in [(false, 7), (true, 4)] {
        let setting = Setting { clients: 2, apart: 7, ..setting(Mutant::None) };
        let mut seen = HashSet::new();
        let mut edge = vec![World::new(setting, |at| [0, 7, 3][at])];
        let mut holds = 0;
        for _ in 0..depth {
            let mut next = Vec::new();
            for world in edge {
                let mut events = world.events(faults);
                events.push(Event::Pass(TTL / 2));
                for event in events {
                    let mut after = world.clone();
                    after.apply(event);
                    assert_eq!(after.wrong, None, "{after:#?}");
                    holds = holds.max(after.holds);
                    let mut hash = DefaultHasher::new();
                    after.hash(&mut hash);
                    if seen.insert(hash.finish()) {
                        next.push(after);
                    }
                }
            }
            edge = next;
        }
        println!("{} states", seen.len());
        assert!(seen.len() > 5_000, "only {} states", seen.len());
        assert!(holds > 0 || faults, "nobody held");
    }
}
