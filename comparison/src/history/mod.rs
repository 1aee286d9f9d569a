//! What happened in a run, put together from the journals of all contenders, and what follows from it.
//!
//! Readings of one clock are compared across processes, see [`contender_protocol::now`]. A cycle *holds* from
//! `granted` to `releasing`; both are read inside of what the library promises, so two holds that
//! overlap are two holders at once.
//!
//! | figure | is |
//! |---|---|
//! | violation | a hold that does not fit beside those that are not over: together they weigh more than the smallest of their capacities. Of locks that one holds alone: two at once. Or a token that is not above the last one of a hold that excludes it |
//! | overtake | a grant although somebody asked a millisecond earlier, or more, and still waits, and does not fit beside those who hold then |
//! | hand-off | from the release of a holder to the grant of the next, if that one waited already |

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use contender_protocol::{Cycle, Mode};

use crate::figures::Times;

/// All cycles of one run, in the order of their grants.
#[derive(Clone, Debug)]
pub(crate) struct History {
    cycles: Vec<(Who, Cycle)>,
}

/// A process and which of its contenders.
pub(crate) type Who = (usize, u32);

impl History {
    /// From one journal per process.
    pub(crate) fn new(journals: impl IntoIterator<Item = Vec<Cycle>>) -> Self {
        let mut cycles = Vec::new();
        for (process, journal) in journals.into_iter().enumerate() {
            cycles.extend(journal.into_iter().map(|cycle| ((process, cycle.contender), cycle)));
        }
        cycles.sort_unstable_by_key(|(_, cycle)| (cycle.granted, cycle.releasing));
        Self { cycles }
    }

    pub(crate) fn len(&self) -> usize {
        self.cycles.len()
    }

    /// Holders that do not fit together, and tokens that did not grow.
    pub(crate) fn violations(&self) -> u64 {
        self.overlaps() + self.tokens_back()
    }

    /// The same where each contender has a name of its own.
    pub(crate) fn each_alone(&self) -> u64 {
        let everybody: BTreeSet<_> = self.cycles.iter().map(|(who, _)| *who).collect();
        let of =
            |one: Who| Self { cycles: self.cycles.iter().filter(|(who, _)| *who == one).copied().collect() };
        everybody.into_iter().map(|one| of(one).violations()).sum()
    }

    /// Holders that do not fit together, each counted when it came.
    pub(crate) fn overlaps(&self) -> u64 {
        self.loads().into_iter().map(|load| u64::from(!load.fits())).sum()
    }

    /// What those who hold weigh together at each grant, with the one that is granted.
    fn loads(&self) -> Vec<Load> {
        let mut holding: Vec<(u64, Mode)> = Vec::new();
        let load = |(_, cycle): &(Who, Cycle)| {
            holding.retain(|(until, _)| *until > cycle.granted);
            holding.push((cycle.releasing, cycle.mode));
            holding.iter().fold(Load::NONE, |load, (_, mode)| load.and(*mode))
        };
        self.cycles.iter().map(load).collect()
    }

    /// Tokens that did not grow.
    pub(crate) fn tokens_back(&self) -> u64 {
        let (mut found, mut last_tokens) = (0, BTreeMap::<Mode, Option<u64>>::new());
        for (_, cycle) in &self.cycles {
            let excludes = |mode: Mode| !Load::NONE.and(mode).and(cycle.mode).fits();
            let excluded = last_tokens.iter().filter(|(mode, _)| excludes(**mode));
            let last_token = excluded.filter_map(|(_, token)| *token).max();
            found += u64::from(cycle.token.is_some() && cycle.token <= last_token);
            let last_token = last_tokens.entry(cycle.mode).or_default();
            *last_token = (*last_token).max(cycle.token);
        }
        found
    }

    /// The largest of all.
    pub(crate) fn last_token(&self) -> Option<u64> {
        self.cycles.iter().filter_map(|(_, cycle)| cycle.token).max()
    }

    /// The first and the last grant.
    pub(crate) fn ends(&self) -> Option<(u64, u64)> {
        let (_, first) = self.cycles.first()?;
        let (_, last) = self.cycles.last()?;
        Some((first.granted, last.granted))
    }

    /// How many grants there were from one time until another, and the longest time from a grant to the next
    /// one that is among them.
    pub(crate) fn between(&self, from: u64, until: u64) -> (usize, Option<u64>) {
        let granted = || self.cycles.iter().map(|(_, cycle)| cycle.granted);
        let within = |at: &u64| (from..until).contains(at);
        let gaps = granted().zip(granted().skip(1)).filter(|(_, next)| within(next));
        (granted().filter(within).count(), gaps.map(|(last, next)| next - last).max())
    }

    /// With what happened after it.
    pub(crate) fn and(mut self, later: Self) -> Self {
        self.cycles.extend(later.cycles);
        self.cycles.sort_unstable_by_key(|(_, cycle)| (cycle.granted, cycle.releasing));
        self
    }

    /// The share of grants that passed over an earlier request; none without contention. Requests
    /// within a millisecond count as simultaneous: the clock is read before a request is sent, and on
    /// a machine with more contenders than processors others run in between.
    pub(crate) fn overtakes(&self) -> Option<f64> {
        let (first, _) = self.cycles.first()?;
        if self.cycles.iter().all(|(who, _)| who == first) {
            return None;
        }
        let (mut overtakes, mut earliest_that_waits) = (0_u32, BTreeMap::<Mode, u64>::new());
        for ((_, cycle), load) in self.cycles.iter().zip(self.loads()).rev() {
            let is_passed = |(mode, requested): (&Mode, &u64)| {
                requested.saturating_add(SIMULTANEOUS) <= cycle.requested && !load.and(*mode).fits()
            };
            overtakes += u32::from(earliest_that_waits.iter().any(is_passed));
            let earliest = earliest_that_waits.entry(cycle.mode).or_insert(u64::MAX);
            *earliest = cycle.requested.min(*earliest);
        }
        Some(f64::from(overtakes) / self.cycles.len() as f64)
    }

    /// How long each hand-off took.
    pub(crate) fn hand_offs(&self) -> Times {
        let mut times = Times::new();
        for pair in self.cycles.windows(2) {
            let [(holder, before), (next, after)] = pair else { continue };
            if holder != next && after.requested < before.releasing {
                times.record(after.granted.saturating_sub(before.releasing));
            }
        }
        times
    }

    /// How long it took to be given the lock.
    pub(crate) fn acquisitions(&self) -> Times {
        self.cycles.iter().map(|(_, cycle)| cycle.granted - cycle.requested).collect()
    }

    /// How long it took to let it go.
    pub(crate) fn releases(&self) -> Times {
        self.cycles.iter().filter_map(|(_, cycle)| Some(cycle.released? - cycle.releasing)).collect()
    }

    /// From the first request to the last release.
    pub(crate) fn cycles_per_s(&self) -> Option<f64> {
        Some(self.cycles.len() as f64 * 1e9 / self.span()? as f64)
    }

    /// The share of the time that somebody held: the smaller it is, the less a check of exclusion can see.
    pub(crate) fn held_share(&self) -> Option<f64> {
        Some(self.holders()?.min(1.0))
    }

    /// How many held at a time, on average.
    pub(crate) fn holders(&self) -> Option<f64> {
        let held = self.cycles.iter().map(|(_, cycle)| cycle.releasing - cycle.granted).sum::<u64>();
        Some(held as f64 / self.span()? as f64)
    }

    /// The longest that somebody waited who wants it alone, as a share of the run; nothing if nobody did.
    pub(crate) fn starved(&self) -> Option<f64> {
        let writers = self.cycles.iter().filter(|(_, cycle)| cycle.mode == Mode::EXCLUSIVE);
        let longest = writers.map(|(_, cycle)| cycle.granted - cycle.requested).max()?;
        Some(longest as f64 / self.span()? as f64)
    }

    fn span(&self) -> Option<u64> {
        let begin = self.cycles.iter().map(|(_, cycle)| cycle.requested).min()?;
        let end = |cycle: &Cycle| cycle.released.unwrap_or(cycle.releasing);
        let end = self.cycles.iter().map(|(_, cycle)| end(cycle)).max()?;
        Some((end - begin).max(1))
    }

    /// How many of `contenders` were served at all, and the least and the most that one of them got, as a
    /// multiple of an equal part; nothing of one alone.
    pub(crate) fn service(&self, contenders: u64) -> Option<Service> {
        let mut grants: BTreeMap<Who, u64> = BTreeMap::new();
        for (who, _) in &self.cycles {
            *grants.entry(*who).or_default() += 1;
        }
        if contenders < 2 || grants.is_empty() {
            return None;
        }
        let (served, equal) = (grants.len() as u64, self.cycles.len() as f64 / contenders as f64);
        let least = if served < contenders { 0 } else { grants.values().copied().min()? };
        let most = grants.values().copied().max()?;
        Some(Service { served, least: least as f64 / equal, most: most as f64 / equal })
    }
}

/// What several hold together, and the smallest of their capacities.
#[derive(Clone, Copy, Debug)]
struct Load {
    weight: u64,
    capacity: u32,
}

impl Load {
    const NONE: Self = Self { weight: 0, capacity: u32::MAX };

    fn and(self, Mode { weight, capacity }: Mode) -> Self {
        Self { weight: self.weight + u64::from(weight), capacity: self.capacity.min(capacity) }
    }

    fn fits(self) -> bool {
        self.weight <= u64::from(self.capacity)
    }
}

/// How a contest has treated its contenders.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Service {
    pub(crate) served: u64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

/// In nanoseconds.
const SIMULTANEOUS: u64 = 1_000_000;
