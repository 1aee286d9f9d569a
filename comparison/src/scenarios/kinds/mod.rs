//! Locks that several hold: readers beside each other, permits of a few, and the exclusive lock of ours under the
//! same loads, as what one would take otherwise.
//!
//! Everybody holds for a millisecond, so a rate shows how many hold at a time. Who takes part in which load is asked of
//! the store, of ours, and known of the others.

mod leaks;

use std::time::Duration;

use contender_protocol::{Draw, now};
use leasehold::Guarantees;

use super::{HOLD, processes};
use crate::comparison::Comparison;
use crate::driver::{Effort, Outcome, Shape, Team};
use crate::error::{Error, Result};
use crate::figures::{Chance, Spread, median, rounded};
use crate::history::History;
use crate::implementation::Implementation;
use crate::options::Scenario;
use crate::report::{ALONE, Kind};
use crate::servers::Target;

pub(crate) use leaks::{Dying, PERMIT};

/// What eight contenders want.
struct Load {
    name: &'static str,
    draw: Draw,
    needs: Guarantees,
}

const LOADS: [Load; 4] = [
    Load { name: "8 readers", draw: Draw::Reads(100), needs: Guarantees::SHARED },
    Load { name: "90 % reads", draw: Draw::Reads(90), needs: Guarantees::SHARED },
    Load { name: ONE_WRITER, draw: Draw::Writers(1), needs: Guarantees::SHARED },
    Load { name: "3 permits for 8", draw: Draw::Always(PERMIT), needs: Guarantees::PERMITS },
];

/// As the report calls the load in which a writer may starve.
pub(crate) const ONE_WRITER: &str = "1 writer, 7 readers";

/// One of those who take part.
struct Participant {
    who: Implementation,
    /// As the report calls it.
    name: &'static str,
    knows: Guarantees,
    /// Whether all want the lock alone, whatever the load.
    is_alone: bool,
    /// Between its turns.
    team: Option<Team>,
}

pub(super) async fn run(comparison: &mut Comparison, target: &Target, everybody: &[Implementation]) {
    let mut participants = participants(comparison, target, everybody).await;
    if participants.is_empty() {
        let what = format!("{} in {}", target.label, Scenario::Kinds);
        comparison.leave_out(what, "nobody there has locks that several hold");
        return;
    }
    // Leases end while the others contend.
    let of_permits =
        participants.iter().filter(|one| !one.is_alone && one.knows.contains(Guarantees::PERMITS));
    let of_permits: Vec<_> = of_permits.map(|one| one.who).collect();
    let dying = leaks::begin(comparison, target, &of_permits).await;
    for load in &LOADS {
        contest(comparison, target, load, &mut participants).await;
    }
    drop(participants);
    leaks::end(comparison, target, dying).await;
}

async fn participants(
    comparison: &mut Comparison,
    target: &Target,
    everybody: &[Implementation],
) -> Vec<Participant> {
    let ours = target.guarantees().await.unwrap_or_else(|error| {
        comparison.leave_out(format!("ours on {} in {}", target.label, Scenario::Kinds), error.to_string());
        Guarantees::empty()
    });
    let mut participants = Vec::new();
    for who in everybody {
        let knows = who.kinds(ours);
        let participant =
            |name, knows, is_alone| Participant { who: *who, name, knows, is_alone, team: None };
        if !knows.is_empty() {
            participants.push(participant(who.name(), knows, false));
        }
        if who.is_ours() && !knows.is_empty() {
            // It is what one would take otherwise, also where the others of ours are missing.
            participants.push(participant(ALONE, Guarantees::all(), true));
        }
    }
    participants
}

/// One of them under one load.
struct Entry<'a> {
    participant: &'a mut Participant,
    kind: Kind,
    violations: u64,
    runs: Vec<History>,
    stopped: Option<Error>,
}

async fn contest(
    comparison: &mut Comparison,
    target: &Target,
    load: &Load,
    participants: &mut [Participant],
) {
    if participants.iter().all(|one| one.is_alone || !one.knows.contains(load.needs)) {
        return;
    }
    let able = participants.iter_mut().filter(|one| one.knows.contains(load.needs));
    let mut entries: Vec<_> = able.map(|participant| Entry::of(participant, load, target)).collect();
    let mut chance = Chance::of(now());
    for round in 0..comparison.scale.runs.0 {
        let mut order: Vec<_> = entries.iter_mut().filter(|entry| entry.stopped.is_none()).collect();
        chance.shuffle(&mut order);
        for entry in order {
            let doing = format!("{}: {} × {}", target.label, load.name, entry.participant.name);
            comparison.progress.doing(doing);
            if let Err(error) = entry.take_turn(load, round, comparison, target).await {
                entry.participant.team = None;
                entry.stopped = Some(error);
            }
        }
    }
    for entry in entries {
        entry.conclude(comparison);
    }
}

impl<'a> Entry<'a> {
    fn of(participant: &'a mut Participant, load: &Load, target: &Target) -> Self {
        let kind = Kind {
            load: load.name.to_owned(),
            store: target.label.clone(),
            implementation: participant.name.to_owned(),
            ..Kind::default()
        };
        Self { participant, kind, violations: 0, runs: Vec::new(), stopped: None }
    }

    async fn take_turn(
        &mut self,
        load: &Load,
        round: u32,
        comparison: &Comparison,
        target: &Target,
    ) -> Result<()> {
        let scale = comparison.scale;
        let who = self.participant.who;
        let mut team = match self.participant.team.take() {
            Some(team) => team,
            None => {
                let urls = std::slice::from_ref(&target.url);
                Team::start(who, urls, shape_of(&who, target), comparison.room()).await?
            }
        };
        let name = format!("compare-kinds-{}-{}", place(load), self.participant.name.replace(", ", "-"));
        let draw = if self.participant.is_alone { Draw::default() } else { load.draw };
        let effort = |span| Effort { hold: HOLD, draw: Some(draw), ..Effort::cycles(NO_BOUND).until(span) };
        if round == 0 {
            if who.is_heavy() && !scale.warm_up.is_zero() {
                let warmed = team.warm(&name, effort(scale.warm_up), scale.warm_up).await?;
                self.look_at(&warmed.history);
                warmed.whole()?;
            }
            if let Some(counting) = target.count().await {
                let counted = team.contest(&name, &effort(scale.counted)).await?;
                let requests = counting.end().await?.requests as f64 / counted.history.len().max(1) as f64;
                self.kind.requests_per_cycle = Some(rounded(requests));
                self.look_at(&counted.history);
                counted.whole()?;
            }
        }
        let Outcome { history, gave_up } = team.contest(&name, &effort(scale.runs.1)).await?;
        self.look_at(&history);
        self.runs.push(history);
        if let Some(gave_up) = gave_up {
            return Err(gave_up);
        }
        self.participant.team = Some(team);
        Ok(())
    }

    fn look_at(&mut self, history: &History) {
        self.violations += history.violations();
    }

    fn conclude(self, comparison: &mut Comparison) {
        let Self { kind, violations, runs, stopped, .. } = self;
        let all =
            |of: fn(&History) -> Option<f64>| runs.iter().filter_map(of).map(rounded).collect::<Vec<_>>();
        let (rates, overtakes, starved) =
            (all(History::cycles_per_s), all(History::overtakes), all(History::starved));
        comparison.add_kind(Kind {
            cycles_per_s: median(rates.iter().copied()),
            rates,
            cycles: runs.iter().map(|run| run.len() as u64).sum(),
            holders: median(all(History::holders).into_iter()),
            acquire_us: Spread::over(runs.iter().map(|run| run.acquisitions().spread())),
            overtakes: median(overtakes.iter().copied()),
            overtakes_of_runs: overtakes,
            starved: starved.iter().copied().reduce(f64::max),
            starved_of_runs: starved,
            violations: Some(violations),
            remark: stopped.map(|why| why.to_string()),
            ..kind
        });
    }
}

/// A process each, or a thread each of one virtual machine.
fn shape_of(who: &Implementation, target: &Target) -> Shape {
    if who.is_heavy() { super::sessions(CONTENDERS) } else { processes(target.store, CONTENDERS as usize) }
}

/// Which load, in a lock's name.
fn place(load: &Load) -> String {
    load.name.chars().filter(char::is_ascii_alphanumeric).collect()
}

/// In every load.
const CONTENDERS: u64 = 8;

/// No number of cycles ends it.
const NO_BOUND: u64 = 0;

/// Twice a lease, which is enough for every store to end it.
fn patience(lease: Duration) -> Duration {
    2 * lease
}
