//! What runs came to, in numbers: a proof that they went where they should.

use std::collections::BTreeMap;
use std::fmt;

use leasehold_conformance::history::{History, What};
use leasehold_core::FencingToken;
use leasehold_core::backend::stage::{Phase, Side};

use crate::fleet::Kind;

/// Counts of one run, or of many, by what is counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally(BTreeMap<String, u64>);

/// What every set of runs must have had, besides each step.
const MUST_OCCUR: [&str; 5] = [PLAIN_OLD, MOVING, PLAIN_NEW, REFUSED, ADMINS_DIED];

const PLAIN_OLD: &str = "processes at the old store";
const PLAIN_NEW: &str = "processes at the new store";
const MOVING: &str = "processes moving";
/// Plain sessions that a record barred.
pub(crate) const REFUSED: &str = "processes refused";
pub(crate) const ADMINS_DIED: &str = "administrators died";
pub(crate) const PEACE: &str = "walks in peace";

impl Tally {
    pub(crate) fn count(&mut self, what: impl Into<String>, times: u64) {
        *self.0.entry(what.into()).or_default() += times;
    }

    pub(crate) fn opened(&mut self, kind: Kind) {
        match kind {
            Kind::Plain(Side::Old) => self.count(PLAIN_OLD, 1),
            Kind::Plain(Side::New) => self.count(PLAIN_NEW, 1),
            Kind::Moving => self.count(MOVING, 1),
            Kind::Blind(_) => {}
        }
    }

    /// Steps that an administrator completed.
    pub(crate) fn add_steps(&mut self, steps: impl IntoIterator<Item = (Phase, Phase)>) {
        steps.into_iter().for_each(|step| self.count(named(step), 1));
    }

    pub(crate) fn add_history(&mut self, history: &History) {
        self.count("deployments", 1);
        self.count("events", history.events().len() as u64);
        for event in history.events() {
            match event.what {
                What::Granted { token, .. } => {
                    self.count("holds", 1);
                    let is_local = Some(token) != FencingToken::new(token.counter(), 0);
                    self.count("holds passed locally", u64::from(is_local));
                }
                What::LostTold { .. } => self.count("holds lost", 1),
                _ => {}
            }
        }
    }

    /// Runs that went nowhere would show nothing.
    pub(crate) fn has_been_everywhere(&self) -> Result<(), String> {
        let steps = Phase::ALL.windows(2).flat_map(|pair| [(pair[0], pair[1]), (pair[1], pair[0])]);
        let wanted = steps.map(named).chain(MUST_OCCUR.map(str::to_owned));
        let rare: Vec<_> = wanted.filter(|what| self.0.get(what).is_none_or(|count| *count < 10)).collect();
        if rare.is_empty() { Ok(()) } else { Err(format!("hardly ever: {rare:?}")) }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        other.0.iter().for_each(|(what, times)| self.count(what, *times));
    }
}

fn named((from, to): (Phase, Phase)) -> String {
    format!("steps {from}→{to}")
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<_> = self.0.iter().map(|(what, times)| format!("{what} {times}")).collect();
        f.write_str(&counts.join(", "))
    }
}
