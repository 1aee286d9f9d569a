//! Which sentinels are asked: those of the configuration, and those that these know. No I/O.
//!
//! # Invariants
//! - **redis.roster-1** Each sentinel of the configuration is asked, whatever the others say.
//! - **redis.roster-2** Another sentinel is asked while the latest list of a sentinel that is asked has it. So one that was
//!   removed is forgotten, and two that were removed do not keep each other.
//! - **redis.roster-3** A learned sentinel is asked at one address only, and not at all if the configuration names it otherwise.
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
}

impl<A: Clone + Eq + Hash> Roster<A> {
    pub(super) fn new(named: Vec<A>) -> Self {
        Self { named, answers: HashMap::new() }
    }

    /// A sentinel has answered.
    pub(super) fn learn(&mut self, sentinel: &A, answer: Acquaintance<A>) {
        self.answers.insert(sentinel.clone(), answer);
        let all = self.all();
        self.answers.retain(|sentinel, _| all.contains(sentinel));
    }

    /// Those that are asked.
    pub(super) fn all(&self) -> Vec<A> {
        let mut all = self.named.clone();
        let mut ids: HashSet<_> =
            all.iter().filter_map(|named| self.answers.get(named)?.id.as_deref()).collect();
        let mut looked_at = 0;
        while let Some(answer) = all.get(looked_at).map(|sentinel| self.answers.get(sentinel)) {
            looked_at += 1;
            for (other, id) in answer.into_iter().flat_map(|answer| &answer.others) {
                let is_another = ids.insert(id);
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

    /// The sentinels that are asked after the answers: the address of who answers, its id, and its list.
    fn asked(named: &str, answers: &[(char, &str, &str)]) -> String {
        let mut roster = Roster::new(named.chars().collect());
        for (from, id, others) in answers {
            roster.learn(from, answer(id, others));
        }
        roster.all().into_iter().collect()
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

    /// An id is asked at one address, that of the configuration first.
    #[test]
    fn sentinel_with_two_addresses_is_asked_at_one() {
        assert_eq!(asked("ab", &[('a', "1", "x2 c3"), ('b', "2", "y1 c3")]), "abc");
        assert_eq!(asked("a", &[('a', "1", "b2 c2")]), "ab");
        assert_eq!(asked("ab", &[('a', "1", "b2 x2")]), "ab");
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
