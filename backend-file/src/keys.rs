//! How a lock's name becomes one file name: readable, injective, the same on every file system.
//!
//! Lower-case letters, digits and a few marks stand for themselves; every other byte is `%` and two lower-case hexadecimal
//! digits. No upper-case letter is ever written, so names that differ in case stay apart on a file system that ignores case,
//! and no byte above 127, so nothing is normalised. A key that would be too long is the beginning of that, `~`, and the SHA-256
//! of the name; the full name is in the file and is compared.
//!
//! # Invariants
//! - **file.keys-1** Two names never have the same key (G10), as long as SHA-256 has no collision; with one,
//!   the name in the file differs and the request fails.
//! - **file.keys-2** A key is a plain file name: not empty, no `/`, no leading dot, at most 104 bytes, so that suffixes fit if
//!   names end at 143 bytes.

use leasehold_core::LockName;
use sha2::{Digest, Sha256};

/// The part of a file name that stands for one lock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(Box<str>);

impl Key {
    pub(crate) fn of(name: &LockName) -> Self {
        let plain = escaped(name.as_str());
        if plain.len() <= LONGEST {
            return Self(plain.into());
        }
        let mut stem = &plain[..STEM];
        // An escape is kept whole or not at all.
        if let Some(cut) = stem.rfind('%').filter(|at| at + 3 > STEM) {
            stem = &stem[..cut];
        }
        let hash: String = Sha256::digest(name.as_str()).iter().map(hex).collect();
        Self(format!("{stem}{HASHED}{hash}").into())
    }

    /// The key in the name of a lock file; `None` for names that no key has.
    pub(crate) fn of_lock_file(file: &str) -> Option<Self> {
        Self::parse(file.strip_suffix(SUFFIX)?)
    }

    /// A key as it stands in some file name.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let known = |byte: u8| stands_for_itself(byte) || matches!(byte, b'%' | b'~');
        let well_formed = !text.is_empty() && text.len() <= LONGEST && !text.starts_with('.');
        (well_formed && text.bytes().all(known)).then(|| Self(text.into()))
    }

    pub(crate) fn lock_file(&self) -> String {
        format!("{}{SUFFIX}", self.0)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a name that begins with `prefix` may have this key; a hashed key may always.
    pub(crate) fn may_begin_with(&self, prefix: &str) -> bool {
        self.0.contains(HASHED) || self.0.starts_with(&escaped(prefix))
    }
}

fn escaped(name: &str) -> String {
    let mut key = String::with_capacity(name.len());
    for (at, byte) in name.bytes().enumerate() {
        if stands_for_itself(byte) && (at > 0 || byte != b'.') {
            key.push(char::from(byte));
        } else {
            key.push('%');
            key.push_str(&hex(&byte));
        }
    }
    key
}

fn stands_for_itself(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'+' | b'=' | b'@' | b',')
}

fn hex(byte: &u8) -> String {
    format!("{byte:02x}")
}

const SUFFIX: &str = ".lock";
const HASHED: char = '~';
const LONGEST: usize = 104;
const STEM: usize = LONGEST - 1 - 64;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn key(name: &str) -> String {
        Key::of(&LockName::new(name).unwrap()).0.into()
    }

    /// Existing directories depend on these: never change them.
    #[test]
    fn keys_are_readable_and_fixed() {
        assert_eq!(key("invoice/42"), "invoice%2f42");
        assert_eq!(key("Nightly.Job"), "%4eightly.%4aob");
        assert_eq!(key("é~"), "%c3%a9%7e");
        let long = key(&format!("backup/{}", "x".repeat(500)));
        let hash = "c11d8245fd0752c770bb339c6417d8eb9b7cf49c6a34047c7432e2863c51f457";
        assert_eq!(long, format!("backup%2fxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx~{hash}"));
        assert_eq!(long.len(), LONGEST);
    }

    /// No name is a directory, a hidden file, or our own bookkeeping.
    #[test]
    fn special_file_names_are_escaped() {
        assert_eq!(key("."), "%2e");
        assert_eq!(key(".."), "%2e.");
        assert_eq!(key(".leasehold"), "%2eleasehold");
        assert_eq!(key("/a"), "%2fa");
    }

    /// A stem is cut before an escape, never within.
    #[test]
    fn a_stem_ends_between_escapes() {
        for shift in 0..3 {
            let key = key(&format!("{}{}", "x".repeat(shift), "É".repeat(200)));
            let (stem, hash) = key.split_once('~').unwrap();
            assert_eq!((stem.len() - shift) % 3, 0, "{stem}");
            assert_eq!(hash.len(), 64);
        }
    }

    /// Names that differ only in case, in normal form, beyond the stem, or by an escape.
    #[test]
    fn names_that_a_file_system_might_merge_stay_distinct() {
        let long = "x".repeat(300);
        let names = ["a", "A", "a/", "/a", "a/b", "a%2fb", "a%2Fb", "é", "e\u{301}", "a.lock", "a.", "a "];
        let mut keys: BTreeSet<_> = names.iter().map(|name| key(name).to_lowercase()).collect();
        keys.extend([key(&long), key(&format!("{long}y")), key(&format!("{long}Y"))]);
        assert_eq!(keys.len(), names.len() + 3);
    }

    proptest! {
        /// file.keys-1 and file.keys-2 for any two names, and prefixes are kept.
        #[test]
        fn keys_are_injective_file_names(a in "[^\\p{Cc}]{1,120}", b in "[^\\p{Cc}]{1,120}", cut in 0_usize..120) {
            prop_assume!(a.len() <= LockName::MAX_BYTES && b.len() <= LockName::MAX_BYTES);
            prop_assert_eq!(key(&a) == key(&b), a == b);
            let name = LockName::new(&a).unwrap();
            let key = Key::of(&name);
            prop_assert_eq!(Key::of_lock_file(&key.lock_file()), Some(key.clone()));
            prop_assert!(key.0.is_ascii() && key.0.to_lowercase() == *key.0);
            let prefix: String = a.chars().take(cut).collect();
            prop_assert!(key.may_begin_with(&prefix));
        }
    }
}
