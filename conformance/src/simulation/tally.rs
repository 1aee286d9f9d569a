//! What runs came to, in numbers: a proof that they went where they should.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use leasehold_core::FencingToken;

use crate::history::{History, What};

/// Counts of one run, or of many, by what is counted.
#[derive(Clone, Debug, Default)]
pub struct Tally(BTreeMap<Cow<'static, str>, u64>);

impl Tally {
    /// Counts something so many times.
    pub fn count(&mut self, what: impl Into<Cow<'static, str>>, times: u64) {
        *self.0.entry(what.into()).or_default() += times;
    }

    pub(super) fn add_history(&mut self, history: &History) {
        self.count("seeds", 1);
        self.count("events", history.events().len() as u64);
        for event in history.events() {
            match event.what {
                What::Invoked { .. } => self.count("acquisitions", 1),
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

    pub(super) fn add(&mut self, other: &Self) {
        other.0.iter().for_each(|(what, times)| self.count(what.clone(), *times));
    }

    pub(super) fn is_rare(&self, what: &str) -> bool {
        self.0.get(what).is_none_or(|count| *count < 10)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<_> = self.0.iter().map(|(what, times)| format!("{what} {times}")).collect();
        f.write_str(&counts.join(", "))
    }
}
