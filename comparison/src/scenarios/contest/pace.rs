//! How long a turn is, and how many there are.
//!
//! # Invariants
//! - **contest-8** A turn lasts until each contender has gone through the lock [`EACH`] times, as far as that is known
//!   before, so that a queue is in its steady state for most of it; where each has a lock of its own, [`ENOUGH`] of all together
//!   do. Who is slow has longer turns and fewer of them: those
//!   that it has are in the same rounds as the turns of others that have as few, or fewer.

use std::time::Duration;

use crate::scale::Scale;

/// Of one implementation in one contest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    pub(super) span: Duration,
    /// It has its turn once in so many rounds.
    stride: u32,
}

impl Pace {
    /// The length of every turn, the same for all contenders.
    pub(super) fn fixed(span: Duration) -> Self {
        Self { span, stride: 1 }
    }

    /// Of so many contenders that make so many cycles a second together, for one lock or for one each.
    pub(super) fn of(contenders: u64, for_one: bool, rate: f64, scale: &Scale) -> Self {
        let most = if for_one { f64::INFINITY } else { ENOUGH };
        let wanted = (EACH * contenders as f64).min(most) / rate.max(LEAST_RATE);
        let most = if contenders < MANY { scale.longest * 3 / 10 } else { scale.longest };
        let span = Duration::from_secs_f64(wanted).clamp(scale.turn, most);
        let mut strides = STRIDES.into_iter().filter(|stride| scale.rounds / stride >= FEW);
        let least = strides.clone().next_back().unwrap_or(1);
        let within = |stride: &u32| span * (scale.rounds / stride) <= scale.each;
        let stride = strides.find(within).unwrap_or(least);
        Self { span: Duration::from_millis(span.as_millis().try_into().unwrap_or(u64::MAX)), stride }
    }

    pub(super) fn is_due(self, round: u32) -> bool {
        round.is_multiple_of(self.stride)
    }
}

/// How often each contender goes through the lock in a turn.
const EACH: f64 = 20.0;

/// Of locks that nobody else wants.
const ENOUGH: f64 = 320.0;

/// From so many contenders on, they take long to come to their places.
const MANY: u64 = 100;

/// The fewest turns that decide anything.
const FEW: u32 = 5;

/// Each is a multiple of the one before.
const STRIDES: [u32; 4] = [1, 2, 5, 10];

/// Slower than anybody who takes part.
const LEAST_RATE: f64 = 1e-3;

#[cfg(test)]
mod tests {
    use super::*;

    /// Who is fast has short turns in every round; who is slow has fewer, long enough for a queue, up to a bound.
    #[test]
    fn slow_contenders_have_fewer_and_longer_turns() {
        let pace_of = |contenders, for_one, rate| {
            let Pace { span, stride } = Pace::of(contenders, for_one, rate, &Scale::USUAL);
            (span.as_millis(), stride)
        };
        let pace = |contenders, rate| pace_of(contenders, true, rate);
        assert_eq!(pace(1, 9_000.0), (20, 1));
        assert_eq!(pace(8, 5_000.0), (32, 1));
        assert_eq!(pace(8, 800.0), (200, 10));
        assert_eq!(pace(100, 1_000.0), (2_000, 10));
        assert_eq!(pace(100, 10.0), (2_000, 10));
        assert_eq!(pace(2, 0.0), (600, 10));
        assert_eq!((pace(64, 6_400.0), pace_of(64, false, 6_400.0)), ((200, 10), (50, 2)));
        let due = |contenders, rate| {
            let pace = Pace::of(contenders, true, rate, &Scale::USUAL);
            (0..Scale::USUAL.rounds).filter(|round| pace.is_due(*round)).collect::<Vec<_>>()
        };
        let (often, seldom) = (due(8, 5_000.0), due(8, 800.0));
        assert!(seldom.len() >= 5 && seldom.iter().all(|round| often.contains(round)), "{seldom:?}");
    }
}
