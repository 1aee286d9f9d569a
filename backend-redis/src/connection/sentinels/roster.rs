//! Which sentinels are asked: those of the configuration, and those that these know. No I/O.
//!
//! # Invariants
//! - **redis.roster-1** Each sentinel of the configuration is asked, whatever the others say.
//! - **redis.roster-2** Another sentinel is asked while the latest list of a sentinel that is asked has it. So one that was
//!   removed is forgotten, and two that were removed do not keep each other.
//! - **redis.roster-3** A learned sentinel is not asked if the configuration names it otherwise. A sentinel that has moved is asked at
//!   each address that a list has: the list of a sentinel that is away is old. A survey counts it once.
//! - **redis.roster-4** The answer of an epoch below the largest one changes nothing, as that of a sentinel that was cut off.
//!
//! Checked by `tests`.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

/// The answer of one sentinel about itself and the others.
#[derive(Clone, Debug, Default)]
pub(super) struct Acquaintance<A> {
    /// Its own id, if it may be read.
    pub(super) id: Option<String>,
    /// The other sentinels of the primary, and their ids.
    pub(super) others: Vec<(A, String)>,
}

/// The sentinels of one primary.
#[derive(Debug)]
pub(super) struct Roster<A> {
    /// Those of the configuration.
    named: Vec<A>,
    /// The latest answer of each that is asked.
    answers: HashMap<A, Acquaintance<A>>,
    /// The largest epoch of all answers.
    epoch: u64,
}

impl<A: Clone + Eq + Hash> Roster<A> {
    pub(super) fn new(named: Vec<A>) -> Self {
        Self { named, answers: HashMap::new(), epoch: 0 }
    }

    /// A sentinel has answered, in `epoch` of the primary's configuration.
    pub(super) fn learn(&mut self, sentinel: &A, epoch: u64, answer: Acquaintance<A>) {
        // redis.roster-4
        if epoch < self.epoch {
            return;
        }
        self.epoch = epoch;
        self.answers.insert(sentinel.clone(), answer);
        let all = self.all();
        self.answers.retain(|sentinel, _| all.contains(sentinel));
    }

    /// Those that are asked.
    pub(super) fn all(&self) -> Vec<A> {
        let mut all = self.named.clone();
        let ids: HashSet<_> = all.iter().filter_map(|named| self.answers.get(named)?.id.as_deref()).collect();
        let mut looked_at = 0;
        while let Some(answer) = all.get(looked_at).map(|sentinel| self.answers.get(sentinel)) {
            looked_at += 1;
            for (other, id) in answer.into_iter().flat_map(|answer| &answer.others) {
                let is_another = !ids.contains(&**id);
                if is_another && !all.contains(other) && all.len() < self.named.len() + MOST_LEARNED {
                    all.push(other.clone());
                }
            }
        }
        all
    }
}

/// More would be a mistake, or made up.
const MOST_LEARNED: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// A sentinel with `id` lists others, each the letter of an address and of an id.
    fn answer(id: &str, others: &str) -> Acquaintance<char> {
        let other = |other: &str| (other.chars().next().unwrap(), other[1..].to_owned());
        let id = (!id.is_empty()).then(|| id.to_owned());
        Acquaintance { id, others: others.split_whitespace().map(other).collect() }
    }

    /// The sentinels that are asked after the answers of one epoch: the address of the sentinel, its id, and its list.
    fn asked(named: &str, answers: &[(char, &str, &str)]) -> String {
        let of_one: Vec<_> = answers.iter().map(|(from, id, others)| (1, *from, *id, *others)).collect();
        asked_after(named, &of_one)
    }

    /// The same, with the epoch of each answer.
    fn asked_after(named: &str, answers: &[(u64, char, &str, &str)]) -> String {
        let mut roster = Roster::new(named.chars().collect());
        for (epoch, from, id, others) in answers {
            roster.learn(from, *epoch, answer(id, others));
        }
        roster.all().into_iter().collect()
    }

    /// A sentinel that was cut off, or has begun anew, neither adds one nor makes one forgotten.
    #[test]
    fn answer_of_an_earlier_epoch_teaches_nothing() {
        let good = [(2, 'a', "1", "b2 c3"), (2, 'b', "2", "a1 c3")];
        assert_eq!(asked_after("a", &[&good[..], &[(1, 'a', "1", "")]].concat()), "abc");
        assert_eq!(asked_after("a", &[&good[..], &[(1, 'a', "1", "x7 y8")]].concat()), "abc");
        assert_eq!(asked_after("a", &[&good[..], &[(3, 'a', "1", "d4")]].concat()), "ad");
        assert_eq!(asked_after("a", &[(0, 'a', "1", "b2"), (2, 'a', "1", "c3"), (1, 'c', "3", "d4")]), "ac");
    }

    /// The last list of a sentinel that is away names another one where it was before.
    #[test]
    fn moved_sentinel_is_asked_at_both_addresses() {
        assert_eq!(asked("ab", &[('a', "1", "c3"), ('b', "2", "d3")]), "abcd");
    }

    /// A learned sentinel is asked until no list has it; those of the configuration are asked for good.
    #[test]
    fn learned_sentinel_is_asked_while_it_is_listed() {
        assert_eq!(asked("ab", &[]), "ab");
        assert_eq!(asked("ab", &[('a', "1", "b2 c3"), ('b', "2", "a1 d4")]), "abcd");
        assert_eq!(asked("ab", &[('a', "1", "b2 c3"), ('b', "2", "a1 c3"), ('a', "1", "b2")]), "abc");
        assert_eq!(asked("ab", &[('a', "1", "b2 c3"), ('a', "1", "")]), "ab");
        // They list each other, and no other sentinel lists them.
        let forgotten = [('a', "1", "c3 d4"), ('c', "3", "a1 d4"), ('d', "4", "a1 c3"), ('a', "1", "")];
        assert_eq!(asked("a", &forgotten), "a");
        // Its list from before does not count when it is listed again.
        assert_eq!(asked("a", &[&forgotten[..], &[('a', "1", "c3")]].concat()), "ac");
    }

    /// A sentinel of the configuration is asked at the address that it has there.
    #[test]
    fn named_sentinel_is_asked_at_its_address() {
        assert_eq!(asked("ab", &[('a', "1", "x2 c3"), ('b', "2", "y1 c3")]), "abc");
        // Before it has answered, its id is not known: another sentinel may be there now.
        assert_eq!(asked("ab", &[('a', "1", "b2 x2")]), "abx");
        // Without its own id, it is known by its address alone.
        assert_eq!(asked("ab", &[('a', "1", "x2"), ('b', "", "a1")]), "abx");
    }

    /// However many are listed.
    #[test]
    fn learned_sentinels_are_bounded() {
        let many: Vec<_> = ('b'..='z').map(|other| format!("{other}{other}")).collect();
        assert_eq!(asked("a", &[('a', "1", &many.join(" "))]).len(), 1 + MOST_LEARNED);
    }
}
