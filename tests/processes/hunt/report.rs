//! What a hunt shows: the kit's invariants judge its history, and the gaps between grants are measured.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use leasehold_conformance::history::{History, What};
use leasehold_conformance::invariants::{Property, Violation, notice, overlap, tokens};

use super::Fault;

/// The numbers of one hunt, and what they break.
#[derive(Debug, Default)]
pub(crate) struct Report {
    faults: BTreeMap<Fault, usize>,
    promotions: usize,
    grants: usize,
    /// Writes that the resource refused: their clients stood still since they had seen that they hold the lock.
    fenced: usize,
    longest_gap: Duration,
    /// Without the time of faults.
    longest_calm_gap: Duration,
    pub(crate) violations: Vec<Violation>,
}

impl Report {
    pub(crate) fn of(history: &History, faults: BTreeMap<Fault, usize>, promotions: usize) -> Self {
        let violations = [overlap::check(history), notice::check(history), tokens::check(history)].concat();
        let mut report = Self { faults, promotions, violations, ..Self::default() };
        let (mut last, mut struck, mut disturbed) = (None, None, Duration::ZERO);
        for event in history.events() {
            match event.what {
                What::Disturbed(_) => struck = Some(event.at),
                What::Healed => {
                    disturbed += struck.take().map_or(Duration::ZERO, |since| event.at.since(since));
                }
                What::Granted { .. } => {
                    if let Some(since) = &mut struck {
                        disturbed += event.at.since(*since);
                        *since = event.at;
                    }
                    let gap = last.replace(event.at).map_or(Duration::ZERO, |last| event.at.since(last));
                    report.grants += 1;
                    report.longest_gap = report.longest_gap.max(gap);
                    report.longest_calm_gap = report.longest_calm_gap.max(gap.saturating_sub(disturbed));
                    disturbed = Duration::ZERO;
                }
                What::Wrote { accepted: false, .. } => report.fenced += 1,
                _ => {}
            }
        }
        report
    }

    /// Fails if a promise was broken, or if nobody was granted the lock for longer than `bound` without a fault.
    pub(crate) fn assert_clean(&self, history: &History, bound: Duration) {
        let late = self.longest_calm_gap > bound;
        assert!(
            !late && self.violations.is_empty(),
            "{self}; at most {bound:?}\n{}",
            self.surroundings(history)
        );
    }

    /// The violations, and what happened around the first.
    fn surroundings(&self, history: &History) -> String {
        let (events, first) = (history.events(), self.violations.iter().map(|violation| violation.at).min());
        let place = events.partition_point(|event| first.is_none_or(|first| event.at <= first));
        let shown = events[place.saturating_sub(BEFORE)..].iter().take(BEFORE + AFTER);
        let found = self.violations.iter().take(AFTER).map(|violation| format!("{violation}\n"));
        found.chain(shown.map(|event| format!("{event}\n"))).collect()
    }

    fn of_property(&self, property: Property) -> usize {
        self.violations.iter().filter(|violation| violation.property == property).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moves = self.faults.get(&Fault::MoveSlot).copied().unwrap_or_default();
        let Self { faults, promotions, grants, fenced, longest_gap, longest_calm_gap, .. } = self;
        let [overlaps, late, decreases] = [Property::Overlap, Property::Notice, Property::Tokens]
            .map(|property| self.of_property(property));
        write!(
            f,
            "{grants} grants, faults {faults:?}, {promotions} promotions, {moves} slot moves, {overlaps} overlaps, \
             {late} late writes, {decreases} decreases of tokens, {fenced} writes refused by the resource, longest gap \
             {longest_gap:.1?}, without faults {longest_calm_gap:.1?}"
        )
    }
}

/// How many events are shown before the first violation.
const BEFORE: usize = 60;

/// And after it; of violations as many.
const AFTER: usize = 20;
