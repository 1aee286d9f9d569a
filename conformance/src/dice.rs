//! Random choices that a seed repeats.

use std::time::Duration;

/// A source of choices; equal seeds choose alike. SplitMix64, far from cryptographic.
#[derive(Clone, Debug)]
pub struct Dice {
    state: u64,
}

impl Dice {
    /// Dice that fall as `seed` says.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `bound`.
    ///
    /// # Panics
    ///
    /// When `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound
    }

    /// A number from `least` to `most`, both included.
    ///
    /// # Panics
    ///
    /// When `most` is below `least`.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        assert!(least <= most, "an empty range");
        least + self.below(most - least + 1)
    }

    /// Yes in `per_mille` of a thousand cases.
    pub fn chance(&mut self, per_mille: u16) -> bool {
        self.below(1000) < u64::from(per_mille)
    }

    /// A span of up to `longest`, in whole microseconds.
    pub fn span(&mut self, longest: Duration) -> Duration {
        let micros = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX - 1);
        Duration::from_micros(self.below(micros + 1))
    }

    /// One of `choices`.
    ///
    /// # Panics
    ///
    /// When there are none.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let index = self.below(choices.len() as u64);
        &choices[usize::try_from(index).expect("an index of a slice")]
    }

    /// Dice of their own, for draws that must not shift those of others.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.bits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_per_mille() {
        let mut dice = Dice::new(1);
        let hits = (0..10_000).filter(|_| dice.chance(100)).count();
        assert!((800..1200).contains(&hits), "{hits}");
        assert!(!(0..1000).any(|_| dice.chance(0)));
        assert!((0..1000).all(|_| dice.chance(1000)));
    }
}
