//! Ways to be wrong, and what those believe who are.

use leasehold_core::Mode;

use super::super::super::*;
use super::World;
use crate::keys::{self, Sequence};

/// Ways to be wrong; each must be caught by a property below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Mutant {
    /// A changed predecessor counts as ended.
    ChangedIsEnded,
    /// The end of the predecessor is enough, whoever else is older.
    PredecessorIsEnough,
    /// A listing without our node decides too.
    AnyListingDecides,
    /// What is not found at once was never made.
    SearchOnce,
    /// The search reads without writing before.
    NoBarrier,
    /// Clean-up is asked for once.
    DeleteOnce,
    /// After a reconnect the old watch is believed.
    NoListingAfterReconnect,
    /// The counter is taken to go on at the smallest number after its largest.
    WrapAssumed,
    /// So it is, and nobody with an equal number is in the way.
    EqualIsNotOlder,
    /// A directory is never removed.
    NoRenewal,
    /// Waiting has no bound.
    NeverOverdue,
    /// Whoever is overdue is taken for gone.
    OverdueIsGone,
    /// Whoever is overdue is looked for at our own server.
    OwnServersWordIsEnough,
    /// A grant that is of no use any more is left where it is.
    NotGivenBack,
    /// Whoever asks again does so under the same name.
    SameOwnerAgain,
    /// Everybody is taken for one who passes.
    TrustsStrangers,
    /// Whoever gives up its place says that it passes.
    LeaverPasses,
    /// The end of whoever would pass counts as passing.
    EndIsPass,
    /// Somebody has written where nobody can, and is trusted not to do so again.
    IgnoresVersion,
    /// Nobody watches its own node.
    OwnNeverWatched,
    /// Whoever shares passes the lock on when it leaves, as if nobody had been older, and is believed to.
    SharedPass,
    /// Whoever shares takes the oldest of those in its way for its barrier, whoever comes in between.
    OldestIsTheBarrier,
    /// Whoever shares waits for those only who hold, and not for those who wait.
    ReadersPassWriters,
    /// Whoever shares waits for others who do.
    ReadersWaitForReaders,
    /// Other libraries' contenders are taken for some who share.
    StrangersShare,
    /// The number of a node that has shared the lock counts.
    CountsWhoShared,
    /// Whoever comes again hears nothing of a directory that went.
    DirectoryNeverWatched,
    /// It asks before it comes only, and not when its node is made.
    DirectorySeenBefore,
    /// The number after the next one does, too.
    TakesTheOneAfter,
    /// The number of a node that never held counts.
    CountsWhoeverLeft,
    /// So does that of one that somebody else deleted.
    CountsWhatIsGone,
    /// A watch on a directory is believed after a reconnect.
    WatchOutlivesConnection,
    /// And in another session.
    WatchOutlivesSession,
    /// A watch on any directory of that name will do.
    AnyDirectory,
    /// A listing during a hold counts although it shows other contenders.
    CountsBesideOthers,
    /// Any number counts of the directory that was meant.
    TakesAnyNumber,
    /// A listing's number counts although one more has come.
    CountsOneMore,
    /// The next number is how often children have come or gone.
    CountsChanges,
}

impl World {
    /// A listing as a mutant that shares reads it.
    pub(super) fn misread(&self, mutant: Mutant, mine: &str, mut names: Vec<String>) -> Vec<String> {
        let listing = Listing::new(names.clone(), true);
        let others = |name: &&mut String| **name != *mine;
        match mutant {
            Mutant::ReadersPassWriters => {
                let holding = listing.holding();
                names.retain(|name| keys::mode_of(name) == Mode::SHARED || holding.contains(&name.as_str()));
            }
            Mutant::ReadersWaitForReaders => {
                names.iter_mut().filter(others).for_each(|name| *name = name.replace("-shared-", "-"));
            }
            // The numbers of those in its way, the other way round.
            Mutant::OldestIsTheBarrier => {
                let bars = |name: &&mut String| {
                    keys::mode_of(name) == Mode::EXCLUSIVE && Sequence::of(name) < Sequence::of(mine)
                };
                let mut barriers: Vec<_> = names.iter_mut().filter(bars).collect();
                barriers.sort_by_key(|name| Sequence::of(name));
                let digits = |name: &str| name.len() - 10..name.len();
                let numbers: Vec<_> = barriers.iter().map(|name| name[digits(name)].to_owned()).collect();
                for (name, number) in barriers.into_iter().zip(numbers.iter().rev()) {
                    name.replace_range(digits(name), number);
                }
            }
            Mutant::StrangersShare => {
                let strange = |name: &&mut String| {
                    let owner = keys::owner_of(name, Mode::EXCLUSIVE);
                    owner.is_some_and(|owner| self.strangers.contains(&owner))
                };
                let shares = |name: &mut String| *name = name.replace("-lock-", "-shared-lock-");
                names.iter_mut().filter(strange).for_each(shares);
            }
            _ => {}
        }
        names
    }

    /// Whom a client means by a name that a mutant may have misread: whose it is stays.
    pub(super) fn meant(&self, name: String) -> String {
        if !matches!(self.mutant, Some(Mutant::ReadersWaitForReaders | Mutant::OldestIsTheBarrier)) {
            return name;
        }
        let owner = [Mode::EXCLUSIVE, Mode::SHARED].into_iter().find_map(|mode| keys::owner_of(&name, mode));
        let mut of_all = self.directory.history.iter().flatten();
        let meant = of_all.rfind(|child| Some(child.owner) == owner);
        meant.map_or(name, |child| self.directory.name(child))
    }

    /// Whether a mutant holds by the passing of the one it watches, which is no grant.
    pub(super) fn takes_for_a_pass(&self, watched: &str) -> bool {
        self.mutant == Some(Mutant::SharedPass) && keys::mode_of(watched) == Mode::SHARED
    }

    /// A client takes itself for the holder.
    pub(super) fn believes(&mut self, at: usize) {
        let child = self.directory.of(self.clients[at].owner);
        let mine = child.map(|child| Mine { node: self.directory.node(child), czxid: child.czxid });
        self.ended(at, mine.map_or(End::Lost, End::Held));
    }
}
