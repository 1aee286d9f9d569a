//! What an experiment has shown, and when that decides anything.

use crate::figures::{median, rounded};
use crate::report::table::{number, range};

/// What was measured, and whether it is as claimed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Finding {
    pub(super) told: String,
    /// From where on the claim holds.
    pub(super) bound: Option<String>,
    /// From the smallest to the largest that was measured.
    pub(super) spread: Option<String>,
    /// Undecided, if it is none.
    pub(super) holds: Option<bool>,
    /// Why it does not hold, or may not.
    pub(super) why: Option<String>,
}

/// From where on a claim holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    /// Decided when all that was measured lies on one side of it, and by no fewer than three runs.
    fn judge(self, values: &[f64]) -> Option<bool> {
        let kept = |value: &&f64| match self {
            Self::AtLeast(bound) => **value >= bound,
            Self::AtMost(bound) => **value <= bound,
        };
        match values.iter().filter(kept).count() {
            _few if values.len() < ENOUGH => None,
            all if all == values.len() => Some(true),
            0 => Some(false),
            _some => None,
        }
    }

    fn told(self, unit: fn(f64) -> String) -> String {
        match self {
            Self::AtLeast(bound) => format!("at least {}", unit(bound)),
            Self::AtMost(bound) => format!("at most {}", unit(bound)),
        }
    }
}

impl Finding {
    /// Of what either happens or does not.
    pub(super) fn seen(told: impl Into<String>, holds: bool) -> Self {
        Self { told: told.into(), holds: Some(holds), ..Self::default() }
    }

    /// Of several runs; nothing, if there are none.
    pub(super) fn of(values: &[f64], bound: Bound, unit: fn(f64) -> String) -> Option<Self> {
        let told = unit(median(values.iter().copied())?);
        let spread = range(values, unit).map(|range| format!("{range}, n = {}", values.len()));
        Some(Self { told, bound: Some(bound.told(unit)), spread, holds: bound.judge(values), why: None })
    }

    /// With what it was held against.
    pub(super) fn within(self, bound: String) -> Self {
        Self { bound: Some(bound), ..self }
    }

    /// With more to say.
    pub(super) fn and(self, more: &str) -> Self {
        Self { told: self.told + more, ..self }
    }

    /// With the reasons, if it is missed or may be: what was measured, and then in words.
    pub(super) fn because(self, reasons: impl IntoIterator<Item = String>) -> Self {
        let mut why = String::new();
        for reason in reasons.into_iter().filter(|reason| !reason.is_empty()) {
            if !why.is_empty() {
                why += if reason.starts_with(char::is_uppercase) { ". " } else { "; " };
            }
            why += reason.trim_end_matches('.');
        }
        if self.holds == Some(true) || why.is_empty() {
            return self;
        }
        Self { why: Some(why + "."), ..self }
    }

    /// Both: one that does not hold decides, and so does none that is undecided.
    fn with(self, other: Self) -> Self {
        let join = |a: Option<String>, b: Option<String>| match (a, b) {
            (Some(a), Some(b)) if a != b => Some(format!("{a}; {b}")),
            (a, b) => a.or(b),
        };
        let holds = match (self.holds, other.holds) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _undecided => None,
        };
        Self {
            told: format!("{}; {}", self.told, other.told),
            bound: join(self.bound, other.bound),
            spread: join(self.spread, other.spread),
            holds,
            why: join(self.why, other.why),
        }
    }

    /// All of them; nothing, if there is none, or if one of them is not known.
    pub(super) fn all(findings: impl Iterator<Item = Option<Self>>) -> Option<Self> {
        let known: Option<Vec<_>> = findings.collect();
        known?.into_iter().reduce(Self::with)
    }
}

/// The share of each of `ours` of the one of `theirs` of the same round.
pub(super) fn shares(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    ours.iter().zip(theirs).map(|(ours, theirs)| rounded(ours / theirs)).collect()
}

/// As a multiple.
pub(super) fn times(share: f64) -> String {
    format!("{} ×", number(share))
}

/// Fewer runs have no spread to speak of.
const ENOUGH: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    /// 101 is not "at most 100", and neither is anything decided whose runs lie on both sides.
    #[test]
    fn a_bound_within_the_spread_is_undecided() {
        let most = |values: &[f64]| Bound::AtMost(100.0).judge(values);
        assert_eq!(most(&[101.0, 101.0, 101.0]), Some(false));
        assert_eq!(most(&[100.0, 99.0, 98.0]), Some(true));
        assert_eq!(most(&[99.0, 100.0, 101.0]), None);
        assert_eq!(Bound::AtLeast(0.95).judge(&[0.94, 0.96, 1.0]), None);
        assert_eq!(Bound::AtLeast(0.95).judge(&[0.95, 0.96, 1.0]), Some(true));
    }

    /// What ran once or twice decides nothing.
    #[test]
    fn few_runs_decide_nothing() {
        assert_eq!(Bound::AtLeast(1.0).judge(&[7.0, 7.0]), None);
        assert_eq!(Finding::of(&[], Bound::AtLeast(1.0), times), None);
    }

    /// The reader sees the bound, the spread and how many runs there were.
    #[test]
    fn bound_and_spread_are_told() {
        let finding = Finding::of(&[0.9, 1.0, 0.8], Bound::AtLeast(0.95), times).unwrap();
        assert_eq!(finding.told, "0.90 ×");
        assert_eq!(finding.bound.unwrap(), "at least 0.95 ×");
        assert_eq!(finding.spread.unwrap(), "0.80 × – 1.00 ×, n = 3");
    }

    /// Who keeps a bound needs no reasons; who misses it, or may, has all of them that are known.
    #[test]
    fn missed_goal_has_reasons() {
        let why = |values: &[f64]| {
            let reasons = ["A", "", "b", "It is so."].map(str::to_owned);
            Finding::of(values, Bound::AtLeast(1.0), times).unwrap().because(reasons).why
        };
        assert_eq!(why(&[1.0; 3]), None);
        assert_eq!(why(&[0.9; 3]).as_deref(), Some("A; b. It is so."));
        assert_eq!(why(&[0.9, 1.0, 1.1]).as_deref(), Some("A; b. It is so."));
        assert_eq!(Finding::seen("no", false).because([String::new()]).why, None);
    }

    /// Of several findings, one that is not known makes the whole unknown; it does not vanish.
    #[test]
    fn omitted_candidate_is_not_passed_over() {
        let (yes, no) = (|| Some(Finding::seen("a", true)), || Some(Finding::seen("b", false)));
        let open = || Some(Finding { holds: None, ..Finding::seen("c", true) });
        assert_eq!(Finding::all([yes(), None].into_iter()), None);
        assert_eq!(Finding::all([yes(), no(), open()].into_iter()).unwrap().holds, Some(false));
        assert_eq!(Finding::all([yes(), open()].into_iter()).unwrap().holds, None);
        assert_eq!(Finding::all([yes(), yes()].into_iter()).unwrap().holds, Some(true));
    }
}
