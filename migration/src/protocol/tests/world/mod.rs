//! The model: what the real parts are among. `processes` is what those do that move, `others` all the rest.

mod others;
mod processes;

use std::hash::BuildHasher;

use itertools::Itertools;
use leasehold_core::Mode;
use leasehold_core::backend::TokenBase;
use leasehold_core::backend::stage::{Phase, Side, Stage};
use model::Held;

use super::super::contender::{Contender, End, Step};
use super::super::hold::PairHold;
use super::super::parts::Part;
use super::super::record::{Seen, Stand};
use super::super::tokens::Window;
use super::super::transition::{Task, Transition, Way};
use super::super::view::Knowledge;
use super::super::{Class, Pair};
use super::mutants::Mutant;

pub(super) const SIDES: [Side; 2] = [Side::Old, Side::New];

/// Everything there is: `P` processes that move, `L` sessions that do not, `A` administrators.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World<const P: usize, const L: usize, const A: usize> {
    pub(super) mutant: Mutant,
    pub(super) left: Left,
    stores: Pair<Store<P>>,
    processes: [Process; P],
    plain: [Plain; L],
    admins: [Option<Admin>; A],
    /// Stores number entries when they queue, and not when they are granted.
    numbered: bool,
    broken: Option<&'static str>,
}

/// How much may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Left {
    /// Steps that administrators begin.
    pub(super) transitions: u8,
    pub(super) acquisitions: u8,
    /// Deaths, cuts, entries that lapse.
    pub(super) faults: u8,
    /// Sessions that take no part are opened.
    pub(super) openings: u8,
    /// Acquisitions that are given up, or do not wait.
    pub(super) impatience: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Store<const P: usize> {
    record: Seen,
    lock: Lock,
    count: u64,
    base: u64,
    /// The version that each process in the list acknowledges; 0 is none.
    members: [Option<u64>; P],
    /// The numbers of waiters, if they have any.
    queued: [Option<u64>; P],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Lock {
    Free,
    Process(usize),
    Plain(usize),
    /// Its owner is gone, and its lease is not over.
    Orphan,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Process {
    knowledge: Knowledge,
    work: Work,
    /// It has sent a read of the old store's record.
    reading: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Work {
    #[default]
    Idle,
    Asking(Contender),
    /// With that token.
    Holding(PairHold, u64),
}

/// A session that takes no part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Plain {
    side: Side,
    life: Life,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Life {
    /// It has not come yet, or was away and is not counted.
    Closed,
    /// Open from before there was a record.
    Early,
    /// It counts, and knows nothing.
    Opening,
    /// It knows the base, and not the record.
    Hasty {
        base: u64,
    },
    Admitted,
    Open {
        base: u64,
    },
    Holds {
        base: u64,
        token: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Admin {
    step: Transition,
    /// What was read.
    reads: Pair<Option<Seen>>,
}

/// What happened.
#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "shown by Debug, which does not count")]
pub(super) enum Label {
    Signs(usize, Side),
    Reads(usize, Side, Phase),
    Acknowledges(usize, Side, u64),
    Begins(usize),
    Granted(usize, Side),
    CannotReachOld(usize),
    IsBusy(usize, Side),
    GivesUp(usize),
    LooksAfterGrant(usize, Phase),
    Takes(usize, u64),
    LetsGo(usize),
    Released(usize, Side),
    Dies(usize),
    IsCutFrom(usize, Side),
    LapsesAt(usize, Side),
    LeaseEnds(Side),
    PlainOpens(usize),
    PlainReadsRecord(usize, Phase),
    PlainReadsBase(usize, u64),
    PlainTakes(usize, u64),
    PlainReleases(usize),
    PlainCloses(usize),
    AdminBegins(usize, Way),
    AdminStops(usize),
    Admin(usize, Task),
    CannotRead(usize, Side),
    Conflict(usize, Side),
}

impl<const P: usize, const L: usize, const A: usize> World<P, L, A> {
    /// In that phase, or with the old store barred and the new one not open.
    pub(super) fn new(phase: Phase, barred: bool, left: Left, plain: [Side; L]) -> Self {
        let none = TokenBase::new(0, 1, None);
        let window = Window::first(none).expect("there is room");
        let mut stand = Stand { phase, epoch: 0, window };
        let mut offset = 0;
        if phase > Phase::Shadow {
            stand.window = stand.window.next(none).expect("there is room");
            (stand.epoch, offset) = (1, stand.window.offset);
        }
        let old = stand.with(phase.min(Phase::Drain));
        let new = match phase {
            Phase::Old | Phase::Shadow => stand,
            Phase::Drain if barred => stand.with(Phase::Both),
            Phase::Both | Phase::Drain | Phase::New => stand,
        };
        let base = if phase > Phase::Both { offset } else { 0 };
        let store = |stand, base| Store {
            record: Seen { version: 1, stand },
            lock: Lock::Free,
            count: 0,
            base,
            members: [None; P],
            queued: [None; P],
        };
        Self {
            mutant: Mutant::None,
            left,
            stores: Pair { old: store(old, 0), new: store(new, base) },
            processes: [Process::default(); P],
            plain: plain.map(|side| Plain { side, life: Life::Closed }),
            admins: [const { None }; A],
            numbered: false,
            broken: None,
        }
    }

    /// The same with that mutant.
    pub(super) fn with(self, mutant: Mutant) -> Self {
        Self { mutant, ..self }
    }

    /// The same, its processes up and known to everybody.
    pub(super) fn ready(mut self) -> Self {
        for i in 0..P {
            for side in SIDES {
                self.processes[i].knowledge.signed(side);
                self.processes[i].knowledge.learn(side, self.stores[side].record).expect("it is the first");
            }
            for side in SIDES {
                self.processes[i].knowledge.acknowledge(side, false);
                self.stores[side].members[i] = Some(1);
            }
        }
        self
    }

    /// The same, one of its processes not yet started.
    pub(super) fn fresh(mut self, i: usize) -> Self {
        self.processes[i] = Process::default();
        for side in SIDES {
            self.stores[side].members[i] = None;
        }
        self
    }

    /// The same, its plain sessions open from before there was a record.
    pub(super) fn early(mut self) -> Self {
        self.plain.iter_mut().for_each(|plain| plain.life = Life::Early);
        self
    }

    /// The same, with stores that number entries when they queue.
    pub(super) fn numbered(self) -> Self {
        Self { numbered: true, ..self }
    }

    /// The same, with other names for its processes: the first one is that of the first number, and so on.
    fn in_order(&self, order: &[usize]) -> Self {
        let mut world = self.clone();
        for (i, was) in order.iter().enumerate() {
            world.processes[i] = self.processes[*was];
            for side in SIDES {
                let (store, before) = (&mut world.stores[side], &self.stores[side]);
                (store.members[i], store.queued[i]) = (before.members[*was], before.queued[*was]);
                if before.lock == Lock::Process(*was) {
                    store.lock = Lock::Process(i);
                }
            }
        }
        world
    }

    /// Whether locks are, or have been, in both stores: a session from before excludes no other.
    fn has_come_to_both(&self) -> bool {
        self.stores.old.record.stand.epoch > 0
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == mutant
    }

    /// The process's view may have changed; then it does what takes no time.
    fn settle(&mut self, i: usize) {
        let view = self.processes[i].knowledge.view();
        let (mutant, Process { work, reading, .. }) = (self.mutant, &mut self.processes[i]);
        match work {
            Work::Idle => {}
            Work::Asking(contender) => {
                let takes = matches!({ *contender }.step(), Step::Take { .. });
                let stale = match mutant {
                    Mutant::NoRecheck => takes && contender.parts.alone(Side::New),
                    Mutant::StaleRead => takes && contender.parts.held(Side::Old),
                    _ => false,
                };
                if !stale {
                    contender.viewed(view);
                }
                loop {
                    match contender.step() {
                        Step::Do(_) => {}
                        Step::Read if mutant == Mutant::NoRead => contender.read(),
                        Step::Read => *reading = true,
                        Step::Take { .. } | Step::Wait => break,
                        Step::Over(end) => {
                            if end == End::Outside {
                                self.broken = Some("an acquisition that ends for its number");
                            }
                            (*work, *reading) = (Work::Idle, false);
                            break;
                        }
                    }
                }
            }
            Work::Holding(hold, _) => {
                hold.viewed(view);
                while hold.step().is_some() {}
                if hold.is_gone() {
                    *work = Work::Idle;
                }
            }
        }
        self.queue(i);
    }

    /// A waiter has a number, and loses it when it leaves.
    fn queue(&mut self, i: usize) {
        for side in SIDES.into_iter().filter(|_| self.numbered) {
            let waits = self.parts(i)[side] == Part::Asked;
            let store = &mut self.stores[side];
            if !waits {
                store.queued[i] = None;
            } else if store.queued[i].is_none() {
                store.count += 1;
                store.queued[i] = Some(store.count);
            }
        }
    }

    /// Whether it is that one's turn.
    fn is_first(&self, i: usize, side: Side) -> bool {
        let queued = &self.stores[side].queued;
        queued.iter().flatten().all(|other| queued[i].is_none_or(|own| own <= *other))
    }

    fn parts(&self, i: usize) -> Pair<Part> {
        match &self.processes[i].work {
            Work::Idle => Pair::default(),
            Work::Asking(contender) => contender.parts,
            Work::Holding(hold, _) => hold.parts,
        }
    }

    /// Whether a client holds in that store alone, or would be granted there alone.
    fn rests_on(&self, side: Side) -> bool {
        let class = match side {
            Side::Old => Class::Old,
            Side::New => Class::New,
        };
        let moving = self.processes.iter().any(|process| {
            let holds = matches!(&process.work, Work::Holding(hold, _) if hold.alone(side));
            holds || process.knowledge.view().is_some_and(|view| view.class() == class)
        });
        let open = |life| match life {
            Life::Open { .. } | Life::Holds { .. } | Life::Admitted => true,
            Life::Early => self.has_come_to_both(),
            Life::Closed | Life::Opening | Life::Hasty { .. } => false,
        };
        moving || self.plain.iter().any(|plain| plain.side == side && open(plain.life))
    }

    fn grant(&mut self, i: usize, side: Side) {
        let store = &mut self.stores[side];
        store.lock = Lock::Process(i);
        store.count += u64::from(!self.numbered);
        let raw = store.queued[i].unwrap_or(store.count);
        match &mut self.processes[i].work {
            Work::Idle => unreachable!("nothing is asked"),
            Work::Asking(contender) => contender.granted(side, raw),
            Work::Holding(hold, _) => hold.granted(side, raw),
        }
        self.settle(i);
    }

    /// What the process has at `side` is over.
    fn gone(&mut self, i: usize, side: Side) {
        let forgets = self.is(Mutant::LeftBehind);
        match &mut self.processes[i].work {
            Work::Idle => {}
            Work::Asking(contender) => contender.gone(side),
            Work::Holding(hold, _) => {
                let was_over = hold.over;
                if !hold.gone(side) && !was_over && forgets {
                    self.processes[i].work = Work::Idle;
                }
            }
        }
        self.settle(i);
    }

    fn orphan(&mut self, i: usize, side: Side) {
        let store = &mut self.stores[side];
        if store.lock == Lock::Process(i) {
            store.lock = Lock::Orphan;
        }
    }
}

impl<const P: usize, const L: usize, const A: usize> model::World for World<P, L, A> {
    type Step = Label;

    fn steps(&self, found: &mut Vec<(Label, Self)>) {
        for i in 0..P {
            self.processes_do(i, found);
        }
        for k in 0..L {
            self.plain_does(k, found);
        }
        for a in 0..A {
            self.admin_does(a, found);
        }
        for side in SIDES {
            if self.stores[side].lock == Lock::Orphan {
                let mut next = self.clone();
                next.stores[side].lock = Lock::Free;
                found.push((Label::LeaseEnds(side), next));
            }
        }
    }

    fn held(&self) -> Vec<Held> {
        let moving = self.processes.iter().map(|process| match process.work {
            Work::Holding(hold, token) if !hold.over => Some(token),
            _ => None,
        });
        let plain = self.plain.iter().map(|plain| match plain.life {
            Life::Holds { token, .. } => Some(token),
            _ => None,
        });
        let tokens = moving.chain(plain).enumerate();
        let held = |(actor, token): (_, Option<_>)| {
            Some(Held { actor, mode: Mode::EXCLUSIVE, counter: token?, is_overruled: false })
        };
        tokens.filter_map(held).collect()
    }

    fn broken(&self) -> Option<&'static str> {
        let owned = |side: Side| match self.stores[side].lock {
            Lock::Process(i) => {
                matches!(self.parts(i)[side], Part::Held(_) | Part::Leaving) || self.is(Mutant::OrderFlip)
            }
            Lock::Free | Lock::Plain(_) | Lock::Orphan => true,
        };
        let all_owned = owned(Side::Old) && owned(Side::New);
        let apart = self.rests_on(Side::Old) && self.rests_on(Side::New);
        let broken = self.broken.or_else(|| (!all_owned).then_some("a lock without a holder"));
        broken.or_else(|| apart.then_some("one rests on the old store alone, another on the new one"))
    }

    /// Processes and administrators are all alike, but for the mutant that has a first one.
    fn key(&self, hasher: &impl BuildHasher) -> u64 {
        if self.is(Mutant::OrderFlip) {
            return hasher.hash_one(self);
        }
        let mut sorted = self.clone();
        sorted.admins.sort_by_cached_key(|admin| hasher.hash_one(admin));
        let orders = (0..P).permutations(P).map(|order| hasher.hash_one(sorted.in_order(&order)));
        orders.min().expect("there is one order at least")
    }

    fn is_at_rest(&self) -> bool {
        let idle = self.processes.iter().all(|process| process.work == Work::Idle);
        idle && SIDES.iter().all(|side| self.stores[*side].lock == Lock::Free)
    }

    fn goes_by_itself(&self, next: &Self) -> bool {
        self.left == next.left
    }
}
