//! Which locks nobody else has asked for since a session let go of them.
//!
//! A directory gives its contenders one number after the other, and whoever leaves gives none back. So if we
//! have held with a number, and get the next one when we come again, nobody was there in between: whoever is
//! younger came after us, and nobody is older. That takes no listing.
//!
//! # Invariants
//! - **zk.untouched-1** What counts is the number of a node that has held exclusively, so that nobody older was
//!   left, and that the server deleted when *we* asked for it: where somebody else did, the directory may have gone,
//!   too. Whoever has shared a lock knows nothing of those who are older; and whoever is about to share it takes the
//!   number that would have counted.
//! - **zk.untouched-2** It counts in the same directory only: a watch on that was set while a node that held
//!   was in it, on the connection of now, and has told of nothing by the time that the next node is made. Of
//!   one connection a server tells events and answers in the order of what it has done.
//! - **zk.untouched-3** Whatever is in doubt is forgotten, and so is what was looked at: it counts once, for whoever
//!   looked, and until we let go again.

use std::collections::{HashMap, VecDeque};

use leasehold_core::LockName;

use crate::keys::Sequence;

/// What a session knows of the locks that it has let go; with a watch `W` on the directories of some.
#[derive(Debug)]
pub(crate) struct Untouched<W> {
    directories: HashMap<LockName, Directory<W>>,
    /// In the order of coming in.
    names: VecDeque<LockName>,
}

#[derive(Debug)]
struct Directory<W> {
    /// What we held with last.
    last: Sequence,
    /// That node is deleted, and counts.
    counts: bool,
    /// What somebody of ours has been told to come with.
    promised: Option<Sequence>,
    /// It came right after the one before, so the next one may as well.
    in_a_row: bool,
    /// The watch on the directory, and the connection that it was set on.
    watch: Option<(u64, W)>,
    /// There is none to be had: somebody else made the directory, or we may not look.
    is_foreign: bool,
}

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
    ) -> Option<Sequence> {
        let directory = self.directories.get_mut(name)?;
        let counts = std::mem::take(&mut directory.counts) && directory.in_a_row;
        let stands = directory.is_watched(connection, told);
        let next = (counts && stands).then(|| directory.last.next()).flatten();
        directory.promised = next.or(directory.promised);
        next
    }

    /// Our node is made: whether it has the number that somebody of ours was told, in the directory that we let go of the
    /// lock in.
    pub(crate) fn is_the_same(
        &mut self,
        name: &LockName,
        number: Sequence,
        connection: u64,
        told: impl FnOnce(&mut W) -> bool,
    ) -> bool {
        // RACE: others of ours may have let go since, in another directory, which is watched by now.
        let promised = self.directories.get_mut(name).filter(|directory| directory.promised == Some(number));
        promised.is_some_and(|directory| directory.is_watched(connection, told))
    }

    /// We let go of a hold; whether its directory is to be watched before its node is deleted.
    pub(crate) fn leave(
        &mut self,
        name: &LockName,
        number: Sequence,
        connection: u64,
        told: impl FnOnce(&mut W) -> bool,
    ) -> bool {
        let Some(directory) = self.directories.get_mut(name) else {
            self.remember(name, number);
            return false;
        };
        directory.in_a_row = directory.last.next() == Some(number);
        // It counts anew, so it is another one.
        directory.is_foreign &= directory.last < number;
        (directory.last, directory.counts, directory.promised) = (number, false, None);
        let is_watched = directory.is_watched(connection, told);
        directory.in_a_row && !directory.is_foreign && !is_watched
    }

    /// The server has deleted its node for us; the watch that was asked for before, if there is one.
    pub(crate) fn left(&mut self, name: &LockName, number: Sequence, asked: Option<(u64, Option<W>)>) {
        let Some(directory) = self.directories.get_mut(name).filter(|directory| directory.last == number)
        else {
            return;
        };
        directory.counts = true;
        if let Some((connection, watch)) = asked {
            directory.is_foreign = watch.is_none();
            directory.watch = watch.map(|watch| (connection, watch));
        }
    }

    fn remember(&mut self, name: &LockName, last: Sequence) {
        if self.names.len() == REMEMBERED
            && let Some(oldest) = self.names.pop_front()
        {
            self.directories.remove(&oldest);
        }
        self.names.push_back(name.clone());
        let (counts, promised, in_a_row, watch, is_foreign) = (false, None, false, None, false);
        let directory = Directory { last, counts, promised, in_a_row, watch, is_foreign };
        self.directories.insert(name.clone(), directory);
    }
}

impl<W> Directory<W> {
    /// Whether the watch stands; one that does not is dropped.
    fn is_watched(&mut self, connection: u64, told: impl FnOnce(&mut W) -> bool) -> bool {
        drop(self.watch.take_if(|(set_on, watch)| *set_on != connection || told(watch)));
        self.watch.is_some()
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

    /// Lets go of a hold on the first connection; whether a watch was asked for.
    fn released(untouched: &mut Untouched<Told>, held: i32, watch: Option<Told>) -> bool {
        let watches = untouched.leave(&name(), number(held), 0, |told| *told);
        untouched.left(&name(), number(held), watches.then_some((0, watch)));
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
        untouched.enter(&name(), 0, |told| *told)
    }

    fn is_back(untouched: &mut Untouched<Told>, made: i32) -> bool {
        untouched.is_the_same(&name(), number(made), 0, |told| *told)
    }

    /// The number after two in a row is ours alone, once for each time that we let go, and one watch does for all
    /// (zk.untouched-3).
    #[test]
    fn the_number_after_our_last_one_counts_once() {
        let mut untouched = in_a_row(Some(false));
        for held in 8..20 {
            assert_eq!(entered(&mut untouched), Some(number(held)));
            assert_eq!(entered(&mut untouched), None);
            assert!(is_back(&mut untouched, held));
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
        assert!(!untouched.is_the_same(&name(), number(8), 0, |_| true));
        let mut untouched = in_a_row(Some(false));
        assert_eq!(entered(&mut untouched), Some(number(8)));
        assert!(!untouched.is_the_same(&name(), number(8), 1, |told| *told));
        // It does not come back.
        assert!(!is_back(&mut untouched, 8));
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
        assert_eq!(entered(&mut untouched), Some(number(8)));
        // Before the node is made, others of ours let go in the next directory, which is watched by then.
        assert!(!untouched.leave(&name(), number(0), 0, |_| true));
        untouched.left(&name(), number(0), None);
        assert_eq!(entered(&mut untouched), None);
        assert!(released(&mut untouched, 1, Some(false)));
        assert!(!is_back(&mut untouched, 8));
        assert_eq!(entered(&mut untouched), Some(number(2)));
        assert!(!is_back(&mut untouched, 8));
        assert!(is_back(&mut untouched, 2));
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
