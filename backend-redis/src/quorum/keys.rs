//! The keys of a name at each server, and back. None of them is a key of the store in one server, so neither
//! takes the other's locks for its own.
//!
//! | key | holds |
//! |---|---|
//! | `P:{N}:vote` | who has the server's vote, with the lease as expiry |
//! | `P:{N}:count` | the last vote: its number and whom it went to; gone a day after it |
//! | `P:{N}:waits` | who waits for the vote |
//! | `P:{N}:asked` | the holder that was asked to let go |
//! | `P:{%quorum}` | what the server knows of the namespace; no name is escaped like that |
//!
//! Checked by the tests below and the cases of `g10`.

use leasehold_core::{LockName, Result};

use crate::keys::Keys;

/// How names become keys in one namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QuorumKeys {
    pub(crate) prefixed: Keys,
}

/// The keys of one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BallotKeys {
    pub(crate) vote: String,
    pub(crate) count: String,
    pub(crate) waits: String,
    pub(crate) asked: String,
}

impl QuorumKeys {
    /// Keys that begin with `prefix`.
    ///
    /// # Errors
    ///
    /// As [`Keys::new`].
    pub(crate) fn new(prefix: &str) -> Result<Self> {
        Ok(Self { prefixed: Keys::new(prefix, None)? })
    }

    pub(crate) fn of(&self, name: &LockName) -> BallotKeys {
        let [vote, count, waits, asked] = self.prefixed.each_of(name, [VOTE, ":count", WAITS, ":asked"]);
        BallotKeys { vote, count, waits, asked }
    }

    /// The name that is voted or waited for under `key`, unless it is none of ours.
    pub(crate) fn name_of(&self, key: &str) -> Option<LockName> {
        self.prefixed.name_with_one_of(&[VOTE, WAITS], key)
    }
}

const VOTE: &str = ":vote";
const WAITS: &str = ":waits";

#[cfg(test)]
mod tests {
    use super::*;

    /// Every name has keys of its own, which lead back to it, and the store in one server knows none of them.
    #[test]
    fn keys_are_injective_and_no_others() {
        let (ours, single) = (QuorumKeys::new("p").unwrap(), Keys::new("p", None).unwrap());
        let mut seen = std::collections::BTreeSet::new();
        for name in ["a", "a}", "{a}:vote", "a%7D", "a%257D", "%quorum", "é", "a b"] {
            let name = LockName::new(name).unwrap();
            let BallotKeys { vote, count, waits, asked } = ours.of(&name);
            for key in [&vote, &waits] {
                assert_eq!(ours.name_of(key), Some(name.clone()), "{key}");
            }
            for key in [vote, count, waits, asked, ours.prefixed.space()] {
                assert_eq!(single.name_of(&key), None, "{key}");
                assert!(seen.insert(key.clone()) || key == ours.prefixed.space(), "{key}");
            }
            for key in single.of(&name).unwrap().all() {
                assert_eq!(ours.name_of(key), None, "{key}");
            }
        }
        assert_eq!(ours.name_of(&ours.prefixed.space()), None);
        assert!(QuorumKeys::new("a}").is_err());
    }
}
