//! The keys of a name at each server, and back. None of them is a key of the store in one server, so neither
//! reads the keys of the other.
//!
//! | key | holds |
//! |---|---|
//! | `P:{N}:vote` | the owner that has the server's vote, with the lease as expiry |
//! | `P:{N}:count` | the last vote: its number and its owner; it expires a day later |
//! | `P:{N}:waits` | the queue of waiting owners |
//! | `P:{N}:asked` | the holder whose vote was revoked, with its grace |
//! | `P:{%quorum}` | the server's state in the namespace; no name is escaped like that |
//!
//! Checked by the tests below and the cases of `g10`.

use leasehold_core::LockName;

use crate::keys::Keys;

/// The keys of one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BallotKeys {
    pub(crate) vote: String,
    pub(crate) count: String,
    pub(crate) waits: String,
    pub(crate) asked: String,
}

impl BallotKeys {
    pub(crate) fn of(keys: &Keys, name: &LockName) -> Self {
        let [vote, count, waits, asked] = keys.each_of(name, [VOTE, COUNT, WAITS, ":asked"]);
        Self { vote, count, waits, asked }
    }
}

/// The name that is voted or waited for under `key`, unless it is another key.
pub(crate) fn name_of(keys: &Keys, key: &str) -> Option<LockName> {
    keys.name_with_one_of(&[VOTE, WAITS], key)
}

pub(crate) const VOTE: &str = ":vote";
pub(crate) const COUNT: &str = ":count";
const WAITS: &str = ":waits";

#[cfg(test)]
mod tests {
    use super::*;

    /// Every name has keys of its own, which lead back to it, and the store in one server knows none of them.
    #[test]
    fn keys_are_injective_and_no_others() {
        let keys = Keys::new("p", None).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for name in ["a", "a}", "{a}:vote", "a%7D", "a%257D", "%quorum", "é", "a b"] {
            let name = LockName::new(name).unwrap();
            let BallotKeys { vote, count, waits, asked } = BallotKeys::of(&keys, &name);
            for key in [&vote, &waits] {
                assert_eq!(name_of(&keys, key), Some(name.clone()), "{key}");
            }
            for key in [vote, count, waits, asked, keys.space()] {
                assert_eq!(keys.name_of(&key), None, "{key}");
                assert!(seen.insert(key.clone()) || key == keys.space(), "{key}");
            }
            for key in keys.of(&name).unwrap().all() {
                assert_eq!(name_of(&keys, key), None, "{key}");
            }
        }
        assert_eq!(name_of(&keys, &keys.space()), None);
    }
}
