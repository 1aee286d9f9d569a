//! The engine on a model of the server, by random walks: functions take effect at their commit, messages are late or lost,
//! connections break before and after a commit, the server crashes with or without its last commits, another one takes over, or
//! a standby that lacks the last of them.
//!
//! | file | contains |
//! |---|---|
//! | `processes` | a process, its requests, and the kinds of steps |
//! | `server` | the tables, and the functions as the server carries them out |
//! | `world` | processes, their requests, and what the server does with them |
//! | `steps` | the steps: which are possible, and what each does |

mod processes;
mod server;
mod steps;
mod world;

use ::model::{OVERLAP, Search, TOKENS, assert_caught, explore};

use super::*;
use processes::Choice;
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
    /// A renewal tells the era, and no crash.
    TellsNoCrash,
    /// A new era leaves deadlines as another server's clock wrote them.
    GivesNoFullTtl,
    /// Nothing is left out after a crash, so numbers come again.
    GoesOnAfterACrash,
    /// The transaction that begins an era does not wait for the disk.
    BeginsErasAsynchronously,
    /// An era is one more than the last one, whatever the timelines are: two that fork from one have the same.
    CountsEras,
    /// An era is the timeline, which another version of the server begins anew.
    HasTheBareTimeline,
    /// A bound counts although its era is larger than the server's.
    BelievesLows,
    /// A renewal that tells another era or crash leads to nothing.
    HearsNoEra,
    /// A renewal does not tell of removals by force.
    HearsNoRemoval,
    /// `mine` does not wait for an `acquire` of its session, and a request is repeated as another owner. Either alone does no
    /// harm: `mine` shows what the first request has put, or the owner finds it under the lock of the name.
    MineTakesNoLockAndOwnersChange,
    /// A waiter holds after a notification, before `flushed` was answered.
    HoldsUnflushed,
    /// Notifications arrive although their transaction fails.
    NotifiesBeforeTheCommit,
    /// A message is believed about any entry.
    BelievesStaleMessages,
    /// An entry that a transaction of a user has locked does not count.
    SkipsLocked,
}

/// The rule that each breaks first, and where the walks begin. A renewal that commits asynchronously is none of them any more:
/// after every crash each session has a full ttl.
const MUTANTS: [(Mutant, &str, Start); 21] = [
    (Mutant::TakesNoLock, OVERLAP, Start::Direct),
    (Mutant::LocksWithinAStatement, TOKENS, Start::Direct),
    (Mutant::ReadsRepeatably, TOKENS, Start::Direct),
    (Mutant::EndsByReading, OVERLAP, Start::Direct),
    (Mutant::ReconcilesNothing, world::STUCK, Start::Direct),
    (Mutant::RevokesAsynchronously, world::UNDONE, Start::Direct),
    (Mutant::HasAGuessableChannel, TOKENS, Start::Direct),
    (Mutant::TellsNoCrash, world::STUCK, Start::Released),
    (Mutant::GivesNoFullTtl, OVERLAP, Start::Back),
    (Mutant::GoesOnAfterACrash, TOKENS, Start::Low),
    (Mutant::BeginsErasAsynchronously, TOKENS, Start::Low),
    (Mutant::CountsEras, TOKENS, Start::Direct),
    (Mutant::HasTheBareTimeline, TOKENS, Start::Direct),
    (Mutant::BelievesLows, TOKENS, Start::Back),
    (Mutant::HearsNoEra, world::STUCK, Start::Released),
    (Mutant::HearsNoRemoval, world::UNHEARD, Start::Pooled),
    (Mutant::MineTakesNoLockAndOwnersChange, world::STUCK, Start::Cut),
    (Mutant::HoldsUnflushed, OVERLAP, Start::Notified),
    (Mutant::NotifiesBeforeTheCommit, OVERLAP, Start::Direct),
    (Mutant::BelievesStaleMessages, OVERLAP, Start::Stale),
    (Mutant::SkipsLocked, OVERLAP, Start::Direct),
];

/// Where walks begin: at the start, or after steps that random ones take too rarely.
#[derive(Clone, Copy, Debug)]
enum Start {
    Direct,
    Pooled,
    /// Behind a pooler, after a crash and before another: the last number that is on the disk is that of a hold that was
    /// released, and a client has a bound above the numbers that the sequence would repeat.
    Low,
    /// Behind a pooler, after a release that is not on the disk.
    Released,
    /// Behind a pooler, after a standby was promoted, and given up for the server that it had replaced. A client has a bound of
    /// the larger era.
    Back,
    /// The connections of an `acquire` with its locks have broken.
    Cut,
    /// A waiter was notified when nothing of it was on the disk, and the server has crashed.
    Notified,
    /// A notification about an entry that has left is late, and its process waits again.
    Stale,
}

impl Start {
    fn world(self, mutant: Option<Mutant>) -> World {
        let acquires = |who| {
            [
                Choice::Begins(who),
                Choice::Drives(who),
                Choice::Starts(who),
                Choice::Commits(who),
                Choice::Hears(who),
            ]
        };
        let requests = |who| [Choice::Drives(who), Choice::Commits(who), Choice::Hears(who)];
        let holds = [&acquires(0)[..], &[Choice::Drives(0)]].concat();
        let releases = [&[Choice::Releases(0)][..], &requests(0)].concat();
        let leaves = [&[Choice::Leaves(1)][..], &requests(1), &[Choice::Drives(1)]].concat();
        let way = match self {
            Self::Direct | Self::Pooled => vec![],
            Self::Low => {
                let asks = [Choice::Begins(0), Choice::Drives(0)];
                let crashed = [&holds[..], &[Choice::Crashes(usize::MAX)], &acquires(1), &leaves].concat();
                [&crashed[..], &acquires(2), &releases, &acquires(1), &asks].concat()
            }
            Self::Released => [holds, releases].concat(),
            Self::Back => [&[Choice::Promotes][..], &holds, &releases, &[Choice::ComesBack]].concat(),
            Self::Cut => [Choice::Begins(0), Choice::Drives(0), Choice::Starts(0), Choice::Cuts(0)].to_vec(),
            Self::Notified => {
                let notified = [&holds[..], &acquires(1), &releases, &[Choice::Delivers(0)]].concat();
                let crashes = [Choice::Drives(1), Choice::Drives(1), Choice::Crashes(0)];
                [&notified[..], &crashes, &requests(0)].concat()
            }
            Self::Stale => {
                let notified = [&holds[..], &acquires(1), &releases, &leaves].concat();
                [&notified[..], &acquires(2), &[Choice::Drives(2)], &acquires(1)].concat()
            }
        };
        let world =
            World::new(mutant, matches!(self, Self::Pooled | Self::Low | Self::Released | Self::Back));
        way.into_iter().fold(world, |world, choice| world.takes(choice).expect("it is possible"))
    }
}

/// A walk ends long before that many steps: faults and acquisitions are counted.
const STEPS: u64 = 120;

#[test]
fn random_schedules_break_no_rule() {
    let walks = testbed::Depth::of_run().seeds(1_000, 5_000, 400_000);
    for start in [Start::Direct, Start::Pooled, Start::Low, Start::Back] {
        let explored = explore(&start.world(None), Search::Walks(walks.clone(), STEPS));
        assert!(explored.wrong.is_none(), "{start:?}: {}", explored.wrong.unwrap());
        println!("{} states of {start:?}", explored.states);
    }
}

#[test]
fn mutants_are_caught() {
    let mutants = MUTANTS.map(|(mutant, rule, start)| {
        (mutant, start.world(Some(mutant)), Search::Walks(0..20_000, STEPS), rule)
    });
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

/// It might be there all the same, on a standby that was promoted: then it would be found again and again.
#[test]
fn entry_told_gone_is_removed() {
    let mut contender = Contender::new(Demand::Waits);
    contender.asked(AcquireReply { granted: true, seq: Some(3), on: 1 });
    let next = |contender: &Contender, told| contender.next(NOW, Deadline::Never, 1, told);
    assert_eq!(next(&contender, EntryNews::Gone), Step::Release(3));
    contender.removed();
    assert_eq!(next(&contender, EntryNews::Nothing), Step::Ask);
}

/// A waiter looks again when the answer of a look is lost: it is still queued.
#[test]
fn lost_answer_costs_no_place() {
    let mut contender = Contender::new(Demand::Waits);
    contender.asked(AcquireReply { granted: false, seq: Some(3), on: 1 });
    for _ in 0..2 {
        contender.failed();
        assert_eq!(contender.seq(), Some(3));
        assert_eq!(contender.next(NOW, Deadline::Never, 2, EntryNews::Nothing), Step::Ask);
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
