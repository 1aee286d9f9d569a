//! What a run of the kit has shown: which case ran on which store, and what each mutant died of.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The results of a run, as far as it got.
#[derive(Clone, Default)]
pub struct Report {
    pub(crate) cases: BTreeMap<(String, &'static str), CaseResult>,
    pub(crate) mutants: BTreeMap<&'static str, MutantResult>,
}

#[derive(Clone, Debug)]
pub(crate) enum CaseResult {
    Passed(Duration),
    Failed(String),
    Lacks(String),
}

#[derive(Clone, Debug)]
pub(crate) struct MutantResult {
    pub(crate) case: &'static str,
    pub(crate) caught: bool,
    pub(crate) said: String,
}

impl Report {
    /// The cases that failed: store, case, and what was wrong.
    pub fn failures(&self) -> impl Iterator<Item = (&str, &'static str, &str)> {
        self.cases.iter().filter_map(|((store, case), result)| match result {
            CaseResult::Failed(message) => Some((store.as_str(), *case, message.as_str())),
            CaseResult::Passed(_) | CaseResult::Lacks(_) => None,
        })
    }

    fn stores(&self) -> BTreeMap<&str, Vec<(&'static str, &CaseResult)>> {
        let mut stores: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for ((store, case), result) in &self.cases {
            stores.entry(store).or_default().push((*case, result));
        }
        stores
    }
}

/// As `Display`, for the message of an `unwrap`.
impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Report {}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (store, cases) in self.stores() {
            let mut by_guarantee: BTreeMap<_, usize> = BTreeMap::new();
            let (mut passed, mut lacking, mut took) = (0, 0, Duration::ZERO);
            for (case, result) in &cases {
                *by_guarantee.entry(place(case)).or_default() += 1;
                match result {
                    CaseResult::Passed(time) => {
                        passed += 1;
                        took += *time;
                    }
                    CaseResult::Lacks(_) => lacking += 1,
                    CaseResult::Failed(_) => {}
                }
            }
            let failed = cases.len() - passed - lacking;
            writeln!(
                f,
                "store {store}: {passed} cases passed, {failed} failed, {lacking} lack a promise, in {took:.1?}"
            )?;
            let counts: Vec<_> =
                by_guarantee.iter().map(|((_, guarantee), count)| format!("{guarantee} {count}")).collect();
            writeln!(f, "  {}", counts.join(", "))?;
            for (case, result) in cases {
                match result {
                    CaseResult::Passed(_) => {}
                    CaseResult::Failed(message) => writeln!(f, "  {case} FAILED: {message}")?,
                    CaseResult::Lacks(what) => writeln!(f, "  {case} not run: lacks {what}")?,
                }
            }
        }
        for (mutant, MutantResult { case, caught, said }) in &self.mutants {
            let verdict = if *caught { "caught by" } else { "ESCAPED" };
            let said: String = said.chars().take(LONGEST_REMARK).collect();
            writeln!(f, "mutant kit {mutant}: {verdict} {case}\n  {said}")?;
        }
        if !self.mutants.is_empty() {
            let caught = self.mutants.values().filter(|result| result.caught).count();
            writeln!(f, "mutants: {caught} of {} caught", self.mutants.len())?;
        }
        Ok(())
    }
}

/// Its guarantee, in the order of their numbers; what has none comes last.
fn place(case: &str) -> (u8, &str) {
    let (guarantee, _) = case.split_once("::").unwrap_or((case, ""));
    let number = guarantee.strip_prefix('g').and_then(|number| number.parse().ok());
    (number.unwrap_or(u8::MAX), guarantee)
}

const LONGEST_REMARK: usize = 100;
