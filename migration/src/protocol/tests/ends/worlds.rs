//! The worlds: where each begins, and how much may happen in it.

use super::*;

/// Every world that is looked at, and the mutants that must not live there.
pub(super) fn all() -> Vec<(&'static str, World, Caught)> {
    use Mutant::*;
    use Phase::{Both, Drain, New, Old, Shadow};
    let some = Left { starts: 2, grants: 2, repairs: 1, ..Left::default() };
    let lost = Left { losses: 1, ..some };
    let died = Left { deaths: 1, ..some };
    let away = Left { losses: 1, returns: 1, repairs: 0, barred: true, ..died };
    let frozen = Left { freezes: 1, ..lost };
    let apart = Left { repairs: 0, barred: true, apart: true, ..lost };
    let ended = Left { starts: 2, grants: 2, cleans: 2, ..Left::default() };
    let begun = Left { starts: 2, grants: 2, steps: 3, ..Left::default() };
    let visited = Left { starts: 1, steps: 1, foreign: 2, ticks: 2, ..Left::default() };
    let slipped = Left { losses: 1, plain: 1, starts: 1, grants: 1, steps: 1, ..Left::default() };
    let rewound = Left { losses: 0, rewinds: 1, ..slipped };
    let emptied = Left { losses: 1, plain: 1, starts: 1, cleans: 1, ..Left::default() };
    let ours = Left { starts: 2, grants: 1, freezes: 1, ..Left::default() };
    let late = Left { late: 1, grants: 2, ..lost };
    let stepped = Left { steps: 1, grants: 1, repairs: 0, ..late };
    let cleaned = Left { cleans: 2, grants: 0, repairs: 0, ends: true, ..late };
    let alone = Left { deaths: 1, returns: 1, repairs: 0, barred: true, ..late };
    let fresh = Left { late: 1, apart: false, ..apart };
    let forgotten = Left { deaths: 1, starts: 1, ..late };
    vec![
        ("data lost in old", World::at(Old, 0, lost), vec![]),
        ("a beginning left halfway", World::half_begun(died), vec![]),
        ("two processes that begin", World::fresh(apart), vec![(Halved, BACKWARDS), (OneId, UNBELIEVED)]),
        ("a new store that is away at the beginning", World::half_begun(away), vec![(Hasty, UNBELIEVED)]),
        (
            "a plain session after a loss",
            World::at(Drain, 0, slipped),
            vec![(Uncounted, TWO), (Unbarred, TWO)],
        ),
        (
            "a plain session after a loss of the last writes",
            World::at(Drain, 0, rewound),
            vec![(Uncounted, TWO), (Unbarred, TWO)],
        ),
        ("data lost in shadow", World::at(Shadow, 0, lost), vec![(NotCounted, UNBELIEVED)]),
        ("data lost in both", World::at(Both, 0, frozen), vec![]),
        ("data lost in drain", World::at(Drain, 0, lost), vec![(NotCounted, UNBELIEVED)]),
        ("data lost in new", World::at(New, 0, frozen), vec![(NotCounted, UNBELIEVED), (ShortWait, TWO)]),
        ("data lost in shadow, after both", World::at(Shadow, BACK, lost), vec![(NoSkip, BACKWARDS)]),
        ("a store dead in old", World::at(Old, 0, died), vec![(NoRange, BACKWARDS)]),
        ("a store dead in shadow", World::at(Shadow, 0, died), vec![(NoRange, BACKWARDS)]),
        ("a store dead in both", World::at(Both, 0, died), vec![]),
        ("a store dead in drain", World::at(Drain, 0, died), vec![]),
        (
            "a dead store that comes back",
            World::at(Drain, 0, Left { returns: 1, ..died }),
            vec![(KeepsId, BACKWARDS)],
        ),
        (
            "a dead store that comes back in old",
            World::at(Old, 0, Left { returns: 1, barred: true, ..died }),
            vec![(Unnamed, TWO)],
        ),
        ("a late record at the beginning", World::fresh(fresh), vec![]),
        ("a late record, a beginning left halfway", World::half_begun(fresh), vec![]),
        ("a late record in old", World::at(Old, 0, late), vec![(OneId, BACKWARDS)]),
        ("a late record in shadow", World::at(Shadow, BACK, late), vec![]),
        ("a late record in drain", World::at(Drain, 0, late), vec![]),
        ("a late record in new", World::at(New, 0, late), vec![]),
        ("a late record, steps from old", World::at(Old, 0, stepped), vec![]),
        ("a late record, steps from shadow", World::at(Shadow, 0, stepped), vec![]),
        ("a late record, steps from both", World::at(Both, 0, stepped), vec![]),
        ("a late record, steps from drain", World::at(Drain, 0, stepped), vec![]),
        ("a late record and an end in old", World::at(Old, 0, cleaned), vec![(LeavesLate, KEPT)]),
        ("a late record and an end in new", World::at(New, 0, cleaned), vec![(Resurfaces, KEPT)]),
        ("a late record and a dead store in old", World::at(Old, 0, alone), vec![]),
        ("a late record and a dead store in drain", World::at(Drain, 0, alone), vec![]),
        ("a late record, then a dead store", World::at(Old, BACK, forgotten), vec![(TrustsFirst, BACKWARDS)]),
        ("a store dead in old, after both", World::at(Old, BACK, died), vec![(NoSkip, BACKWARDS)]),
        ("a mistyped URL", World::at(New, 0, some).urls([MOVE, MISTYPED], MISTYPED), vec![(AnyNames, TWO)]),
        ("two old namespaces", World::begun(begun).urls([SECOND, SECOND], MOVE), vec![(AnyNames, BACKWARDS)]),
        (
            "foreign clients",
            World::at(Drain, 0, visited),
            vec![
                (InMemory, NOISY),
                (NotesLate, NOISY),
                (MeetsOnce, NOISY),
                (NoList, NOISY),
                (Overwrites, NOISY),
            ],
        ),
        ("no foreign clients", World::at(Drain, 0, ours), vec![(ByLabel, OURS)]),
        ("an end in new", World::at(New, 0, ended), vec![(Unfinished, BACKWARDS)]),
        ("an end in old", World::at(Old, 0, ended), vec![]),
        ("an end after a loss", World::at(New, 0, emptied), vec![(Unkept, OPEN)]),
        (
            "an end after a loss of the last writes",
            World::at(New, 0, Left { losses: 0, rewinds: 1, ..emptied }),
            vec![(Unkept, OPEN)],
        ),
    ]
}
