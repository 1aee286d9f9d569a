//! What is done wrong, one rule at a time: switches in the model's wiring around the real parts. Each must be caught.

use leasehold_core::backend::stage::{Phase, Side};

use super::search::{Shown, search, search_to_rest};
use super::world::{Left, World};

/// What is done wrong, if anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Mutant {
    None,
    /// A process reads the records, then puts itself into the lists.
    ReadFirst,
    /// Entries lapse, and what rests on them goes on.
    NoBound,
    /// The look after the grant is answered from what is known.
    NoRead,
    /// What was read is taken although a newer version is known.
    StaleRead,
    /// What acknowledged any version counts as acknowledging this one.
    AckAny,
    /// A version is acknowledged while a hold contradicts it.
    AckEarly,
    /// From `shadow` to `both` without waiting for members.
    SkipShadow,
    /// From `both` to `drain` without waiting for members.
    DrainUnchecked,
    /// From `drain` to `both` without waiting for members.
    BackUnchecked,
    /// The old store is not barred before the new one is opened.
    NoBar,
    /// What was begun goes on without a new bar.
    ResumeUnbumped,
    /// A rollback leaves the new store's record as it is if that is closed.
    ClosedNotReplaced,
    /// Whoever has the new store's lock alone takes it without looking at the view.
    NoRecheck,
    /// One process waits for the new store first.
    OrderFlip,
    /// Records are replaced if their phase is the expected one.
    ComparesPhases,
    /// A hold that is lost leaves what it has in the other store.
    LeftBehind,
    /// Plain sessions may open the old store until `both`.
    BarredLate,
    /// Plain sessions are not counted.
    Uncounted,
    /// Plain sessions that the new store had before there was a record are not counted.
    EarlyUncounted,
    /// Plain sessions read the base before the record.
    BaseFirst,
    /// Plain sessions that were away have the base of before.
    KeepsBase,
    /// The base is not raised before a store is opened again.
    NoRaise,
}

/// More than any of them takes.
const LIMIT: usize = 600_000;

const APART: &str = "one rests on the old store alone, another on the new one";
const BACKWARDS: &str = "a token that does not grow";

fn left(transitions: u8, acquisitions: u8) -> Left {
    Left { transitions, acquisitions, ..Left::default() }
}

fn two(phase: Phase, left: Left) -> World<2, 0, 1> {
    World::new(phase, false, left, []).ready()
}

fn two_admins(phase: Phase, barred: bool) -> World<2, 0, 2> {
    World::new(phase, barred, left(3, 0), []).ready()
}

fn one_beside(phase: Phase, side: Side, transitions: u8) -> World<1, 1, 1> {
    World::new(phase, false, Left { openings: 1, ..left(transitions, 2) }, [side]).ready()
}

/// What is wrong with it, and the shortest way there.
fn dies(mutant: Mutant, of: &str, shown: Shown) {
    let Shown { states, wrong, .. } = shown;
    let (wrong, way) = wrong.unwrap_or_else(|| panic!("{mutant:?} lives after {states} states"));
    println!("{mutant:?}: {wrong}, {} steps, {states} states\n  {}", way.len(), way.join("\n  "));
    assert_eq!(wrong, of, "{mutant:?}");
}

/// Members: who signs, reads and acknowledges what.
#[test]
fn mutants_of_the_lists_are_caught() {
    use Mutant::{AckAny, AckEarly, NoBound, ReadFirst};
    let late = two(Phase::Shadow, left(2, 0)).fresh(0);
    dies(ReadFirst, APART, search(late.with(ReadFirst), LIMIT));
    let lapses = two(Phase::Shadow, Left { faults: 1, ..left(2, 0) });
    dies(NoBound, APART, search(lapses.with(NoBound), LIMIT));
    dies(AckAny, APART, search(two(Phase::Drain, left(2, 0)).with(AckAny), LIMIT));
    dies(AckEarly, APART, search(two(Phase::Drain, left(2, 1)).with(AckEarly), LIMIT));
}

/// Acquisitions and holds: what a grant rests on, and what is left of it.
#[test]
fn mutants_of_grants_are_caught() {
    use Mutant::{LeftBehind, NoRead, NoRecheck, OrderFlip, StaleRead};
    dies(NoRead, BACKWARDS, search(two(Phase::Shadow, left(2, 2)).with(NoRead), LIMIT));
    dies(StaleRead, APART, search(two(Phase::Shadow, left(2, 1)).with(StaleRead), LIMIT));
    dies(NoRecheck, APART, search(two(Phase::Drain, left(2, 1)).with(NoRecheck), LIMIT));
    let flipped = two(Phase::Both, left(0, 2)).with(OrderFlip);
    dies(OrderFlip, "cannot come to rest", search_to_rest(flipped, LIMIT));
    let cut = two(Phase::Both, Left { faults: 1, ..left(0, 1) });
    dies(LeftBehind, "held for nobody", search(cut.with(LeftBehind), LIMIT));
}

/// Administrators: what is waited for, and what is written although it seems to be there.
#[test]
fn mutants_of_transitions_are_caught() {
    use Mutant::{BackUnchecked, DrainUnchecked, NoBar, SkipShadow};
    dies(SkipShadow, BACKWARDS, search(two(Phase::Old, left(2, 2)).with(SkipShadow), LIMIT));
    dies(DrainUnchecked, APART, search(two(Phase::Shadow, left(2, 0)).with(DrainUnchecked), LIMIT));
    dies(BackUnchecked, APART, search(two(Phase::Drain, left(2, 0)).with(BackUnchecked), LIMIT));
    dies(NoBar, APART, search(two(Phase::Both, left(2, 0)).with(NoBar), LIMIT));
}

/// Two administrators at once.
#[test]
fn mutants_of_repeated_steps_are_caught() {
    use Mutant::{ClosedNotReplaced, ComparesPhases, ResumeUnbumped};
    let barred = || two_admins(Phase::Drain, true);
    dies(ResumeUnbumped, APART, search(barred().with(ResumeUnbumped), LIMIT));
    dies(ClosedNotReplaced, APART, search(barred().with(ClosedNotReplaced), LIMIT));
    let open = two_admins(Phase::Drain, false);
    dies(ComparesPhases, APART, search(open.with(ComparesPhases), LIMIT));
}

/// Sessions that take no part.
#[test]
fn mutants_of_plain_sessions_are_caught() {
    use Mutant::{BarredLate, BaseFirst, EarlyUncounted, KeepsBase, NoRaise, Uncounted};
    let old = |phase| one_beside(phase, Side::Old, 2);
    dies(BarredLate, BACKWARDS, search(old(Phase::Shadow).with(BarredLate), LIMIT));
    dies(BaseFirst, BACKWARDS, search(old(Phase::Both).with(BaseFirst), LIMIT));
    dies(KeepsBase, BACKWARDS, search(old(Phase::Both).with(KeepsBase), LIMIT));
    dies(NoRaise, BACKWARDS, search(old(Phase::Both).with(NoRaise), LIMIT));
    dies(Uncounted, BACKWARDS, search(old(Phase::Old).with(Uncounted), LIMIT));
    let new = one_beside(Phase::New, Side::New, 3);
    dies(Uncounted, APART, search(new.with(Uncounted), LIMIT));
    let early = one_beside(Phase::Shadow, Side::New, 2).early();
    dies(EarlyUncounted, APART, search(early.with(EarlyUncounted), LIMIT));
}
