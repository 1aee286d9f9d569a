//! What runs came to, in numbers: a proof that they went where they should.

use std::collections::BTreeMap;
use std::fmt;

use leasehold_conformance::history::{History, What};
use leasehold_core::FencingToken;
use leasehold_core::backend::stage::{Phase, Side};

use crate::fleet::Kind;

/// Counts of one run, or of many.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) runs: u64,
    /// Plain sessions that were opened at each store, and those of both.
    pub(crate) plain_old: u64,
    pub(crate) plain_new: u64,
    pub(crate) moving: u64,
    /// Plain sessions that a record barred.
    pub(crate) refused: u64,
    pub(crate) admins_died: u64,
    pub(crate) walks_in_peace: u64,
    /// Steps that an administrator completed.
    pub(crate) steps: BTreeMap<(Phase, Phase), u64>,
    pub(crate) holds: u64,
    pub(crate) hand_offs: u64,
    pub(crate) losses: u64,
    pub(crate) events: u64,
}

impl Tally {
    pub(crate) fn opened(&mut self, kind: Kind) {
        match kind {
            Kind::Plain(Side::Old) => self.plain_old += 1,
            Kind::Plain(Side::New) => self.plain_new += 1,
            Kind::Moving => self.moving += 1,
            Kind::Blind(_) => {}
        }
    }

    pub(crate) fn add_steps(&mut self, steps: impl IntoIterator<Item = (Phase, Phase)>) {
        for step in steps {
            *self.steps.entry(step).or_default() += 1;
        }
    }

    pub(crate) fn count(&mut self, history: &History) {
        self.runs += 1;
        self.events += history.events().len() as u64;
        for event in history.events() {
            match event.what {
                What::Granted { token, .. } => {
                    self.holds += 1;
                    self.hand_offs += u64::from(Some(token) != FencingToken::new(token.counter(), 0));
                }
                What::LostTold { .. } => self.losses += 1,
                _ => {}
            }
        }
    }

    /// Runs that went nowhere would show nothing.
    pub(crate) fn has_been_everywhere(&self) -> Result<(), String> {
        let next = Phase::ALL.windows(2).flat_map(|pair| [(pair[0], pair[1]), (pair[1], pair[0])]);
        let rare = next.filter(|step| self.steps.get(step).is_none_or(|count| *count < 10));
        let rare: Vec<_> = rare.map(|(from, to)| format!("{from}→{to}")).collect();
        let counts = [self.plain_old, self.moving, self.plain_new, self.refused, self.admins_died];
        if rare.is_empty() && counts.iter().all(|count| *count >= 10) {
            return Ok(());
        }
        Err(format!("hardly ever: {rare:?}, or some of {counts:?}"))
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let Self { runs, plain_old, plain_new, moving, refused, admins_died, .. } = other;
        self.runs += runs;
        self.plain_old += plain_old;
        self.plain_new += plain_new;
        self.moving += moving;
        self.refused += refused;
        self.admins_died += admins_died;
        let Self { walks_in_peace, holds, hand_offs, losses, events, .. } = other;
        self.walks_in_peace += walks_in_peace;
        self.holds += holds;
        self.hand_offs += hand_offs;
        self.losses += losses;
        self.events += events;
        for (step, count) in &other.steps {
            *self.steps.entry(*step).or_default() += count;
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, plain_old, plain_new, moving, refused, admins_died, walks_in_peace, .. } = self;
        write!(
            f,
            "{runs} deployments: {plain_old} processes at the old store, {moving} moving, {plain_new} at the new \
             one, {refused} refused; {admins_died} administrators died, {walks_in_peace} walks in peace, steps"
        )?;
        for ((from, to), count) in &self.steps {
            write!(f, " {from}→{to} {count}")?;
        }
        let Self { holds, hand_offs, losses, events, .. } = self;
        write!(f, "; {holds} holds, {hand_offs} handed on locally, {losses} lost, {events} events")
    }
}
