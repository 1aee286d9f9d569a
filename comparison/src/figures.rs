//! Times, medians, and how sure they are.

use contender_protocol::mixed;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Spans of time, in nanoseconds, to three digits.
#[derive(Clone, Debug)]
pub(crate) struct Times(Histogram<u64>);

impl Times {
    pub(crate) fn new() -> Self {
        Self(Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are in order"))
    }

    pub(crate) fn record(&mut self, nanos: u64) {
        self.0.saturating_record(nanos.max(1));
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("all have the same bounds");
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len()
    }

    /// A quantile in microseconds; the maximum at 1.
    pub(crate) fn micros(&self, quantile: f64) -> Option<f64> {
        let nanos = || if quantile >= 1.0 { self.0.max() } else { self.0.value_at_quantile(quantile) };
        (self.len() > 0).then(|| rounded(nanos() as f64 / 1e3))
    }

    pub(crate) fn spread(&self) -> Spread {
        Spread { p50: self.micros(0.5), p99: self.micros(0.99), max: self.micros(1.0) }
    }
}

impl FromIterator<u64> for Times {
    fn from_iter<I: IntoIterator<Item = u64>>(spans: I) -> Self {
        let mut times = Self::new();
        for span in spans {
            times.record(span);
        }
        times
    }
}

/// Three quantiles, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) p50: Option<f64>,
    pub(crate) p99: Option<f64>,
    pub(crate) max: Option<f64>,
}

impl Spread {
    /// Medians of the quantiles of several runs, and the largest maximum.
    pub(crate) fn over(runs: impl Iterator<Item = Self> + Clone) -> Self {
        Self {
            p50: median(runs.clone().filter_map(|run| run.p50)),
            p99: median(runs.clone().filter_map(|run| run.p99)),
            max: runs.filter_map(|run| run.max).reduce(f64::max),
        }
    }
}

/// The middle, or the mean of the two in the middle.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _even => Some(rounded(f64::midpoint(values[middle - 1], values[middle]))),
    }
}

/// The interval of 95 % in which the median lies, by bootstrap: the medians of samples drawn from `values`. No interval
/// of fewer than five values is that sure.
pub(crate) fn interval(values: &[f64]) -> Option<(f64, f64)> {
    if values.len() < LEAST {
        return None;
    }
    let (mut chance, mut sample) = (Chance::of(values.len() as u64), vec![0.0; values.len()]);
    let draw = |_| {
        sample.fill_with(|| values[chance.below(values.len())]);
        sample.sort_unstable_by(f64::total_cmp);
        f64::midpoint(sample[(sample.len() - 1) / 2], sample[sample.len() / 2])
    };
    let mut medians: Vec<f64> = (0..DRAWS).map(draw).collect();
    medians.sort_unstable_by(f64::total_cmp);
    Some((rounded(medians[DRAWS / 40]), rounded(medians[DRAWS - 1 - DRAWS / 40])))
}

/// Random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    /// The same seed gives the same numbers.
    pub(crate) fn of(seed: u64) -> Self {
        Self(seed)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 = mixed(self.0);
        usize::try_from(self.0 % bound as u64).unwrap_or(0)
    }

    /// Every order is as likely as any other.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// To four digits: more are noise, and make a report hard to read.
pub(crate) fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = 3 - value.abs().log10().floor() as i32;
    if digits <= 0 {
        return value.round();
    }
    let scale = 10_f64.powi(digits);
    (value * scale).round() / scale
}

/// Nothing here takes longer than that.
const LONGEST: u64 = 3_600_000_000_000;

/// How many samples a bootstrap draws.
const DRAWS: usize = 2_000;

/// All of five values lie on one side of their median once in sixteen times.
const LEAST: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    /// Odd and even numbers of values have one middle; nothing has none.
    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median([].into_iter()), None);
        assert_eq!(median([3.0].into_iter()), Some(3.0));
        assert_eq!(median([9.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 9.0].into_iter()), Some(3.0));
    }

    /// More values make an interval narrower, one that is far off does not widen it, and few values have none.
    #[test]
    fn interval_narrows_with_more_values() {
        let around = |count: u32| (0..count).map(move |n| f64::from(n * 37 % count) / f64::from(count));
        let width = |count| interval(&around(count).collect::<Vec<_>>()).map(|(low, high)| high - low);
        assert_eq!(width(4), None);
        assert!(width(10) > width(50) && width(50) > width(500), "{:?}", [10, 50, 500].map(width));
        let (low, high) = interval(&around(50).chain([1e9]).collect::<Vec<_>>()).unwrap();
        assert!(0.3 < low && low < 0.5 && 0.5 < high && high < 0.7, "{low} {high}");
        assert_eq!(interval(&[9.0, 1.0, 2.0, 8.0, 3.0]), Some((1.0, 9.0)), "five have no narrower one");
    }

    /// Each contender is first, second and third equally often.
    #[test]
    fn shuffle_prefers_no_place() {
        let (mut chance, mut places) = (Chance::of(7), [0; 3]);
        for _ in 0..3_000 {
            let mut items = [0, 1, 2];
            chance.shuffle(&mut items);
            places[items.iter().position(|item| *item == 0).unwrap()] += 1;
        }
        assert!(places.iter().all(|count| (850..1_150).contains(count)), "{places:?}");
    }

    /// Unknown stays unknown, and one run without a value does not spoil the others.
    #[test]
    fn spreads_are_over_what_is_known() {
        let known = Spread { p50: Some(1.0), p99: Some(2.0), max: Some(3.0) };
        let slower = Spread { p50: Some(3.0), p99: Some(4.0), max: Some(9.0) };
        assert_eq!(Spread::over([known, Spread::default()].into_iter()), known);
        let both = Spread { p50: Some(2.0), p99: Some(3.0), max: Some(9.0) };
        assert_eq!(Spread::over([known, slower].into_iter()), both);
        assert_eq!(Times::new().spread(), Spread::default());
    }

    /// Small values keep their digits, large ones lose their fraction.
    #[test]
    fn rounding_keeps_four_digits() {
        for (value, rounds) in
            [(0.0, 0.0), (1.23456, 1.235), (123_456.7, 123_457.0), (0.000_123_456, 0.000_123_5)]
        {
            assert!((rounded(value) - rounds).abs() < 1e-12, "{value}");
        }
    }
}
