//! How a contender wants a lock, as orders and journals call it: alone, among readers, or a permit of some.

use std::fmt::{self, Display};

/// What one who holds takes of what may be taken at once: 1 of 1 alone, 1 of endless as a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_structs, reason = "a mode is these two numbers")]
pub struct Mode {
    /// What it takes.
    pub weight: u32,
    /// The most that may be taken while it is there; [`u32::MAX`] is endless.
    pub capacity: u32,
}

impl Mode {
    /// Alone.
    pub const EXCLUSIVE: Self = Self { weight: 1, capacity: 1 };
    /// Beside all other readers.
    pub const SHARED: Self = Self { weight: 1, capacity: u32::MAX };

    /// Reads `exclusive`, `shared`, or a weight and a capacity such as `1/3`.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "exclusive" => Some(Self::EXCLUSIVE),
            "shared" => Some(Self::SHARED),
            permits => {
                let (weight, capacity) = permits.split_once('/')?;
                let (weight, capacity) = (weight.parse().ok()?, capacity.parse().ok()?);
                (0 < weight && weight <= capacity).then_some(Self { weight, capacity })
            }
        }
    }
}

impl Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::EXCLUSIVE => f.write_str("exclusive"),
            Self::SHARED => f.write_str("shared"),
            Self { weight, capacity } => write!(f, "{weight}/{capacity}"),
        }
    }
}

/// How contenders come to what they want, each time anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "an order has one of these words")]
pub enum Draw {
    /// All of them, always.
    Always(Mode),
    /// So many times in a hundred to read, otherwise to write.
    Reads(u8),
    /// The first so many contenders of the process to write, the others to read.
    Writers(u32),
}

impl Draw {
    /// Reads `reads=PERCENT`, `writers=COUNT` or a mode.
    pub fn parse(word: &str) -> Option<Self> {
        match word.split_once('=') {
            Some(("reads", percent)) => {
                percent.parse().ok().filter(|percent| *percent <= 100).map(Self::Reads)
            }
            Some(("writers", count)) => count.parse().ok().map(Self::Writers),
            Some(_) => None,
            None => Mode::parse(word).map(Self::Always),
        }
    }

    /// What is left of it for a process, where each has so many `contenders` and those of the first ones come first.
    pub fn of_process(self, index: u32, contenders: u32) -> Self {
        match self {
            Self::Writers(count) => Self::Writers(count.saturating_sub(index * contenders)),
            draw => draw,
        }
    }

    /// All that may be drawn.
    pub(crate) fn modes(self) -> Vec<Mode> {
        match self {
            Self::Always(mode) => vec![mode],
            Self::Reads(_) | Self::Writers(_) => vec![Mode::EXCLUSIVE, Mode::SHARED],
        }
    }

    /// What `contender` wants that asks at `requested`: a place in [`modes`](Self::modes).
    pub(crate) fn drawn(self, contender: u32, requested: u64) -> usize {
        let reads = match self {
            Self::Always(_) => false,
            Self::Reads(percent) => mixed(requested) % 100 < u64::from(percent),
            Self::Writers(count) => contender >= count,
        };
        usize::from(reads)
    }
}

impl Default for Draw {
    fn default() -> Self {
        Self::Always(Mode::EXCLUSIVE)
    }
}

impl Display for Draw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always(mode) => mode.fmt(f),
            Self::Reads(percent) => write!(f, "reads={percent}"),
            Self::Writers(count) => write!(f, "writers={count}"),
        }
    }
}

/// `SplitMix64` of a number, so that programs in every language draw alike and none needs a seed.
pub fn mixed(seed: u64) -> u64 {
    let mut bits = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words read back, and what could never be granted is none.
    #[test]
    fn modes_and_draws_are_words() {
        for draw in [
            Draw::default(),
            Draw::Always(Mode::SHARED),
            Draw::Always(Mode { weight: 2, capacity: 3 }),
            Draw::Reads(90),
            Draw::Writers(1),
        ] {
            assert_eq!(Draw::parse(&draw.to_string()), Some(draw), "{draw}");
        }
        for wrong in ["", "0/3", "4/3", "1/", "reads=101", "reads", "writers=x", "mutex", "all=1"] {
            assert_eq!(Draw::parse(wrong), None, "{wrong:?}");
        }
    }

    /// Nine in ten are nine in ten, whatever the steps of the clock; a program in another language draws the same.
    #[test]
    fn reads_are_drawn_as_often_as_asked_for() {
        for step in [1, 1_000, 1_048_576] {
            let reads = (0..10_000).filter(|n| Draw::Reads(90).drawn(0, n * step) == 1).count();
            assert!((8_800..9_200).contains(&reads), "{reads} of 10000 in steps of {step}");
        }
        assert_eq!(mixed(0) % 100, 35);
        assert_eq!(
            [0, 1, 2].map(|index| Draw::Writers(3).of_process(index, 2)),
            [3, 1, 0].map(Draw::Writers)
        );
        assert_eq!([0, 1, 2].map(|contender| Draw::Writers(1).drawn(contender, 7)), [0, 1, 1]);
    }
}
