//! The faults: what a pump does with the frames of its direction.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// What happens to the frames of one direction.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Mode {
    /// Each frame is forwarded as it comes.
    Pass,
    /// Each frame is forwarded `base` and up to `jitter` after it came, in order. The jitter is
    /// drawn from `seed`, by each connection anew. The end of the stream is not delayed on its own.
    Delay {
        /// The least delay.
        base: Duration,
        /// How much longer it may take.
        jitter: Duration,
        /// Where the random numbers start.
        seed: u64,
    },
    /// Nothing moves, as if the cable were cut. Nothing is read either, not even the end of the
    /// stream. Once healed everything arrives, as TCP would have it by sending again.
    Blackhole,
    /// Frames, and the end of the stream, are read and kept back. Unlike in a blackhole one knows,
    /// by [`Proxy::held`](super::Proxy::held), that they were sent: in the direction of the replies
    /// that the request was carried out and its reply is in flight. Only a frame that was already
    /// going when the mode began goes on.
    Hold,
    /// Frames that a predicate picks vanish; see [`Mode::drop_frames`].
    DropFrames(Predicate),
    /// One frame is damaged; see [`Mode::corrupt_next`].
    CorruptNext(Corruption),
}

impl Mode {
    /// Delays every frame by the same time.
    pub fn delay(base: Duration) -> Self {
        Self::Delay { base, jitter: Duration::ZERO, seed: 0 }
    }

    /// Drops every frame for which `picks` is true, and forwards the others. The end of the stream is a frame without bytes,
    /// which may be judged more than once.
    pub fn drop_frames(picks: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Self {
        Self::DropFrames(Predicate(Arc::new(picks)))
    }

    /// Flips one bit of the next frame, whichever connection it comes on, and forwards the others
    /// as they are. `seed` determines the bit, for a frame of given length.
    pub fn corrupt_next(seed: u64) -> Self {
        Self::CorruptNext(Corruption { seed, armed: Arc::new(AtomicBool::new(true)) })
    }

    /// Whether frames stay until their delay has passed, the mode changes or they are released.
    pub(super) fn keeps(&self) -> bool {
        matches!(self, Self::Delay { .. } | Self::Blackhole | Self::Hold)
    }

    /// Whether the end of the stream stays until the mode changes.
    pub(super) fn keeps_end(&self) -> bool {
        match self {
            Self::Blackhole | Self::Hold => true,
            Self::DropFrames(Predicate(picks)) => picks(&[]),
            Self::Pass | Self::Delay { .. } | Self::CorruptNext(_) => false,
        }
    }

    /// Whether a frame that is about to go is dropped instead; damages it if that is the mode.
    pub(super) fn drops(&self, frame: &mut [u8]) -> bool {
        match self {
            Self::DropFrames(Predicate(picks)) => picks(frame),
            Self::CorruptNext(corruption) => {
                corruption.strike(frame);
                false
            }
            Self::Pass | Self::Delay { .. } | Self::Blackhole | Self::Hold => false,
        }
    }

    /// The random numbers of one connection under this mode.
    pub(super) fn random(&self) -> SplitMix {
        match self {
            Self::Delay { seed, .. } => SplitMix(*seed),
            _ => SplitMix(0),
        }
    }

    /// After which time a frame goes on its way.
    pub(super) fn delay_of_next(&self, random: &mut SplitMix) -> Option<Duration> {
        match self {
            Self::Delay { base, jitter, .. } => Some(*base + jitter.mul_f64(random.fraction())),
            _ => None,
        }
    }
}

/// Picks frames.
#[derive(Clone)]
pub struct Predicate(Arc<Picks>);

type Picks = dyn Fn(&[u8]) -> bool + Send + Sync;

impl fmt::Debug for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Predicate(_)")
    }
}

/// Damage to one frame. Clones share it: between them, one frame is hit.
#[derive(Clone, Debug)]
pub struct Corruption {
    seed: u64,
    armed: Arc<AtomicBool>,
}

impl Corruption {
    fn strike(&self, frame: &mut [u8]) {
        // ORDERING: the flag guards nothing but itself.
        if self.armed.swap(false, Ordering::Relaxed) {
            let bits = frame.len() * 8;
            let bit = (SplitMix(self.seed).fraction() * bits as f64) as usize;
            frame[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

/// The generator of Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014.
#[derive(Debug)]
pub(super) struct SplitMix(u64);

impl SplitMix {
    /// A number in 0..1, not 1 itself.
    fn fraction(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        // The 53 bits that an f64 holds exactly.
        (z >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A failing seed replays: delays differ within one run, and not between two.
    #[test]
    fn jitter_is_within_its_bounds_and_repeats_by_seed() {
        let (base, jitter) = (Duration::from_millis(10), Duration::from_millis(5));
        let delays = |seed| -> Vec<Duration> {
            let mode = Mode::Delay { base, jitter, seed };
            let mut random = mode.random();
            (0..100).filter_map(|_| mode.delay_of_next(&mut random)).collect()
        };

        let once = delays(7);
        assert_eq!(once.len(), 100);
        assert!(once.iter().all(|d| (base..base + jitter).contains(d)));
        assert!(once.iter().any(|d| *d != once[0]));
        assert_eq!(once, delays(7));
        assert_ne!(once, delays(8));
    }
}
