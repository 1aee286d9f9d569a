//! The locks that no other contender has entered since this session released them.
//!
//! A directory gives each contender the next number, and a contender that leaves returns none. So if a session has held with a
//! number and then gets the next one, no contender came in between, and none is older. That takes no listing. A try needs no
//! second listing either if it gets the number that its first one predicts. Both rely on a watch on the directory, which is
//! kept here.
//!
//! If many clients try for a lock, several find it free at the same time. All but one use up a number and leave. So the first
//! try after a hold would seldom get the number after that of the hold. Once a session has noticed that, it lists in the middle
//! of its holds, when those tries have left.
//!
//! # Invariants
//! - **zk.untouched-1** Only the number of a node counts that has held exclusively, so that no older contender was left, and
//!   that the server deleted at *this session's* request: if another client deleted it, the directory may be gone, too. A
//!   sharer does not know of older contenders, and a contender that is about to share takes the number that would have counted.
//! - **zk.untouched-2** A number counts in the same directory only, which the transaction that made it names. The watch on
//!   the directory was set on the present connection, and has reported nothing when the answer to the next create arrives.
//!   A server sends the events and answers of one connection in the order in which it carried them out.
//! - **zk.untouched-3** An uncertain number is forgotten. A number is used once, by the contender that looked it up, and until
//!   this session's next release. A new watch forgets all: the directory may be another one.
//! - **zk.untouched-4** A listing during a hold counts as the hold does, if it shows this session's node as the only contender:
//!   the number that it predicts replaces the one after the hold's. Only a listing of the directory that is watched does.

use std::collections::{HashMap, VecDeque};

use leasehold_core::LockName;
use leasehold_core::clock::Moment;

use super::Patience;
use crate::keys::{Listing, Next, Node, Sequence};

/// A session's knowledge of the locks that it has released, with a watch `W` on the directories of some.
#[derive(Debug)]
pub(crate) struct Untouched<W> {
    directories: HashMap<LockName, Directory<W>>,
    /// The oldest first.
    names: VecDeque<LockName>,
}

#[derive(Debug)]
struct Directory<W> {
    /// The number of our last hold in the directory that is watched.
    last: Option<Sequence>,
    /// When the node of that hold was deleted, if its number counts.
    counts: Option<Moment>,
    /// It followed the number of the hold before, so that of the next hold probably will, too.
    in_a_row: bool,
    /// The number that a listing during the hold with this one predicts.
    listed: Option<(Sequence, Next)>,
    /// A node of this session got another number than the expected one: others try for the lock, too.
    is_contended: bool,
    watch: Option<Watch<W>>,
    /// Its numbers prove nothing without a listing: we did not make it, may not read it, or it does not count as
    /// ZooKeeper does.
    is_unreliable: bool,
}

#[derive(Debug)]
struct Watch<W> {
    /// The transaction that made the directory.
    directory: i64,
    /// The connection that it was set on.
    connection: u64,
    watch: W,
}

/// A watch, with the transaction that made the directory; `None` if its numbers prove nothing.
pub(crate) type Asked<W> = Option<(i64, W)>;

impl<W> Default for Untouched<W> {
    fn default() -> Self {
        Self { directories: HashMap::new(), names: VecDeque::new() }
    }
}

impl<W> Untouched<W> {
    /// The number by which a new contender of this session holds, if there is one. A try counts on a hold that ended at
    /// `recent` or later: another client probably holds the lock by now, and a listing is one request. `told` is whether a
    /// watch has reported anything.
    pub(crate) fn enter(
        &mut self,
        name: &LockName,
        patience: Patience,
        recent: Moment,
        connection: u64,
        told: impl FnOnce(&mut W) -> bool,
    ) -> Option<Next> {
        let known = self.directories.get_mut(name)?;
        let counts = known.counts.take().is_some_and(|left| match patience {
            Patience::Waits => known.in_a_row,
            Patience::Tries => recent <= left,
        });
        let directory = known.watched(connection, told)?;
        let last = known.last.filter(|_| counts)?;
        let listed = known.listed.filter(|(held, next)| *held == last && next.directory == directory);
        let number = listed.map_or_else(|| last.next(), |(_, next)| Some(next.number))?;
        Some(Next { number, directory })
    }

    /// Whether a listing during a hold is worth its request: losing tries use up numbers.
    pub(crate) fn is_contended(&self, name: &LockName) -> bool {
        self.directories.get(name).is_some_and(|known| known.is_contended)
    }

    /// A listing during the hold of `node`.
    pub(crate) fn listed(&mut self, name: &LockName, node: &Node, listing: &Listing) {
        if let Some(known) = self.directories.get_mut(name)
            && listing.contenders() == [node.name()]
        {
            known.listed = listing.next().map(|next| (node.sequence(), next));
        }
    }

    /// Whether the directory is to be watched before our node is made.
    pub(crate) fn is_to_be_watched(
        &mut self,
        name: &LockName,
        connection: u64,
        told: impl FnOnce(&mut W) -> bool,
    ) -> bool {
        let known = self.directories.get_mut(name);
        known.is_none_or(|known| !known.is_unreliable && known.watched(connection, told).is_none())
    }

    /// The answer to the request for that watch.
    pub(crate) fn watch(&mut self, name: &LockName, connection: u64, asked: Asked<W>) {
        let known = self.known(name);
        *known = Directory::default();
        known.keep(connection, asked);
    }

    /// Whether a listing predicts the next number of the directory, as far as it is known.
    pub(crate) fn is_predicted(&self, name: &LockName) -> bool {
        self.directories.get(name).is_none_or(|known| !known.is_unreliable)
    }

    /// Our node got a `number`: whether that is one of the directory for which `next` was predicted.
    pub(crate) fn is_the_same(
        &mut self,
        name: &LockName,
        next: Next,
        number: Sequence,
        connection: u64,
        told: impl FnOnce(&mut W) -> bool,
    ) -> bool {
        // RACE: another hold of this session may have ended since, in a new directory that is watched by now.
        let Some(known) = self.directories.get_mut(name) else {
            return false;
        };
        let is_same = known.watched(connection, told) == Some(next.directory);
        known.is_contended |= is_same && next.number < number;
        if is_same && number < next.number {
            known.keep(connection, None);
        }
        is_same && next.number <= number
    }

    /// A hold is about to end: whether the directory is to be watched before the node is deleted.
    pub(crate) fn leave(
        &mut self,
        name: &LockName,
        number: Sequence,
        connection: u64,
        told: impl FnOnce(&mut W) -> bool,
    ) -> bool {
        let known = self.known(name);
        known.in_a_row = known.last.and_then(Sequence::next) == Some(number);
        // A smaller number is one of another directory.
        known.is_unreliable &= known.last < Some(number);
        (known.last, known.counts) = (Some(number), None);
        let is_watched = known.watched(connection, told).is_some();
        known.in_a_row && !known.is_unreliable && !is_watched
    }

    /// The server has deleted the node of that hold at our request, by `now`. With the answer to the request for a watch, if
    /// there was one.
    pub(crate) fn left(
        &mut self,
        name: &LockName,
        number: Sequence,
        asked: Option<(u64, Asked<W>)>,
        now: Moment,
    ) {
        let known = self.directories.get_mut(name).filter(|known| known.last == Some(number));
        let Some(known) = known else {
            return;
        };
        known.counts = Some(now);
        if let Some((connection, asked)) = asked {
            known.keep(connection, asked);
        }
    }

    /// The entry of a lock, which is made if it is missing.
    fn known(&mut self, name: &LockName) -> &mut Directory<W> {
        if !self.directories.contains_key(name) {
            if self.names.len() == REMEMBERED
                && let Some(oldest) = self.names.pop_front()
            {
                self.directories.remove(&oldest);
            }
            self.names.push_back(name.clone());
        }
        self.directories.entry(name.clone()).or_default()
    }
}

impl<W> Directory<W> {
    /// The directory that is watched. A watch that has reported, or is of an earlier connection, is dropped.
    fn watched(&mut self, connection: u64, told: impl FnOnce(&mut W) -> bool) -> Option<i64> {
        drop(self.watch.take_if(|set| set.connection != connection || told(&mut set.watch)));
        self.watch.as_ref().map(|watch| watch.directory)
    }

    fn keep(&mut self, connection: u64, asked: Asked<W>) {
        self.is_unreliable = asked.is_none();
        self.watch = asked.map(|(directory, watch)| Watch { directory, connection, watch });
    }
}

impl<W> Default for Directory<W> {
    fn default() -> Self {
        Self {
            last: None,
            counts: None,
            in_a_row: false,
            listed: None,
            is_contended: false,
            watch: None,
            is_unreliable: false,
        }
    }
}

/// The number of locks that are remembered, and the largest number of directories that are watched.
const REMEMBERED: usize = 1_024;

#[cfg(test)]
mod tests {
    use leasehold_core::{Mode, OwnerId};

    use super::*;

    /// A watch that has told of something, or not.
    type Told = bool;

    fn name() -> LockName {
        LockName::new("a").unwrap()
    }

    fn number(number: i32) -> Sequence {
        Sequence::new(number)
    }

    const NOW: Moment = Moment::from_nanos(2);

    /// The transactions that made two directories.
    const FIRST: i64 = 1;
    const SECOND: i64 = 2;

    /// Releases a hold on the first connection; whether a watch is requested.
    fn released(untouched: &mut Untouched<Told>, held: i32, watch: Option<Told>) -> bool {
        let watches = untouched.leave(&name(), number(held), 0, |told| *told);
        let asked = watch.map(|told| (FIRST, told));
        untouched.left(&name(), number(held), watches.then_some((0, asked)), NOW);
        watches
    }

    /// Two holds in a row, with a watch.
    fn in_a_row(watch: Option<Told>) -> Untouched<Told> {
        let mut untouched = Untouched::default();
        assert!(!released(&mut untouched, 6, watch), "a lock that is wanted once is not watched");
        assert_eq!(entered(&mut untouched), None);
        assert!(released(&mut untouched, 7, watch));
        untouched
    }

    fn enters(untouched: &mut Untouched<Told>, patience: Patience) -> Option<Next> {
        untouched.enter(&name(), patience, NOW, 0, |told| *told)
    }

    fn entered(untouched: &mut Untouched<Told>) -> Option<Sequence> {
        enters(untouched, Patience::Waits).map(|next| next.number)
    }

    fn is_in(untouched: &mut Untouched<Told>, directory: i64) -> bool {
        let next = Next { number: number(1), directory };
        untouched.is_the_same(&name(), next, number(1), 0, |told| *told)
    }

    /// The number after two of our own in a row counts as ours, once for each release, and one watch is enough for all
    /// (zk.untouched-3).
    #[test]
    fn the_number_after_our_last_one_counts_once() {
        let mut untouched = in_a_row(Some(false));
        for held in 8..20 {
            assert_eq!(entered(&mut untouched), Some(number(held)));
            assert_eq!(entered(&mut untouched), None);
            assert!(is_in(&mut untouched, FIRST));
            assert!(!released(&mut untouched, held, None), "it is watched");
        }
        assert_eq!(
            untouched.enter(&LockName::new("b").unwrap(), Patience::Tries, NOW, 0, |told| *told),
            None
        );
    }

    /// A try counts on the number after one hold, where the directory is watched; once, and not before the node of that
    /// hold is deleted.
    #[test]
    fn try_counts_on_one_hold() {
        let mut untouched = Untouched::default();
        untouched.watch(&name(), 0, Some((FIRST, false)));
        assert!(!untouched.leave(&name(), number(7), 0, |told| *told));
        assert_eq!(enters(&mut untouched, Patience::Tries), None);
        untouched.left(&name(), number(7), None, NOW);
        let next = Next { number: number(8), directory: FIRST };
        assert_eq!(enters(&mut untouched, Patience::Tries), Some(next));
        assert_eq!(enters(&mut untouched, Patience::Tries), None);
        assert!(!untouched.is_contended(&name()));
        assert!(untouched.is_the_same(&name(), next, number(9), 0, |told| *told));
        assert!(untouched.is_contended(&name()));
        // A smaller number than predicted: this server does not count as ZooKeeper does.
        assert!(!untouched.is_the_same(&name(), next, number(7), 0, |told| *told));
        assert!(!untouched.is_predicted(&name()) && !is_in(&mut untouched, FIRST));
        assert!(!untouched.is_to_be_watched(&name(), 0, |told| *told));
        // Later than shortly after the hold it lists.
        let mut untouched = in_a_row(Some(false));
        let later = Moment::from_nanos(3);
        assert_eq!(untouched.enter(&name(), Patience::Tries, later, 0, |told| *told), None);
        // Without a watch it counts on nothing.
        let mut untouched = Untouched::default();
        released(&mut untouched, 7, None);
        assert_eq!(enters(&mut untouched, Patience::Tries), None);
        assert!(untouched.is_predicted(&name()));
    }

    /// A listing during a hold predicts the number after that hold, and after no other, if it shows no other contender and
    /// is of the directory that is watched (zk.untouched-4).
    #[test]
    fn listing_during_a_hold_predicts_the_next_number() {
        let (own, other) = (OwnerId::from_random([1; 16]), OwnerId::from_random([2; 16]));
        let node = |owner, number| Node::new(owner, Mode::EXCLUSIVE, number);
        for (directory, nodes, held, expected) in [
            (FIRST, vec![node(own, 7)], 7, 11),
            (FIRST, vec![node(own, 7), node(other, 10)], 7, 8),
            (FIRST, vec![node(other, 10)], 7, 8),
            (FIRST, vec![node(own, 7)], 9, 10),
            (SECOND, vec![node(own, 7)], 7, 8),
        ] {
            let mut untouched = Untouched::default();
            untouched.watch(&name(), 0, Some((FIRST, false)));
            let changes = 22 - i32::try_from(nodes.len()).unwrap();
            let listing = Listing::new(nodes.iter().map(Node::name).collect(), true);
            untouched.listed(&name(), &node(own, 7), &listing.counted(directory, changes));
            assert!(!released(&mut untouched, held, None));
            let next = enters(&mut untouched, Patience::Tries).map(|next| next.number);
            assert_eq!(next, Some(number(expected)), "{directory} {nodes:?} {held}");
        }
    }

    /// A try watches a directory once for each connection; with the new watch nothing counts that was held before, also
    /// if its end is reported afterwards (zk.untouched-3).
    #[test]
    fn new_watch_forgets_earlier_holds() {
        let is_wanted =
            |untouched: &mut Untouched<Told>, on| untouched.is_to_be_watched(&name(), on, |told| *told);
        let mut untouched = Untouched::default();
        assert!(is_wanted(&mut untouched, 0));
        untouched.watch(&name(), 0, Some((FIRST, false)));
        assert!(is_in(&mut untouched, FIRST) && !is_wanted(&mut untouched, 0));
        assert!(is_wanted(&mut untouched, 1));
        let mut untouched = in_a_row(Some(false));
        untouched.watch(&name(), 0, Some((SECOND, false)));
        assert_eq!(entered(&mut untouched), None);
        let mut untouched = in_a_row(Some(false));
        assert!(!untouched.leave(&name(), number(8), 0, |told| *told));
        untouched.watch(&name(), 0, Some((SECOND, false)));
        untouched.left(&name(), number(8), None, NOW);
        assert_eq!(entered(&mut untouched), None);
        // A watch that was refused is not requested again.
        assert!(!is_wanted(&mut in_a_row(None), 0));
    }

    /// A watch that is refused is requested once, until the directory counts anew.
    #[test]
    fn a_directory_of_somebody_else_is_looked_at_once() {
        let mut untouched = in_a_row(None);
        for held in 8..12 {
            assert_eq!(entered(&mut untouched), None);
            assert!(!released(&mut untouched, held, Some(false)));
        }
        assert!(!released(&mut untouched, 0, None));
        assert!(released(&mut untouched, 1, Some(false)));
        assert_eq!(entered(&mut untouched), Some(number(2)));
    }

    /// Numbers that call for a new directory, or are near the end, are looked at.
    #[test]
    fn worn_numbers_are_not_counted_on() {
        const HALF: i32 = 1 << 30;
        const END: i32 = i32::MAX - (1 << 22) + 1;
        for last in [HALF - 1, HALF + 7, END - 1, i32::MAX - 1, i32::MAX, i32::MIN, -1] {
            let mut untouched = Untouched::<Told>::default();
            released(&mut untouched, last.wrapping_sub(1), None);
            released(&mut untouched, last, Some(false));
            assert_eq!(entered(&mut untouched), None, "{last}");
        }
    }

    /// Of very many locks the oldest are forgotten.
    #[test]
    fn memory_is_bounded() {
        let mut untouched = Untouched::<Told>::default();
        for lock in 0..2 * REMEMBERED {
            let name = LockName::new(format!("{lock}")).unwrap();
            untouched.leave(&name, number(0), 0, |told| *told);
        }
        assert_eq!((untouched.directories.len(), untouched.names.len()), (REMEMBERED, REMEMBERED));
        assert!(!untouched.directories.contains_key(&LockName::new("0").unwrap()));
    }
}
