//! The locks that a command already runs under, so that it does not wait for itself.
//!
//! `LEASEHOLD_HELD` has a line `STORE-FINGERPRINT NAME` for every `run` around a command. A nested
//! `run` or `hold` of one of these would wait for its own parent, which waits for it.
//!
//! Not promised: to notice a lock that its parent holds by other means than `run`.

use std::env;

use crate::failure::Failure;
use crate::store::Place;

/// The variable.
pub(crate) const VARIABLE: &str = "LEASEHOLD_HELD";

/// Refuses a lock under which this process runs already.
pub(crate) fn refuse_nested(place: &Place, name: &str) -> Result<(), Failure> {
    let held = env::var(VARIABLE).unwrap_or_default();
    if !names_it(&held, &place.fingerprint(), name) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "this process already runs under the lock {name:?} and would wait for itself; if its `run` has \
         ended, unset {VARIABLE}"
    )))
}

/// The variable for a command under more locks.
pub(crate) fn with(place: &Place, names: &[&str]) -> String {
    let around = env::var(VARIABLE).ok().filter(|around| !around.is_empty());
    let fingerprint = place.fingerprint();
    let lines = names.iter().map(|name| format!("{fingerprint} {name}"));
    around.into_iter().chain(lines).collect::<Vec<_>>().join("\n")
}

fn names_it(held: &str, fingerprint: &str, name: &str) -> bool {
    held.lines().any(|line| line.split_once(' ') == Some((fingerprint, name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lock is known by store and name; names may have spaces in them.
    #[test]
    fn a_line_names_one_lock_of_one_store() {
        let held = "ab12 nightly\nab12 two words";
        assert!(names_it(held, "ab12", "nightly") && names_it(held, "ab12", "two words"));
        assert!(!names_it(held, "ab13", "nightly") && !names_it(held, "ab12", "two"));
        assert!(!names_it("", "", ""));
    }
}
