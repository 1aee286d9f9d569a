//! Inputs for readers of what others have written: things that were once written rightly, or found to be
//! tricky, changed a little. The corpus is kept in `tests/corpus`, a file for each kind and a line for each thing,
//! in which `\n` is an end of line and `\\` a backslash.
//!
//! At depth `soak` a million are tried; what fails is kept by proptest beside the test, and is worth a line in the corpus.

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;

use crate::Depth;

/// The kept things of one kind.
pub fn corpus(kind: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus").join(kind);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let plain = |line: &str| line.replace("\\\\", "\0").replace("\\n", "\n").replace('\0', "\\");
    text.lines().map(|line| plain(line).into_bytes()).collect()
}

/// How many inputs are tried at the depth of this run.
pub fn tries() -> ProptestConfig {
    ProptestConfig { cases: Depth::of_run().pick(256, 256, 1_000_000), ..ProptestConfig::default() }
}

/// One of `corpus`, with up to eight changes; and now and then anything at all.
pub fn changed(corpus: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let (seeds, others) = (proptest::sample::select(corpus.clone()), corpus);
    let changes = prop::collection::vec(change(), 0..8);
    let ours = (seeds, changes).prop_map(move |(mut bytes, changes)| {
        for change in changes {
            change.apply(&mut bytes, &others);
        }
        bytes
    });
    prop_oneof![15 => ours, 1 => prop::collection::vec(any::<u8>(), 0..200)]
}

/// The same as text.
pub fn changed_text(corpus: Vec<Vec<u8>>) -> impl Strategy<Value = String> {
    changed(corpus).prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

#[derive(Clone, Debug)]
enum Change {
    Overwrite(Index, u8),
    Insert(Index, Vec<u8>),
    Cut(Index),
    Remove(Index, u8),
    Repeat(Index, u8),
    /// Goes on as another one ends.
    Splice(Index, Index, Index),
}

fn change() -> impl Strategy<Value = Change> {
    // What separates and escapes, or is the first or last of its kind.
    const SIGNS: &[u8] = b"\0\n\r\t %/:@?&=,;.+-_[]{}#\\\"09afAFzZ\x7f\x80\xc3\xff";
    let sign = || prop_oneof![proptest::sample::select(SIGNS), any::<u8>()];
    const WORDS: &[&str] = &[
        "18446744073709551616",
        "9223372036854775808",
        "-1",
        "%",
        "%2",
        "%25",
        "%zz",
        "é",
        "\u{10ffff}",
        "1e308",
        "NaN",
        "::",
        "\n\n",
        "//",
    ];
    let word = proptest::sample::select(WORDS).prop_map(|word| word.as_bytes().to_vec());
    prop_oneof![
        (any::<Index>(), sign()).prop_map(|(at, byte)| Change::Overwrite(at, byte)),
        (any::<Index>(), sign()).prop_map(|(at, byte)| Change::Insert(at, vec![byte])),
        (any::<Index>(), word).prop_map(|(at, word)| Change::Insert(at, word)),
        any::<Index>().prop_map(Change::Cut),
        (any::<Index>(), 1_u8..32).prop_map(|(at, length)| Change::Remove(at, length)),
        (any::<Index>(), 1_u8..32).prop_map(|(at, length)| Change::Repeat(at, length)),
        any::<(Index, Index, Index)>().prop_map(|(at, other, from)| Change::Splice(at, other, from)),
    ]
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>, others: &[Vec<u8>]) {
        let length = bytes.len();
        let end = |at: usize, count: u8| length.min(at + usize::from(count));
        match self {
            Self::Overwrite(at, byte) if length > 0 => bytes[at.index(length)] = *byte,
            Self::Insert(at, word) => {
                let at = at.index(length + 1);
                bytes.splice(at..at, word.iter().copied());
            }
            Self::Cut(at) => bytes.truncate(at.index(length + 1)),
            Self::Remove(at, count) if length > 0 => {
                let at = at.index(length);
                bytes.drain(at..end(at, *count));
            }
            Self::Repeat(at, count) if length > 0 => {
                let at = at.index(length);
                bytes.extend_from_within(at..end(at, *count));
            }
            Self::Splice(at, other, from) => {
                bytes.truncate(at.index(length + 1));
                let other = &others[other.index(others.len())];
                bytes.extend_from_slice(&other[from.index(other.len() + 1)..]);
            }
            Self::Overwrite(..) | Self::Remove(..) | Self::Repeat(..) => {}
        }
    }
}
