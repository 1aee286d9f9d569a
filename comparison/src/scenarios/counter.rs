//! Clients that read a number, add one and write it back, with nothing but the lock between them. In the
//! end the number is how often they did, or the lock has failed.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::comparison::Comparison;
use crate::driver::{Effort, Shape, Team};
use crate::error::{Error, Result};
use crate::figures::rounded;
use crate::implementation::Implementation;
use crate::options::{Scenario, Store};
use crate::report::Row;
use crate::servers::Target;

pub(super) async fn run(comparison: &mut Comparison, target: &Target, everybody: &[Implementation]) {
    for &clients in comparison.scale.counters {
        let spares_heavy = comparison.scale.spares_heavy;
        let able = everybody.iter().filter(|who| u64::from(clients) <= who.most_contenders());
        for who in able.filter(|who| !(spares_heavy && who.is_heavy())) {
            comparison.progress.doing(format!(
                "{}: {clients} clients count with {}",
                target.label,
                who.name()
            ));
            match count(comparison.room(), target, *who, clients).await {
                Ok(row) => comparison.add(row),
                Err(error) => {
                    let what =
                        format!("{} on {} with {clients} clients that count", who.name(), target.label);
                    comparison.leave_out(what, error.to_string());
                }
            }
        }
    }
}

async fn count(room: &Path, target: &Target, who: Implementation, clients: u32) -> Result<Row> {
    let processes = if target.store == Store::Memory { 1 } else { 2 };
    let each = clients / processes;
    let shape = Shape { processes: processes as usize, contenders: each, sessions: each as usize };
    let mut team = Team::start(who, std::slice::from_ref(&target.url), shape, room).await?;
    let number = room.join(format!("number-{}-{}-{clients}", target.label, who.name()));
    fs::write(&number, "0").map_err(Error::during("writing a number"))?;
    let cycles = u64::from(clients) * INCREMENTS_EACH;
    let effort = Effort { counter: Some(number.clone()), ..Effort::cycles(cycles).until(SPAN) };
    let history = team.contest(&format!("compare-counter-{clients}-{}", who.name()), &effort).await?;
    let counted = fs::read_to_string(&number).map_err(Error::during("reading the number"))?;
    let counted: u64 = counted.trim().parse().map_err(Error::during("reading the number"))?;
    Ok(Row {
        scenario: Scenario::Counter.to_string(),
        store: target.label.clone(),
        implementation: who.name().to_owned(),
        contenders: clients.into(),
        cycles_per_s: history.cycles_per_s().map(rounded),
        acquire_us: history.acquisitions().spread(),
        release_us: history.releases().spread(),
        handoff_us: history.hand_offs().spread(),
        overtakes: history.overtakes().map(rounded),
        violations: Some(history.violations() + counted.abs_diff(history.len() as u64)),
        runs: 1,
        ..Row::default()
    })
}

const INCREMENTS_EACH: u64 = 10;

/// Who is slow stops before it has counted that far.
const SPAN: Duration = Duration::from_secs(2);
