//! Records that are lost, begun, repaired and ended, by the real parts: three namespaces, processes and operators whose URLs need
//! not agree, stores that lose their data or die, foreign clients. A grant is one step here; what lies in it is the other model's.
//!
//! At every grant: one guard at most, but for a lock that was lost with its store's data and is granted in the same epoch, which the
//! invariants of the kit do not know; and its token grows. After every step: a record that was written again is believed; and `new`
//! begins when no foreign client was met for long enough.

mod foreign;
mod others;
mod processes;
mod worlds;

use std::hash::BuildHasher;

use leasehold_conformance::invariants::{Largest, grows};
use leasehold_core::Mode;
use leasehold_core::backend::TokenBase;
use leasehold_core::backend::stage::{Phase, Side, Stage};
use model::{Explored, OVERLAP as TWO, Search, TOKENS as BACKWARDS, assert_caught, explore};

use super::super::clean::{self, Clean};
use super::super::record::{End, MoveRecord, Stand};
use super::super::records::{Opening, Read, RecordLocation, in_store};
use super::super::repair::{self, Known, Repair};
use super::super::tokens::{WIDTH, Window};
use super::super::transition::{self, Transition, Way};
use super::super::view::Knowledge;
use super::super::{Class, Pair, SIDES};

/// Which namespaces a URL names.
const MOVE: Pair<usize> = Pair { old: 0, new: 1 };
const MISTYPED: Pair<usize> = Pair { old: 0, new: 2 };
const SECOND: Pair<usize> = Pair { old: 2, new: 1 };
const BACK: u8 = 1;
/// Holders of a lock that take no part: a foreign client, and a session with the old store's plain URL.
const FOREIGN: usize = 2;
const PLAIN: usize = 3;
/// How much time passes at once, and for how long no foreign client may have been met, in milliseconds.
const TICK: u64 = 2_000;
const QUIET: u64 = 2 * TICK;

/// What is done wrong, if anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Mutant {
    None,
    /// The new store's record does not know the old one's numbers.
    NoRange,
    /// No epoch is skipped that may have begun.
    NoSkip,
    /// Names are not compared.
    AnyNames,
    /// A move that was finished counts as given up.
    Unfinished,
    /// What is written again does not say so.
    NotCounted,
    /// A repair does not wait for what is held.
    ShortWait,
    /// A repair without a store leaves the move its id.
    KeepsId,
    /// A meeting is forgotten with the process.
    InMemory,
    /// A foreign client is met if it is still there after a while.
    NotesLate,
    /// One that stays is met when it is first found.
    MeetsOnce,
    /// The last step does not ask the old store.
    NoList,
    /// The last step replaces whatever record it finds.
    Overwrites,
    /// A holder without an entry is foreign.
    ByLabel,
    /// The last step does not count the sessions of the old store.
    Uncounted,
    /// Nor does it see that nothing bars such.
    Unbarred,
    /// A process goes on without the new store although the move's beginning was left halfway.
    Hasty,
    /// An end does not look whether the old store's record bars plain sessions.
    Unkept,
    /// A process starts by an old store's record that does not count, if the new one's was not there when it looked.
    Halved,
    /// First records have the id of the move that is there.
    OneId,
    /// A record that counts does not say of a late one that it was, once the move has ended there.
    Resurfaces,
    /// An end leaves records that do not count.
    LeavesLate,
    /// A repair without a store goes on from a record that does not count.
    TrustsFirst,
    /// The id of the move is that of the first record that a process reads.
    Unnamed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    mutant: Mutant,
    left: Left,
    places: [Store; 3],
    processes: [Process; 2],
    admin: Option<Work>,
    /// The URL of administrators.
    admins: Pair<usize>,
    granted: Largest<u64>,
    now: u64,
    /// When a foreign client was met last in `drain`.
    met: Option<u64>,
    /// One holds since before the administrator began.
    was_there: bool,
    broken: Option<&'static str>,
}

/// How much may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Left {
    losses: u8,
    /// First records that arrive in a store that has lost its data.
    late: u8,
    rewinds: u8,
    deaths: u8,
    returns: u8,
    starts: u8,
    grants: u8,
    steps: u8,
    repairs: u8,
    cleans: u8,
    freezes: u8,
    foreign: u8,
    ticks: u8,
    plain: u8,
    /// No plain session is granted anything.
    barred: bool,
    /// A process that opens reads the new store's record first, the other one later, and acts after that.
    apart: bool,
    /// Whatever record there is can be ended.
    ends: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Store {
    record: Option<Read>,
    base: u64,
    count: u64,
    members: [Option<u64>; 2],
    /// The holder of the lock.
    lock: Option<usize>,
    dead: bool,
    /// It has lost its last writes, and its record is that of `old`.
    rewound: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Process {
    url: Pair<usize>,
    /// The records as a process has read them that opens.
    opens: Pair<Option<Option<Read>>>,
    knowledge: Option<Knowledge>,
    id: u64,
    guard: Option<Guard>,
    /// It waits for a foreign client.
    waits: bool,
    /// It stands still: its entries have lapsed, and it holds until its deadline.
    frozen: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Guard {
    rests_on: [bool; 3],
    epoch: u64,
    /// Its lock was lost with a store's data.
    shaken: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Work {
    Step(Transition, Pair<Option<Read>>),
    Repair(Repair),
    Clean(Clean),
}

fn names(url: Pair<usize>) -> Pair<String> {
    Pair { old: url.old.to_string(), new: url.new.to_string() }
}

fn base(place: &Store) -> TokenBase {
    TokenBase::new(place.base, place.count + 1, None)
}

/// The first record of a move that begins.
fn first(id: u64, side: Side, url: Pair<usize>, store: TokenBase) -> MoveRecord {
    let stand = Stand { phase: Phase::Old, epoch: 0, window: Window::first(store).unwrap() };
    MoveRecord { id, side, stand, between: names(url), since: 0, restored: 0, end: None, met: None }
}

impl World {
    /// A move in that phase, with no process; `BACK` if it was further, and went back.
    fn at(phase: Phase, epoch: u8, left: Left) -> Self {
        let process = Process {
            url: MOVE,
            opens: Pair::default(),
            knowledge: None,
            id: 0,
            guard: None,
            waits: false,
            frozen: false,
        };
        let mut world = Self {
            mutant: Mutant::None,
            left,
            places: std::array::from_fn(|_| Store { count: 7, ..Store::default() }),
            processes: [process.clone(), process],
            admin: None,
            admins: MOVE,
            granted: Largest::new(),
            now: QUIET,
            met: None,
            was_there: false,
            broken: None,
        };
        // As a clock would have it.
        world.places[0].count = 3 * WIDTH;
        let none = base(&world.places[0]);
        for side in [Side::New, Side::Old] {
            let record = MoveRecord { restored: 1, ..first(5, side, MOVE, none) };
            world.places[MOVE[side]].record = Some(Read { version: 2, record });
        }
        let there = if epoch == BACK { Phase::Both } else { phase };
        for (way, to) in [(Way::Forth, there), (Way::Back, phase)] {
            while world.reads(MOVE).place().unwrap().phase() != to {
                world.admin = Some(Work::Step(Transition::new(way), Pair::default()));
                while world.admin.is_some() {
                    let mut found = Vec::new();
                    world.admin_does(&mut found);
                    world = found.swap_remove(0).1;
                }
            }
        }
        world
    }

    fn with(self, mutant: Mutant) -> Self {
        Self { mutant, ..self }
    }

    /// A move that has begun but for its last two writes.
    fn begun(left: Left) -> Self {
        let mut world = Self::at(Phase::Old, 0, left);
        let records = world.places.iter_mut().filter_map(|place| place.record.as_mut());
        records.for_each(|read| read.record.restored = 0);
        world
    }

    /// The same without the old store's record; an operator has raised the base there since.
    fn half_begun(left: Left) -> Self {
        let mut world = Self::begun(left);
        (world.places[MOVE.old].record, world.places[MOVE.old].base) = (None, 3 * WIDTH);
        world
    }

    /// No process has begun the move.
    fn fresh(left: Left) -> Self {
        let mut world = Self::at(Phase::Old, 0, left);
        world.places.iter_mut().for_each(|place| place.record = None);
        world
    }

    fn urls(mut self, processes: [Pair<usize>; 2], admins: Pair<usize>) -> Self {
        [self.processes[0].url, self.processes[1].url] = processes;
        Self { admins, ..self }
    }

    fn reads(&self, url: Pair<usize>) -> Pair<Option<Read>> {
        let read = |side: Side| {
            let mut read = self.places[url[side]].record.clone()?;
            match self.mutant {
                Mutant::Unfinished => read.record.end = read.record.end.map(|_| End::Left),
                Mutant::AnyNames => read.record.between = names(url),
                Mutant::NoRange if side == Side::New && read.record.stand.phase <= Phase::Shadow => {
                    read.record.stand.window = Window { offset: 0, low: 0, high: 0 };
                }
                _ => {}
            }
            Some(read)
        };
        let mut reads = Pair { old: read(Side::Old), new: read(Side::New) };
        let is_over = reads.new.as_ref().is_some_and(|new| new.record.end == Some(End::Moved));
        if let Some(old) = reads.old.as_mut().filter(|_| is_over && self.mutant == Mutant::Resurfaces) {
            old.record.restored = 1;
        }
        reads
    }

    /// Whether something can be done about the records but for deleting them: an end, a repair of what was lost, or a step.
    fn can_be_ended(&self) -> bool {
        let (reads, names) = (self.reads(MOVE), names(MOVE));
        let is_open = |side: Side| reads[side].as_ref().is_some_and(|read| read.record.end.is_none());
        if !SIDES.into_iter().any(is_open) {
            return true;
        }
        let known = Pair::each(|side| Known::Read(reads[side].clone()));
        let is_lost = reads.lost().is_some() || reads.place().is_some() && reads.kept(Side::Old).is_none();
        let is_repaired = || is_lost && Repair::new(names.clone(), 0, 6).looked(&known).is_ok();
        let goes_on = reads.place().is_some_and(|place| !matches!(place.phase(), Phase::Old | Phase::New));
        self.ends_all(&reads) || is_repaired() || goes_on && reads.of_one_move(&names).is_ok()
    }

    /// Whether an end leaves no record as it is.
    fn ends_all(&self, reads: &Pair<Option<Read>>) -> bool {
        let Ok(mut clean) = Clean::new(&self.cleaned(reads), &names(MOVE), true, true) else { return false };
        let mut open = Pair::each(|side| reads[side].as_ref().is_some_and(|read| read.record.end.is_none()));
        loop {
            match clean.task() {
                clean::Task::Nobody(_) => clean.nobody(true),
                clean::Task::Write { record, expected } => {
                    open[record.side] = false;
                    clean.written(expected + 1);
                }
                clean::Task::Done | clean::Task::InUse => return !open.old && !open.new,
            }
        }
    }

    /// What an end looks at.
    fn cleaned(&self, reads: &Pair<Option<Read>>) -> Pair<Option<Read>> {
        let over = |side: Side| reads[side].clone().filter(|read| read.record.end.is_some());
        let live = |side: Side| reads.live(side).cloned().filter(|read| read.record.restored > 0);
        match self.mutant {
            Mutant::LeavesLate => Pair::each(|side| live(side).or_else(|| over(side))),
            _ => reads.clone(),
        }
    }

    /// An id that no move has.
    fn draws(&self) -> u64 {
        let records = self.places.iter().map(|place| &place.record);
        let read = self.processes.iter().flat_map(|process| [&process.opens.old, &process.opens.new]);
        let ids = records.chain(read.flatten()).flatten().map(|read| read.record.id);
        let known: Vec<_> = ids.chain(self.processes.iter().map(|process| process.id)).collect();
        (9..).find(|id| !known.contains(id)).expect("few are known")
    }

    fn write(&mut self, at: usize, record: &MoveRecord) -> u64 {
        let mut record = record.clone();
        let place = &mut self.places[at];
        place.rewound = false;
        if self.mutant == Mutant::NotCounted {
            record.restored = 0;
        }
        let version = place.record.as_ref().map_or(0, |read| read.version) + 1;
        let read = place.record.insert(Read { version, record });
        read.seen().version
    }

    fn given(&mut self, i: usize, guard: Guard, token: Option<u64>) {
        if token.is_some_and(|token| !grows(&mut self.granted, Mode::EXCLUSIVE, token)) {
            self.broken = Some(BACKWARDS);
        }
        let others = self.processes.iter().filter_map(|process| process.guard);
        let is_plain = self.places.iter().any(|place| place.lock == Some(PLAIN));
        if is_plain || others.into_iter().any(|other| !other.shaken || other.epoch != guard.epoch) {
            self.broken = Some(TWO);
        }
        for at in (0..3).filter(|at| guard.rests_on[*at]) {
            self.places[at].lock = Some(i);
        }
        self.processes[i].guard = Some(guard);
    }

    /// What it has ends; and itself.
    fn ends(&mut self, i: usize, stops: bool) {
        for place in &mut self.places {
            place.lock = place.lock.filter(|holder| *holder != i);
            place.members[i] = place.members[i].filter(|_| !stops);
        }
        let process = &mut self.processes[i];
        process.guard = None;
        if stops {
            (process.knowledge, process.id, process.frozen, process.waits) = (None, 0, false, false);
            if self.mutant == Mutant::InMemory {
                self.places[MOVE.new].record.as_mut().unwrap().record.met = None;
            }
        }
    }
}

impl model::World for World {
    type Step = String;

    /// The two processes are alike.
    fn key(&self, hasher: &impl BuildHasher) -> u64 {
        let mut turned = self.clone();
        turned.processes.swap(0, 1);
        for place in &mut turned.places {
            place.members.swap(0, 1);
            place.lock = place.lock.map(|of| if of < FOREIGN { 1 - of } else { of });
        }
        hasher.hash_one(self).min(hasher.hash_one(turned))
    }

    fn steps(&self, found: &mut Vec<(String, Self)>) {
        for i in (0..2).filter(|_| !self.is_repaired()) {
            self.process_does(i, found);
        }
        self.stores_do(found);
        self.admin_does(found);
    }

    fn broken(&self) -> Option<&'static str> {
        let is_up = self.left.ends && self.places.iter().all(|place| !place.dead);
        let is_idle =
            self.admin.is_none() && self.processes.iter().all(|process| process.knowledge.is_none());
        self.broken.or_else(|| (is_up && is_idle && !self.can_be_ended()).then_some(KEPT))
    }
}

const UNBELIEVED: &str = "a record that was written again is not believed";
const NOISY: &str = "the last step while a foreign client was just met, or is there";
const OPEN: &str = "an end after which nothing bars the old store";
const OURS: &str = "one of ours is met";
const KEPT: &str = "a record that nothing ends";

/// More states than any of the worlds has.
const ALL: Search = Search::States(400_000);

/// Mutants, and what they come to.
type Caught = Vec<(Mutant, &'static str)>;

/// Nothing is wrong in any of them, and each mutant is caught where it must be.
#[test]
fn records_that_are_lost_and_ended_are_safe() {
    let mut failed = Vec::new();
    for (what, world, mutants) in worlds::all() {
        let Explored { states, all, wrong } = explore(&world, ALL);
        println!("{what}: {states} states");
        let found = wrong
            .map(|wrong| wrong.to_string())
            .or_else(|| (!all).then(|| format!("{states} states are not all")));
        failed.extend(found.map(|found| format!("{what}: {found}")));
        let row = |(mutant, rule)| (mutant, world.clone().with(mutant), ALL, rule);
        assert_caught(&format!("move, {what}"), mutants.into_iter().map(row));
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
