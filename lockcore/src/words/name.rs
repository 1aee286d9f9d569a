//! The name of a lock: validated once, compared byte by byte, cheap to clone.
//!
//! A store encodes a name injectively into its own key space, so two different names never
//! interact (G10). Nothing is normalised here: `/a`, `a` and `a/` are three names, and so are the
//! composed and the decomposed form of `é`.
//!
//! Checked by the unit tests below and by the conformance cases of `g10`.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::words::error::{Error, ErrorKind, Result};

/// A valid lock name: UTF-8, 1 to [`LockName::MAX_BYTES`] bytes, no control characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(Arc<str>);

impl LockName {
    /// The longest name, in bytes of its UTF-8 form.
    pub const MAX_BYTES: usize = 512;

    /// Checks `name` and copies it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidName`] when `name` is empty, longer than [`LockName::MAX_BYTES`], or
    /// contains a control character; the message names the value and the rule.
    pub fn new(name: impl AsRef<str>) -> Result<Self> {
        let name = name.as_ref();
        match fault(name) {
            None => Ok(Self(name.into())),
            Some(rule) => Err(Error::not_applied(
                ErrorKind::InvalidName,
                format!("lock name {:?} is invalid: {rule}", shortened(name)),
            )),
        }
    }

    /// Returns the name as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for LockName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl FromStr for LockName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::new(name)
    }
}

fn fault(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("it is empty".to_owned());
    }
    if name.len() > LockName::MAX_BYTES {
        return Some(format!("it has {} bytes, at most {} are allowed", name.len(), LockName::MAX_BYTES));
    }
    let control = name.chars().find(|c| c.is_control())?;
    Some(format!("it contains the control character {control:?}"))
}

fn shortened(name: &str) -> String {
    const SHOWN: usize = 40;
    if name.chars().count() <= SHOWN {
        name.to_owned()
    } else {
        name.chars().take(SHOWN).chain(['…']).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(name: &str) -> String {
        let error = LockName::new(name).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidName);
        error.to_string()
    }

    /// Each rule names the value and itself.
    #[test]
    fn names_outside_the_rules_are_refused() {
        assert!(refusal("").contains("empty"));
        assert!(refusal(&"x".repeat(513)).contains("513 bytes"));
        assert!(refusal("a\0b").contains(r"'\0'"));
        assert!(refusal("a\nb").contains(r"'\n'"));
        assert!(refusal("a\u{85}b").contains("control"));
        assert!(refusal("a\u{7f}").contains("control"));
    }

    /// The limit counts bytes, not characters.
    #[test]
    fn the_longest_name_is_counted_in_bytes() {
        assert!(LockName::new("x".repeat(512)).is_ok());
        assert!(LockName::new("é".repeat(256)).is_ok());
        assert!(refusal(&"é".repeat(257)).contains("514 bytes"));
    }

    /// Nothing is normalised, folded or decoded.
    #[test]
    fn names_that_an_encoding_might_merge_stay_distinct() {
        let names =
            ["a/b", "a%2Fb", "a%2fb", "/a", "a", "A", "a/", ".", "..", "a b", "a+b", "{a}", "é", "e\u{301}"];
        let distinct: std::collections::BTreeSet<_> =
            names.iter().map(|name| LockName::new(name).unwrap()).collect();
        assert_eq!(distinct.len(), names.len());
    }
}
