//! What is done wrong, one rule at a time: switches in the model's wiring around the real parts. Each must be caught.

use leasehold_core::backend::stage::{Phase, Side};
use model::{Search, TOKENS as BACKWARDS, assert_caught};

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
    /// An old read of the record is used although a newer version is known.
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
    /// A step that was begun goes on without a new bar.
    ResumeUnbumped,
    /// A rollback leaves the new store's record as it is if that is closed.
    ClosedNotReplaced,
    /// A client that has the new store's lock alone takes it without looking at the view.
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

/// More states than any of them takes.
const ALL: Search = Search::States(600_000);

const APART: &str = "one rests on the old store alone, another on the new one";

fn left(transitions: u8, acquisitions: u8) -> Left {
    Left { transitions, acquisitions, ..Left::default() }
}

fn caught<const P: usize, const L: usize, const A: usize>(
    mutants: impl IntoIterator<Item = (Mutant, World<P, L, A>, &'static str)>,
) {
    let row = |(mutant, world, rule): (_, World<P, L, A>, _)| (mutant, world.with(mutant), ALL, rule);
    assert_caught("move", mutants.into_iter().map(row));
}

/// Two processes: the lists they are in, what a grant rests on, what is left of it, and what a step waits for.
#[test]
fn mutants_of_processes_and_steps_are_caught() {
    use Mutant::*;
    use Phase::{Both, Drain, Old, Shadow};
    let at = |phase, left| World::<2, 0, 1>::new(phase, false, left, []).ready();
    let fault = |left| Left { faults: 1, ..left };
    caught([
        (ReadFirst, at(Shadow, left(2, 0)).fresh(0), APART),
        (NoBound, at(Shadow, fault(left(2, 0))), APART),
        (AckAny, at(Drain, left(2, 0)), APART),
        (AckEarly, at(Drain, left(2, 1)), APART),
        (NoRead, at(Shadow, left(2, 2)), BACKWARDS),
        (StaleRead, at(Shadow, left(2, 1)), APART),
        (NoRecheck, at(Drain, left(2, 1)), APART),
        (LeftBehind, at(Both, fault(left(0, 1))), "a lock without a holder"),
        (SkipShadow, at(Old, left(2, 2)), BACKWARDS),
        (DrainUnchecked, at(Shadow, left(2, 0)), APART),
        (BackUnchecked, at(Drain, left(2, 0)), APART),
        (NoBar, at(Both, left(2, 0)), APART),
    ]);
    let flipped = at(Both, left(0, 2)).with(OrderFlip);
    assert_caught("move", [(OrderFlip, flipped, Search::ToRest(600_000), "cannot come to rest")]);
}

/// Two administrators at once.
#[test]
fn mutants_of_repeated_steps_are_caught() {
    let at_drain = |barred| World::<2, 0, 2>::new(Phase::Drain, barred, left(3, 0), []).ready();
    caught([
        (Mutant::ResumeUnbumped, at_drain(true), APART),
        (Mutant::ClosedNotReplaced, at_drain(true), APART),
        (Mutant::ComparesPhases, at_drain(false), APART),
    ]);
}

/// Sessions that take no part.
#[test]
fn mutants_of_plain_sessions_are_caught() {
    use Mutant::{BarredLate, BaseFirst, EarlyUncounted, KeepsBase, NoRaise, Uncounted};
    use Phase::{Both, New, Old, Shadow};
    let beside = |phase, side, transitions| {
        World::<1, 1, 1>::new(phase, false, Left { openings: 1, ..left(transitions, 2) }, [side]).ready()
    };
    caught([
        (BarredLate, beside(Shadow, Side::Old, 2), BACKWARDS),
        (BaseFirst, beside(Both, Side::Old, 2), BACKWARDS),
        (KeepsBase, beside(Both, Side::Old, 2), BACKWARDS),
        (NoRaise, beside(Both, Side::Old, 2), BACKWARDS),
        (Uncounted, beside(Old, Side::Old, 2), BACKWARDS),
        (Uncounted, beside(New, Side::New, 3), APART),
        (EarlyUncounted, beside(Shadow, Side::New, 2).early(), APART),
    ]);
}
