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

use crate::keys::{self, Keys};

/// How names become keys in one namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QuorumKeys {
    prefix: String,
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
        Keys::new(prefix, None)?;
        Ok(Self { prefix: prefix.to_owned() })
    }

    pub(crate) fn of(&self, name: &LockName) -> BallotKeys {
        let name = keys::escaped(name.as_str());
        let key = |part| [&self.prefix, ":{", &*name, "}:", part].concat();
        BallotKeys { vote: key(VOTE), count: key("count"), waits: key(WAITS), asked: key("asked") }
    }

    /// The key of what a server knows of the namespace.
    pub(crate) fn space(&self) -> String {
        format!("{}:{{%quorum}}", self.prefix)
    }

    /// What the id of an inbox follows in its channel's name.
    pub(crate) fn channels(&self) -> String {
        format!("{}:inbox:", self.prefix)
    }

    /// The pattern of the keys of every name that begins with `start`.
    pub(crate) fn pattern(&self, start: &str) -> String {
        format!("{}:{{{}*", keys::glob_escaped(&self.prefix), keys::glob_escaped(&keys::escaped(start)))
    }

    /// The name that is voted or waited for under `key`, unless it is none of ours.
    pub(crate) fn name_of(&self, key: &str) -> Option<LockName> {
        let rest = key.strip_prefix(&self.prefix)?.strip_prefix(":{")?;
        let (name, part) = rest.split_once("}:")?;
        if part != VOTE && part != WAITS {
            return None;
        }
        LockName::new(keys::unescaped(name)?).ok()
    }
}

const VOTE: &str = "vote";
const WAITS: &str = "waits";

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
            for key in [vote, count, waits, asked, ours.space()] {
                assert_eq!(single.name_of(&key), None, "{key}");
                assert!(seen.insert(key.clone()) || key == ours.space(), "{key}");
            }
            for key in single.of(&name).unwrap().all() {
                assert_eq!(ours.name_of(key), None, "{key}");
            }
        }
        assert_eq!(ours.name_of(&ours.space()), None);
        assert!(QuorumKeys::new("a}").is_err());
    }
}
