//! Claims, each once, with the answers of all stores and libraries that it was put to.

use super::glance::called;
use super::{BUDGET, Claim, Report};

pub(crate) struct Question<'a> {
    pub(crate) what: &'a str,
    pub(crate) bound: &'a str,
    pub(crate) answers: Vec<Answer<'a>>,
}

pub(crate) struct Answer<'a> {
    /// Whose it is, if there are several.
    pub(crate) who: String,
    pub(crate) claim: &'a Claim,
}

impl Report {
    /// Our own budgets, or what others have published.
    pub(crate) fn questions(&self, ours: bool) -> Vec<Question<'_>> {
        let mut questions: Vec<Question<'_>> = Vec::new();
        for claim in self.claims.iter().filter(|claim| (claim.source == BUDGET) == ours) {
            let (what, who) = self.parted(&claim.claim);
            let bound = claim.bound.as_deref().unwrap_or_default();
            let answer = Answer { who, claim };
            match questions.iter_mut().find(|other| (other.what, other.bound) == (what, bound)) {
                Some(question) => question.answers.push(answer),
                None => questions.push(Question { what, bound, answers: vec![answer] }),
            }
        }
        questions
    }

    /// What is claimed, and of which store or library.
    fn parted<'a>(&self, claim: &'a str) -> (&'a str, String) {
        if let Some((store, what)) = claim
            .split_once(": ")
            .filter(|(store, _)| called(store) != *store || self.stores().contains(store))
        {
            return (what, called(store).to_owned());
        }
        if let Some((what, who)) = claim.rsplit_once(": ") {
            let (name, store) = who.split_once(" on ").unwrap_or((who, ""));
            if self.environment.versions.contains_key(name) {
                return (
                    what,
                    if store.is_empty() { name.to_owned() } else { format!("{name} on {}", called(store)) },
                );
            }
        }
        (claim, String::new())
    }
}

impl Answer<'_> {
    /// The verdict, and the figure with its unit where turns were measured.
    pub(crate) fn told(&self) -> String {
        let Claim { measured, spread, source, .. } = self.claim;
        let figure = measured.as_deref().filter(|_| spread.is_some() || source == BUDGET).unwrap_or_default();
        let mut words = figure.split([' ', ';']);
        let figure = words.next().unwrap_or_default();
        let unit = words.next().filter(|unit| ["×", "%", "µs", "ms", "s"].contains(unit)).unwrap_or_default();
        let told = [self.claim.verdict(), ", ", figure, " ", unit].concat();
        told.trim_end_matches([',', ' ']).to_owned()
    }
}
