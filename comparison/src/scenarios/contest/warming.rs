//! When something that is compiled while it runs is as fast as it gets.
//!
//! # Invariants
//! - **contest-7** It stands still when its best rate was not passed by a tenth for several windows, however much the
//!   windows differ. Once in the life of a process that takes long; afterwards the same library has shown it before, and
//!   with other contenders it shows it again at once.

use std::time::Duration;

/// What is known of it so far.
#[derive(Debug)]
pub(crate) struct Warming {
    /// How many windows there are yet, at most.
    left: u32,
    /// The last rate that was news.
    best: f64,
    /// How many windows were none since.
    since: u32,
    /// How many of those make it stand still.
    enough: u32,
}

impl Warming {
    /// For no longer than `most`, or a part of that if it has been there before.
    pub(crate) fn of(most: Duration, is_warm: bool) -> Self {
        let windows = u32::try_from(most.as_millis() / WINDOW.as_millis()).unwrap_or(u32::MAX);
        let part = windows / PART;
        let (left, enough) = if is_warm { (part.max(2).min(windows), 1) } else { (windows, part.max(1)) };
        Self { left, best: 0.0, since: 0, enough }
    }

    /// How long it runs before the next look; nothing, if that is over.
    pub(crate) fn window(&self) -> Option<Duration> {
        (self.left > 0 && !self.stands_still()).then_some(WINDOW)
    }

    /// It ran for a window.
    pub(crate) fn saw(&mut self, rate: f64) {
        self.left = self.left.saturating_sub(1);
        if rate > self.best * FASTER {
            (self.best, self.since) = (rate, 0);
        } else {
            self.since += 1;
        }
    }

    pub(crate) fn stands_still(&self) -> bool {
        self.since >= self.enough
    }
}

/// Between two looks.
const WINDOW: Duration = Duration::from_millis(500);

/// By how much a rate is news.
const FASTER: f64 = 1.1;

/// What was warm has this part of the time; and for this part of it nothing is news when it stands still.
const PART: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// How many windows it takes, and whether it stands still then.
    fn windows(most: u64, is_warm: bool, mut rate: impl FnMut(u32) -> f64) -> (u32, bool) {
        let mut warming = Warming::of(Duration::from_secs(most), is_warm);
        let mut windows = 0;
        while warming.window().is_some() {
            warming.saw(rate(windows));
            windows += 1;
        }
        (windows, warming.stands_still())
    }

    /// Who is as fast as ever has shown that at once, and needs less to show it again. A window that is slow by chance ends
    /// nothing while others get faster, rates without any order are no reason to wait, and who never stands still has a bound.
    #[test]
    fn stalled_file_is_not_waited_for() {
        let steady = |_| 100.0;
        let noise = |window: u32| [100.0, 20.0, 70.0, 10.0, 105.0, 50.0][window as usize % 6];
        let doubling = |window: u32| 2.0_f64.powi(window as i32);
        assert_eq!([20, 2].map(|most| windows(most, false, steady)), [(5, true), (2, true)]);
        assert_eq!(windows(20, true, steady), (2, true));
        assert_eq!(windows(20, false, noise), (5, true));
        assert_eq!([false, true].map(|warm| windows(20, warm, doubling)), [(40, false), (4, false)]);
        assert_eq!(windows(0, false, steady).0, 0);
        let slowly = |window: u32| if window % 2 == 1 { 1.0 } else { 1.04_f64.powi(window.min(20) as i32) };
        let (took, still) = windows(20, false, slowly);
        assert!((20..30).contains(&took) && still, "{took}");
    }
}
