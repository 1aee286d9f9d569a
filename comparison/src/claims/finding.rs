//! What an experiment has shown, and when that decides anything.

use crate::figures::{interval, median};
use crate::report::table::{number, sure};

/// What was measured, and whether it is as claimed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Finding {
    pub(super) told: String,
    /// From where on the claim holds.
    pub(super) bound: Option<String>,
    /// The interval of 95 %, and of how many values.
    pub(super) spread: Option<String>,
    /// Undecided, if it is none.
    pub(super) holds: Option<bool>,
    /// Why it does not hold, or may not.
    pub(super) why: Option<String>,
    /// Whose row it was held against.
    pub(super) rival: Option<String>,
}

/// From where on a claim holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    /// Kept when the whole interval of the median keeps it, missed when none of it does.
    fn judge(self, values: &[f64]) -> Option<bool> {
        let kept = |value| match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
        };
        let (low, high) = interval(values)?;
        (kept(low) == kept(high)).then_some(kept(low))
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
        let spread = sure(values, unit).map(|sure| format!("{sure}, n = {}", values.len()));
        Some(Self {
            told,
            bound: Some(bound.told(unit)),
            spread,
            holds: bound.judge(values),
            ..Self::default()
        })
    }

    /// With what it was held against.
    pub(super) fn within(self, bound: String) -> Self {
        Self { bound: Some(bound), ..self }
    }

    /// The row of somebody whose turns are paired with ours.
    pub(super) fn held_against(self, who: &str) -> Self {
        Self { rival: Some(who.to_owned()), ..self }
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
            rival: join(self.rival, other.rival),
        }
    }

    /// All of them; nothing, if there is none, or if one of them is not known.
    pub(super) fn all(findings: impl Iterator<Item = Option<Self>>) -> Option<Self> {
        let known: Option<Vec<_>> = findings.collect();
        known?.into_iter().reduce(Self::with)
    }
}

/// As a multiple.
pub(super) fn times(share: f64) -> String {
    format!("{} ×", number(share))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Row;

    /// A bound inside of the interval is undecided, one turn that is far off decides nothing, and few turns do not either.
    #[test]
    fn a_bound_within_the_interval_is_undecided() {
        let turns = |from: f64, off: f64| {
            (0..50).map(|n| from + f64::from(n % 10) / 100.0).chain([off]).collect::<Vec<_>>()
        };
        let most = |values: &[f64]| Bound::AtMost(1.0).judge(values);
        assert_eq!(most(&turns(0.9, 7.0)), Some(true));
        assert_eq!(most(&turns(0.95, 0.1)), None);
        assert_eq!(most(&turns(1.01, 0.1)), Some(false));
        assert_eq!(Bound::AtLeast(1.0).judge(&turns(1.01, 0.1)), Some(true));
        assert_eq!(Bound::AtLeast(0.95).judge(&[0.95; 5]), Some(true));
        assert_eq!(most(&[7.0; 4]), None);
        assert_eq!(Finding::of(&[], Bound::AtLeast(1.0), times), None);
    }

    /// Rounds that one of both did not take part in are no pairs.
    #[test]
    fn shares_are_of_the_same_round() {
        let row = |turns: [u32; 3], rates: [f64; 3]| Row {
            turns: turns.into(),
            rates: rates.into(),
            ..Row::default()
        };
        assert_eq!(row([0, 2, 4], [6.0, 8.0, 9.0]).shares_of(&row([0, 1, 2], [2.0, 1.0, 4.0])), [3.0, 2.0]);
    }

    /// The reader sees the bound, the spread and how many runs there were.
    #[test]
    fn bound_and_spread_are_told() {
        let finding = Finding::of(&[0.9, 1.0, 0.8, 0.85, 0.95], Bound::AtLeast(0.95), times).unwrap();
        assert_eq!(finding.told, "0.90 ×");
        assert_eq!(finding.bound.unwrap(), "at least 0.95 ×");
        assert_eq!(finding.spread.unwrap(), "0.80 – 1.00 ×, n = 5");
    }

    /// Who keeps a bound needs no reasons; who misses it, or may, has all of them that are known.
    #[test]
    fn missed_goal_has_reasons() {
        let why = |values: &[f64]| {
            let reasons = ["A", "", "b", "It is so."].map(str::to_owned);
            Finding::of(values, Bound::AtLeast(1.0), times).unwrap().because(reasons).why
        };
        assert_eq!(why(&[1.0; 5]), None);
        assert_eq!(why(&[0.9; 5]).as_deref(), Some("A; b. It is so."));
        assert_eq!(why(&[0.9, 0.9, 1.0, 1.1, 1.1]).as_deref(), Some("A; b. It is so."));
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
