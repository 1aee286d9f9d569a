//! The engine on a model of the store: requests that are lost, refused, answered late or applied long after
//! they were given up; watches that lag, repeat themselves, forget and are cut; sessions that end.

mod model;
mod mutant;
mod process;
mod sharing;
mod store;

use leasehold_core::clock::Moment;
use proptest::prelude::*;
use testbed::Depth;

use super::*;
use model::{MIXES, World};
use mutant::Mutant;
use process::{AHEAD, NOW};

/// Our key.
const OWN: &[u8] = b"m";

const LOOK: Step = Step::Look { create: 10, all: false };

fn waits() -> Contender {
    Contender::new(Patience::Waits, Mode::EXCLUSIVE, OWN)
}

fn step(contender: &Contender) -> Step {
    contender.next(NOW, AHEAD, &Told::default())
}

fn hears(contender: &Contender, told: &Told) -> Step {
    contender.next(NOW, AHEAD, told)
}

/// What an answer at a revision showed, with the watch of a number on the queue.
fn seen(revision: Revision, older: &[(u8, Revision)], watch: Option<WatchId>) -> QueueSnapshot {
    let older = older.iter().map(|(key, create)| rival(*key, *create, Mode::EXCLUSIVE)).collect();
    QueueSnapshot { revision, older, beyond: Beyond::Nobody, is_far: false, watch }
}

fn rival(key: u8, create: Revision, mode: Mode) -> Rival {
    Rival { key: [key].into(), create, mode }
}

fn answer(seen: QueueSnapshot, mine: Option<(Revision, bool)>) -> EntryReply {
    EntryReply { mine, seen, in_epoch: true }
}

/// Created at 10.
fn queued(older: &[(u8, Revision)], watch: Option<WatchId>) -> Contender {
    let mut contender = waits();
    asked(&mut contender, seen(10, older, watch), Some((10, true)));
    contender
}

fn asked(contender: &mut Contender, seen: QueueSnapshot, mine: Option<(Revision, bool)>) {
    contender.asked(answer(seen, mine), &Told::default());
}

fn looked(contender: &mut Contender, seen: Option<QueueSnapshot>) {
    contender.looked(seen, &Told::default());
}

/// Behind the nearest of more than are watched together.
fn far_behind(key: u8, create: Revision) -> Contender {
    let mut contender = waits();
    let nearest = QueueSnapshot { beyond: Beyond::Unknown, ..seen(10, &[(key, create), (b'a', 1)], None) };
    asked(&mut contender, nearest, Some((10, true)));
    contender
}

/// A watch that stands since a revision.
fn told(key: Option<u8>, id: WatchId, since: Revision) -> Told {
    let (mut told, key) = (Told::default(), key.map(|key| [key].into()));
    told.open(key.as_ref(), id);
    told.stands(key.as_ref(), since);
    told
}

fn tell(told: &mut Told, key: u8, at: Revision) {
    let of = told.queue.is_none().then(|| [key].into());
    told.tell(of.as_ref(), &[Change { revision: at, key: [key].into(), value: None }], true);
}

/// A hold that is given back.
fn leaving(create: Revision, mode: Mode) -> Contender {
    let leaving = Some(End::Left);
    Contender { entry: EntryState::Stray(create), leaving, ..Contender::new(Patience::Waits, mode, OWN) }
}

/// Who looks again after an answer that has shown something later has no reason to pause: the next one before us may
/// have left by then. One that shows nothing later came from a server that lags behind.
#[test]
fn only_an_answer_that_shows_nothing_later_is_asked_for_in_vain() {
    let (mut contender, mut repeats) = (far_behind(b'b', 5), Repeats::default());
    let gone = |key, at| {
        let mut told = told(Some(key), 1, 9);
        tell(&mut told, key, at);
        told
    };
    let nearest =
        |key, revision| Some(QueueSnapshot { beyond: Beyond::Unknown, ..seen(revision, &[(key, 4)], None) });
    let look = LOOK;
    assert_eq!(hears(&contender, &gone(b'b', 11)), look);
    assert!(!repeats.is_in_vain(&look, &contender));
    looked(&mut contender, nearest(b'a', 12));
    assert_eq!(hears(&contender, &gone(b'a', 13)), look);
    assert!(!repeats.is_in_vain(&look, &contender));
    looked(&mut contender, nearest(b'a', 11));
    assert_eq!(hears(&contender, &gone(b'a', 13)), look);
    assert!(repeats.is_in_vain(&look, &contender));
    repeats.end();
    assert!(!repeats.is_in_vain(&look, &contender));
}

/// A watch that began after the answer may have missed something: one read, whatever revision it names.
#[test]
fn a_late_watch_costs_a_read() {
    let mut contender = queued(&[(b'a', 3)], None);
    assert_eq!(step(&contender), Step::Open(Target::Queue));
    let mut opening = Told::default();
    opening.open(None, 1);
    assert_eq!(hears(&contender, &opening), Step::Wait);
    for since in [8, 13] {
        assert_eq!(hears(&contender, &told(None, 1, since)), LOOK, "since {since}");
    }
    looked(&mut contender, Some(seen(12, &[(b'a', 3)], Some(1))));
    assert_eq!(hears(&contender, &told(None, 1, 13)), LOOK, "an answer older than the watch");
    looked(&mut contender, Some(seen(13, &[(b'a', 3)], Some(1))));
    assert_eq!(hears(&contender, &told(None, 1, 13)), Step::Wait);
    looked(&mut contender, Some(seen(12, &[], Some(1))));
    assert_eq!(hears(&contender, &told(None, 1, 13)), Step::Wait, "an answer older than the latest");
    looked(&mut contender, Some(seen(14, &[], Some(1))));
    assert_eq!(hears(&contender, &told(None, 1, 13)), Step::End(End::Granted(10)));
}

/// All deletions of one revision are taken in before anything is decided.
#[test]
fn our_own_deletion_in_the_same_revision_counts() {
    let (contender, mut told) = (queued(&[(b'a', 3)], Some(1)), told(None, 1, 9));
    tell(&mut told, b'a', 11);
    tell(&mut told, b'm', 11);
    assert_eq!(hears(&contender, &told), Step::End(End::Lost(LostReason::Gone)));
}

/// While a request is under way nobody knows what it will show: what is told meanwhile is kept, of every key.
#[test]
fn deletion_told_during_a_request_is_kept() {
    for is_heard in [true, false] {
        let (mut contender, mut told) = (far_behind(b'p', 7), told(None, 1, 9));
        told.wait_for(contender.awaited());
        contender.doubt();
        assert_eq!(hears(&contender, &told), LOOK);
        if is_heard {
            assert_eq!(told.listen(), Some(1));
        }
        tell(&mut told, b'p', 12);
        contender.looked(Some(seen(11, &[(b'p', 7)], Some(1))), &told);
        told.wait_for(contender.awaited());
        let then = if is_heard { Step::End(End::Granted(10)) } else { Step::Wait };
        assert_eq!(hears(&contender, &told), then);
    }
}

/// Far from its turn, a watch is opened on the past: it is slow, and needs no read.
#[test]
fn a_watch_on_the_past_covers_the_answer() {
    let mut contender = waits();
    let far = QueueSnapshot { beyond: Beyond::Unknown, is_far: true, ..seen(10, &[(b'p', 7)], None) };
    asked(&mut contender, far, Some((10, true)));
    assert_eq!(step(&contender), Step::Open(Target::Key([b'p'].into(), Some(11))));
    assert_eq!(hears(&contender, &told(Some(b'p'), 1, 10)), Step::Wait);
    contender.doubt();
    assert_eq!(step(&contender), LOOK, "our own end may have been missed");
    looked(&mut contender, Some(seen(9, &[], None)));
    assert_eq!(step(&contender), LOOK, "a reply older than the latest");
}

/// Any number may come from a server.
#[test]
fn there_is_nothing_after_the_last_revision() {
    let far =
        QueueSnapshot { beyond: Beyond::Unknown, is_far: true, ..seen(Revision::MAX, &[(b'p', 7)], None) };
    let mut contender = waits();
    asked(&mut contender, far, Some((10, true)));
    assert_eq!(step(&contender), Step::Open(Target::Key([b'p'].into(), Some(Revision::MAX))));
}

/// What is looked at when nothing is told: the youngest of those that are left.
#[test]
fn a_witness_is_one_that_is_left() {
    let (contender, mut told) = (queued(&[(b'b', 5), (b'a', 3)], Some(1)), told(None, 1, 9));
    let blocking_set = |told: &Told| contender.place().unwrap().blocking_set(told);
    assert_eq!(blocking_set(&told), [rival(b'b', 5, Mode::EXCLUSIVE)]);
    tell(&mut told, b'b', 11);
    assert_eq!(blocking_set(&told), [rival(b'a', 3, Mode::EXCLUSIVE)]);
}

/// What was not asked, or certainly was not done, needs no clean-up.
#[test]
fn a_request_that_was_not_applied_leaves_nothing() {
    let mut contender = waits();
    contender.abandon();
    assert_eq!(step(&contender), Step::End(End::Left));
}

/// Past the deadline nothing is held, asked for or cleaned up: the lease ends it.
#[test]
fn a_session_that_is_over_ends_everything() {
    for contender in [waits(), queued(&[], None), queued(&[(b'a', 3)], Some(1)), leaving(3, Mode::EXCLUSIVE)]
    {
        assert_eq!(
            contender.next(Moment::from_nanos(2), AHEAD, &Told::default()),
            Step::End(End::Lost(LostReason::SessionLost))
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(Depth::of_run().pick(500, 2_000, 100_000)))]

    /// etcd.protocol-1 to 3 in every order of everything that can happen, and everybody holds in the end,
    /// or nothing of them is left on a server that is full.
    #[test]
    fn nothing_that_happens_breaks_a_promise(
        choices in prop::collection::vec(any::<u16>(), 0..250),
        is_full_then: bool,
        mix in 0..MIXES,
    ) {
        let mut world = World::new(None, mix);
        for choice in choices {
            world.act(choice).map_err(TestCaseError::fail)?;
        }
        let end = if is_full_then { world.fill_up() } else { world.calm_down() };
        end.map_err(TestCaseError::fail)?;
    }
}

/// Each planted fault breaks a promise, most within some thousand random runs; a check that finds nothing
/// proves nothing.
#[test]
fn planted_faults_are_found() {
    for mutant in Mutant::OF_ALL_MODES {
        finds(mutant, |_seed| 0);
    }
}

/// So does each that is about locks that several hold.
#[test]
fn planted_faults_of_sharing_are_found() {
    for mutant in Mutant::OF_SHARING {
        finds(mutant, |seed| seed / 2);
    }
}

fn finds(mutant: Mutant, mix: fn(usize) -> usize) {
    let found = (0..100_000).any(|seed| {
        let mut dice = Dice(seed * 2 + 1);
        let mut world = World::new(Some(mutant), mix(seed as usize));
        (0..250).any(|_| world.act(dice.roll()).is_err())
            || if seed % 2 == 0 { world.calm_down() } else { world.fill_up() }.is_err()
    });
    assert!(found, "{mutant:?} was not found out");
    ::model::caught("etcd", mutant, "random schedules");
}

/// A small generator: the runs with planted faults are the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u16 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 48) as u16
    }
}
