//! The engine on a model of the server, by random walks: functions take effect at their commit, messages are late or lost,
//! connections break before and after a commit, the server crashes with or without its last commits, or another one takes over.
//!
//! | file | contains |
//! |---|---|
//! | `server` | the tables, and the functions as the server carries them out |
//! | `world` | processes, their requests, and what the server does with them |
//! | `steps` | the steps: which are possible, and what each does |

mod server;
mod steps;
mod world;

use ::model::{OVERLAP, Search, TOKENS, assert_caught, explore};

use super::*;
use world::World;

/// A server, a driver or a schema that is wrong in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Mutant {
    /// `acquire` takes no lock of the name.
    TakesNoLock,
    /// The lock is taken in the statement that reads: its snapshot is older.
    LocksWithinAStatement,
    /// All statements of a transaction have the snapshot of the first.
    ReadsRepeatably,
    /// Entries of a session are removed because its deadline was read, although it is being renewed.
    EndsByReading,
    /// Nothing is released by what `mine` shows.
    ReconcilesNothing,
    /// A removal by force is answered before it is on the disk.
    RevokesAsynchronously,
    /// Others can send to the channel.
    HasAGuessableChannel,
    /// The era is the timeline.
    CountsTimelinesOnly,
}

/// The rule that each breaks.
const MUTANTS: [(Mutant, &str); 8] = [
    (Mutant::TakesNoLock, OVERLAP),
    (Mutant::LocksWithinAStatement, OVERLAP),
    (Mutant::ReadsRepeatably, OVERLAP),
    (Mutant::EndsByReading, OVERLAP),
    (Mutant::ReconcilesNothing, world::STUCK),
    (Mutant::RevokesAsynchronously, world::UNDONE),
    (Mutant::HasAGuessableChannel, TOKENS),
    (Mutant::CountsTimelinesOnly, TOKENS),
];

/// A walk ends long before that many steps: faults and acquisitions are counted.
const STEPS: u64 = 120;

#[test]
fn random_schedules_break_no_rule() {
    let walks = testbed::Depth::of_run().seeds(1_000, 5_000, 400_000);
    let explored = explore(&World::new(None), Search::Walks(walks, STEPS));
    assert!(explored.wrong.is_none(), "{}", explored.wrong.unwrap());
    println!("{} states", explored.states);
}

#[test]
fn mutants_are_caught() {
    let mutants = MUTANTS
        .map(|(mutant, rule)| (mutant, World::new(Some(mutant)), Search::Walks(0..6_000, STEPS), rule));
    assert_caught("postgres", mutants);
}

/// Messages are read, and nothing else is.
#[test]
fn messages_are_read() {
    use std::time::Duration;
    let read = Notice::read;
    assert_eq!(read("7"), Some(Notice::Told(7, EntryNews::Holds)));
    assert_eq!(read("?7"), Some(Notice::Told(7, EntryNews::Looks)));
    assert_eq!(read("asked 7 250"), Some(Notice::Asked(7, Duration::from_millis(250))));
    assert_eq!(read("lost 7"), Some(Notice::Lost(7)));
    for other in ["", "heard", "asked", "asked 7", "asked x 1", "lost", "lost x", "?", "7 8"] {
        assert_eq!(read(other), None, "{other:?}");
    }
}

/// A try that is refused leaves nothing, and asks again as the same owner after a lost answer.
#[test]
fn refused_try_is_removed() {
    let mut contender = Contender::new(Demand::Tries);
    let next = |contender: &Contender| contender.next(NOW, Deadline::Never, 1, EntryNews::Nothing);
    assert_eq!(next(&contender), Step::Ask);
    contender.failed();
    assert_eq!(next(&contender), Step::Ask);
    contender.asked(AcquireReply { granted: false, seq: Some(3), on: 1 });
    assert_eq!(next(&contender), Step::Release(3));
    contender.removed();
    assert_eq!(next(&contender), Step::AcquireEnd(AcquireEnd::Refused));
}

const NOW: Moment = Moment::from_nanos(1);
