//! Times and medians.

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

    /// The shares of all spans that lie in equal steps of the logarithm between `from` and `to`
    /// microseconds.
    pub(crate) fn density(&self, from: f64, to: f64, steps: usize) -> Vec<f64> {
        let width = (to / from).ln() / steps as f64;
        let mut shares = vec![0.0; steps];
        for recorded in self.0.iter_recorded() {
            let at = (recorded.value_iterated_to() as f64 / 1e3 / from).ln() / width;
            let step = at.clamp(0.0, steps as f64 - 1.0);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped above")]
            let step = step as usize;
            shares[step] += recorded.count_at_value() as f64 / self.len() as f64;
        }
        shares
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

    /// Every span is in exactly one step, those beyond the ends in the outermost.
    #[test]
    fn a_density_holds_everything() {
        let times: Times = [100, 2_000, 3_000, 90_000_000].into_iter().collect();
        let density = times.density(1.0, 1_000.0, 10);
        assert!((density.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert!((density[0] - 0.25).abs() < 1e-9 && (density[9] - 0.25).abs() < 1e-9);
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
