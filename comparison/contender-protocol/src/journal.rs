//! What is remembered of a run, and how it is written down.

use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use crate::mode::Mode;

/// One time through the lock, in nanoseconds of [`now`](crate::now).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a line of the journal has these columns")]
pub struct Cycle {
    /// Which contender of its process, from 0.
    pub contender: u32,
    /// Before the library was asked for the lock.
    pub requested: u64,
    /// When the library had given it.
    pub granted: u64,
    /// Before the library was asked to let it go.
    pub releasing: u64,
    /// When the library had confirmed that; never, if it failed to.
    pub released: Option<u64>,
    /// The fencing token, if there was one.
    pub token: Option<u64>,
    /// How it was held.
    pub mode: Mode,
}

impl Cycle {
    /// Reads a line of a journal.
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let cycle = Self {
            contender: words.next()?.parse().ok()?,
            requested: words.next()?.parse().ok()?,
            granted: words.next()?.parse().ok()?,
            releasing: words.next()?.parse().ok()?,
            released: known(words.next()?)?,
            token: known(words.next()?)?,
            mode: words.next().map_or(Some(Mode::EXCLUSIVE), Mode::parse)?,
        };
        words.next().is_none().then_some(cycle)
    }
}

/// A number, or `-` for none.
fn known(word: &str) -> Option<Option<u64>> {
    if word == "-" { Some(None) } else { word.parse().ok().map(Some) }
}

pub(crate) fn write(path: &Path, cycles: &[Cycle]) -> io::Result<()> {
    let mut text = String::with_capacity(cycles.len() * 80);
    for Cycle { contender, requested, granted, releasing, released, token, mode } in cycles {
        let word = |known: &Option<u64>| known.map_or_else(|| "-".to_owned(), |known| known.to_string());
        let (released, token) = (word(released), word(token));
        let mode = if *mode == Mode::EXCLUSIVE { String::new() } else { format!(" {mode}") };
        let _infallible =
            writeln!(text, "{contender} {requested} {granted} {releasing} {released} {token}{mode}");
    }
    fs::write(path, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written is what is read, with and without a token or a release, and however it was held.
    #[test]
    fn a_journal_reads_back() {
        let cycle = |released, token, mode| Cycle {
            contender: 3,
            requested: 10,
            granted: 20,
            releasing: 30,
            released,
            token,
            mode,
        };
        let cycles = [
            cycle(Some(40), None, Mode::EXCLUSIVE),
            cycle(Some(40), Some(7), Mode::SHARED),
            cycle(None, Some(8), Mode { weight: 2, capacity: 3 }),
        ];
        let path = std::env::temp_dir().join(format!("contender-journal-{}", std::process::id()));
        write(&path, &cycles).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(text.lines().map(|line| Cycle::parse(line).unwrap()).collect::<Vec<_>>(), cycles);
    }

    /// A line that is cut off or has too much is none.
    #[test]
    fn a_garbled_line_is_no_cycle() {
        for line in
            ["", "1 2 3", "1 2 3 4 5", "1 2 3 4 5 x", "1 2 3 4 5 6 7", "1 2 3 4 5 6 1/3 8", "a 2 3 4 5 -"]
        {
            assert_eq!(Cycle::parse(line), None, "{line:?}");
        }
    }
}
