//! Axes, and text that is safe in a page.

/// Maps values to pixels, by their logarithm.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// From the smallest to the largest of `values`, which lie at the pixels `from` and `to`.
    pub(super) fn over(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Option<Self> {
        let positive = values.filter(|value| *value > 0.0);
        let low = positive.clone().reduce(f64::min)?;
        let high = positive.reduce(f64::max)?;
        let high = if high > low { high } else { low * 2.0 };
        Some(Self { low, high, from, to })
    }

    /// From the next 1, 2 or 5 of a decade below to the next above.
    pub(super) fn widened(self) -> Self {
        let steps = |value: f64| [1.0, 2.0, 5.0, 10.0].map(|step| step * decade(value));
        let low = steps(self.low).into_iter().rfind(|step| *step <= self.low * 1.0001);
        let high = steps(self.high).into_iter().find(|step| *step >= self.high * 0.9999);
        Self { low: low.unwrap_or(self.low), high: high.unwrap_or(self.high), ..self }
    }

    pub(super) fn at(&self, value: f64) -> f64 {
        let share = (value.max(self.low) / self.low).ln() / (self.high / self.low).ln();
        pixel(self.from + (self.to - self.from) * share.min(1.0))
    }

    /// Round values within, not too many.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let decades = (self.high / self.low).log10();
        let steps: &[f64] = if decades < 1.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let mut ticks = Vec::new();
        let mut decade = decade(self.low);
        while decade <= self.high * 1.0001 {
            ticks.extend(steps.iter().map(|step| step * decade));
            decade *= 10.0;
        }
        ticks.retain(|tick| *tick >= self.low * 0.9999 && *tick <= self.high * 1.0001);
        // Every second one, if they would touch.
        if ticks.len() > 7 { ticks.into_iter().step_by(2).collect() } else { ticks }
    }
}

/// The power of ten at or below it.
fn decade(value: f64) -> f64 {
    10_f64.powf(value.log10().floor())
}

/// Half pixels are enough, and keep the page small.
pub(super) fn pixel(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// A number on an axis: 200, 10k, 2M.
pub(super) fn short(value: f64) -> String {
    let (value, letter) = match value {
        millions if millions >= 1e6 => (value / 1e6, "M"),
        thousands if thousands >= 1e3 => (value / 1e3, "k"),
        small => (small, ""),
    };
    format!("{}{letter}", format!("{value:.2}").trim_end_matches('0').trim_end_matches('.'))
}

/// Text for a page.
pub(super) fn safe(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends lie at the ends, and a decade takes as much room everywhere.
    #[test]
    fn an_axis_is_logarithmic() {
        let axis = Axis::over([1.0, 10.0, 1_000.0].into_iter(), 0.0, 300.0).unwrap();
        assert_eq!(
            [axis.at(1.0), axis.at(10.0), axis.at(100.0), axis.at(1_000.0)],
            [0.0, 100.0, 200.0, 300.0]
        );
        assert_eq!(axis.ticks(), [1.0, 10.0, 100.0, 1_000.0]);
        assert!(Axis::over([0.0].into_iter(), 0.0, 1.0).is_none());
        let widened = Axis::over([7.0].into_iter(), 0.0, 1.0).unwrap().widened();
        assert_eq!([5.0, 10.0, 20.0].map(|at| widened.at(at)), [0.0, 0.5, 1.0]);
    }

    /// Numbers on axes are short.
    #[test]
    fn axis_labels_are_short() {
        for (value, text) in [(0.5, "0.5"), (20.0, "20"), (10_000.0, "10k"), (2_500_000.0, "2.5M")] {
            assert_eq!(short(value), text);
        }
    }
}
