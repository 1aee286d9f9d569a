//! The locks that no other contender has asked for since this session released them.
//!
//! A directory gives its contenders one number after the other, and a contender that leaves returns none. So if we
//! have held with a number and then get the next one, there was no contender in between: a younger one comes after us, and
//! there is no older one. That takes no listing. A try needs no second listing either if it gets the number that its first
//! one predicts. The watch on the directory that both rely on is kept here.
//!
//! # Invariants
//! - **zk.untouched-1** Only the number of a node counts that has held exclusively, so that no older contender was
//!   left, and that the server deleted at *our* request: if another client deleted it, the directory may be gone, too.
//!   A sharer does not know of older contenders, and a contender that is about to share takes the number that would have
//!   counted.
//! - **zk.untouched-2** A number counts in the same directory only, which the transaction that made it names. The watch on
//!   the directory was set on the present connection, and has reported nothing when the answer to the next create arrives.
//!   A server sends the events and answers of one connection in the order in which it carried them out.
//! - **zk.untouched-3** A number in doubt is forgotten. A number is used once, by the contender that looked it up, and until
//!   our next release. A new watch forgets all: the directory may be another one.

use std::collections::{HashMap, VecDeque};

use leasehold_core::LockName;

use crate::keys::{Next, Sequence};

/// What a session knows of the locks that it has let go; with a watch `W` on the directories of some.
#[derive(Debug)]
pub(crate) struct Untouched<W> {
    directories: HashMap<LockName, Directory<W>>,
    /// In the order of coming in.
    names: VecDeque<LockName>,
}

#[derive(Debug)]
struct Directory<W> {
    /// What we held with last, in the directory that is watched.
    last: Option<Sequence>,
    /// That node is deleted, and counts.
    counts: bool,
    /// It came right after the one before, so the next one may as well.
    in_a_row: bool,
    watch: Option<Watch<W>>,
    /// There is none to be had: somebody else made the directory, or we may not look.
    is_foreign: bool,
}

#[derive(Debug)]
struct Watch<W> {
    /// The transaction that made the directory.
    directory: i64,
    /// The connection that it was set on.
    connection: u64,
    watch: W,
}

/// What came of asking for a watch: the transaction that made the directory with it; `None`, if there is none to be had.
pub(crate) type Asked<W> = Option<(i64, W)>;

impl<W> Default for Untouched<W> {
    fn default() -> Self {
        Self { directories: HashMap::new(), names: VecDeque::new() }
    }
}

impl<W> Untouched<W> {
    /// We ask for a lock again: the number that makes us its holder, if any does. `told` says whether a watch has
    /// told of anything.
    pub(crate) fn enter(
        &mut self,
        name: &LockName,
        connection: u64,
        told: impl FnOnce(&mut W) -> bool,
    ) -> Option<Next> {
        let known = self.directories.get_mut(name)?;
        let counts = std::mem::take(&mut known.counts) && known.in_a_row;
        let directory = known.watched(connection, told)?;
        let number = known.last.filter(|_| counts)?.next()?;
        Some(Next { number, directory })
    }

    /// Our node is about to be made: whether its directory is to be watched before.
    pub(crate) fn is_to_be_watched(
        &mut self,
        name: &LockName,
        connection: u64,
        told: impl FnOnce(&mut W) -> bool,
    ) -> bool {
        let known = self.directories.get_mut(name);
        known.is_none_or(|known| !known.is_foreign && known.watched(connection, told).is_none())
    }

    /// It is, by this watch.
    pub(crate) fn watch(&mut self, name: &LockName, connection: u64, directory: i64, watch: W) {
        let known = self.known(name);
        *known = Directory::default();
        known.keep(connection, Some((directory, watch)));
    }

    /// Our node is made: whether its directory is still the one that was meant.
    pub(crate) fn is_the_same(
        &mut self,
        name: &LockName,
        directory: i64,
        connection: u64,
        told: impl FnOnce(&mut W) -> bool,
    ) -> bool {
        // RACE: others of ours may have let go since, in another directory, which is watched by now.
        let watched = self.directories.get_mut(name).and_then(|known| known.watched(connection, told));
        watched == Some(directory)
    }

    /// We let go of a hold; whether its directory is to be watched before its node is deleted.
    pub(crate) fn leave(
        &mut self,
        name: &LockName,
        number: Sequence,
        connection: u64,
        told: impl FnOnce(&mut W) -> bool,
    ) -> bool {
        let known = self.known(name);
        known.in_a_row = known.last.and_then(Sequence::next) == Some(number);
        // It counts anew, so it is another one.
        known.is_foreign &= known.last < Some(number);
        (known.last, known.counts) = (Some(number), false);
        let is_watched = known.watched(connection, told).is_some();
        known.in_a_row && !known.is_foreign && !is_watched
    }

    /// The server has deleted its node for us; the watch that was asked for before, if there is one.
    pub(crate) fn left(&mut self, name: &LockName, number: Sequence, asked: Option<(u64, Asked<W>)>) {
        let known = self.directories.get_mut(name).filter(|known| known.last == Some(number));
        let Some(known) = known else {
            return;
        };
        known.counts = true;
        if let Some((connection, asked)) = asked {
            known.keep(connection, asked);
        }
    }

    /// What is known of a lock, from now on.
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
    /// The directory whose watch stands; one that does not is dropped.
    fn watched(&mut self, connection: u64, told: impl FnOnce(&mut W) -> bool) -> Option<i64> {
        drop(self.watch.take_if(|set| set.connection != connection || told(&mut set.watch)));
        self.watch.as_ref().map(|watch| watch.directory)
    }

    fn keep(&mut self, connection: u64, asked: Asked<W>) {
        self.is_foreign = asked.is_none();
        self.watch = asked.map(|(directory, watch)| Watch { directory, connection, watch });
    }
}

impl<W> Default for Directory<W> {
    fn default() -> Self {
        Self { last: None, counts: false, in_a_row: false, watch: None, is_foreign: false }
    }
}

/// Of so many locks this is remembered, and at most so many directories are watched.
const REMEMBERED: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    /// A watch that has told of something, or not.
    type Told = bool;

    fn name() -> LockName {
        LockName::new("a").unwrap()
    }

    fn number(number: i32) -> Sequence {
        Sequence::new(number)
    }

    /// The transactions that made two directories.
    const FIRST: i64 = 1;
    const SECOND: i64 = 2;

    /// Lets go of a hold on the first connection; whether a watch was asked for.
    fn released(untouched: &mut Untouched<Told>, held: i32, watch: Option<Told>) -> bool {
        released_in(FIRST, untouched, held, watch)
    }

    fn released_in(directory: i64, untouched: &mut Untouched<Told>, held: i32, watch: Option<Told>) -> bool {
        let watches = untouched.leave(&name(), number(held), 0, |told| *told);
        let asked = watch.map(|told| (directory, told));
        untouched.left(&name(), number(held), watches.then_some((0, asked)));
        watches
    }

    /// Two holds in a row, with a watch.
    fn in_a_row(watch: Option<Told>) -> Untouched<Told> {
        let mut untouched = Untouched::default();
        assert!(!released(&mut untouched, 6, watch), "a lock that is wanted once is not watched");
        assert_eq!(untouched.enter(&name(), 0, |told| *told), None);
        assert!(released(&mut untouched, 7, watch));
        untouched
    }

    fn entered(untouched: &mut Untouched<Told>) -> Option<Sequence> {
        untouched.enter(&name(), 0, |told| *told).map(|next| next.number)
    }

    fn is_in(untouched: &mut Untouched<Told>, directory: i64) -> bool {
        untouched.is_the_same(&name(), directory, 0, |told| *told)
    }

    /// The number after two in a row is ours alone, once for each time that we let go, and one watch does for all
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
        assert_eq!(untouched.enter(&LockName::new("b").unwrap(), 0, |told| *told), None);
    }

    /// Until the server says that our node is deleted, nothing counts; nor what it says of an earlier one
    /// (zk.untouched-1).
    #[test]
    fn a_node_that_may_be_there_counts_for_nothing() {
        let mut untouched = in_a_row(Some(false));
        assert!(!untouched.leave(&name(), number(8), 0, |told| *told));
        assert_eq!(entered(&mut untouched), None);
        untouched.left(&name(), number(7), None);
        assert_eq!(entered(&mut untouched), None);
        untouched.left(&name(), number(8), None);
        assert_eq!(entered(&mut untouched), Some(number(9)));
    }

    /// A watch that has told of something, and one of another connection, is none (zk.untouched-2).
    #[test]
    fn without_its_watch_a_directory_may_be_another_one() {
        let told = true;
        let mut untouched = in_a_row(Some(told));
        assert_eq!(entered(&mut untouched), None);
        let mut untouched = in_a_row(Some(false));
        assert_eq!(entered(&mut untouched), Some(number(8)));
        assert!(!untouched.is_the_same(&name(), FIRST, 0, |_| true));
        let mut untouched = in_a_row(Some(false));
        assert_eq!(entered(&mut untouched), Some(number(8)));
        assert!(!untouched.is_the_same(&name(), FIRST, 1, |told| *told));
        // It does not come back.
        assert!(!is_in(&mut untouched, FIRST));
        assert!(released(&mut untouched, 8, Some(false)));
        assert_eq!(entered(&mut untouched), Some(number(9)));
    }

    /// Who shares a lock looks first, and watches nothing.
    #[test]
    fn numbers_in_no_row_are_not_counted_on() {
        let mut untouched = in_a_row(Some(false));
        assert_eq!(entered(&mut untouched), Some(number(8)));
        assert!(!released(&mut untouched, 9, None));
        assert_eq!(entered(&mut untouched), None);
        assert!(!released(&mut untouched, 10, None));
        assert_eq!(entered(&mut untouched), Some(number(11)));
    }

    /// Whoever asked in one directory gets nothing for it in another, whatever is known of that by then (zk.untouched-3).
    #[test]
    fn a_number_of_an_earlier_directory_counts_for_nothing() {
        let mut untouched = in_a_row(Some(false));
        let earlier = untouched.enter(&name(), 0, |told| *told);
        assert_eq!(earlier, Some(Next { number: number(8), directory: FIRST }));
        // Before the node is made, others of ours let go in the next directory, which is watched by then.
        assert!(!untouched.leave(&name(), number(0), 0, |_| true));
        untouched.left(&name(), number(0), None);
        assert_eq!(entered(&mut untouched), None);
        assert!(released_in(SECOND, &mut untouched, 1, Some(false)));
        assert!(!is_in(&mut untouched, FIRST));
        let next = untouched.enter(&name(), 0, |told| *told);
        assert_eq!(next, Some(Next { number: number(2), directory: SECOND }));
        assert!(is_in(&mut untouched, SECOND));
    }

    /// A try watches a directory once for each connection; with the new watch nothing counts that was held before, also
    /// if its end is told afterwards (zk.untouched-3).
    #[test]
    fn new_watch_forgets_earlier_holds() {
        let is_wanted =
            |untouched: &mut Untouched<Told>, on| untouched.is_to_be_watched(&name(), on, |told| *told);
        let mut untouched = Untouched::default();
        assert!(is_wanted(&mut untouched, 0));
        untouched.watch(&name(), 0, FIRST, false);
        assert!(is_in(&mut untouched, FIRST) && !is_wanted(&mut untouched, 0));
        assert!(is_wanted(&mut untouched, 1));
        let mut untouched = in_a_row(Some(false));
        untouched.watch(&name(), 0, SECOND, false);
        assert_eq!(entered(&mut untouched), None);
        let mut untouched = in_a_row(Some(false));
        assert!(!untouched.leave(&name(), number(8), 0, |told| *told));
        untouched.watch(&name(), 0, SECOND, false);
        untouched.left(&name(), number(8), None);
        assert_eq!(entered(&mut untouched), None);
        // Where there is none to be had, none is asked for again.
        assert!(!is_wanted(&mut in_a_row(None), 0));
    }

    /// What cannot be watched is asked for once, until the directory counts anew.
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
