//! Clients that read a number, add one and write it back, with nothing but the lock between them. In the
//! end the number is how often they did, or the lock has failed. That is all it tells: the runs are single and
//! short, and the file is slow, so there are no rates, and several implementations count at a time.

use std::fs;
use std::path::Path;
use std::time::Duration;

use futures_util::{StreamExt, stream};

use crate::comparison::Comparison;
use crate::driver::{Effort, Shape, Team};
use crate::error::{Error, Result};
use crate::history::History;
use crate::implementation::Implementation;
use crate::options::{Scenario, Store};
use crate::report::Row;
use crate::servers::Target;

pub(super) async fn run(comparison: &mut Comparison, target: &Target, everybody: &[Implementation]) {
    for &clients in comparison.scale.counters {
        comparison.progress.doing(format!("{}: {clients} clients count", target.label));
        let with_heavy = comparison.scale.with_heavy;
        let able = everybody.iter().filter(|who| u64::from(clients) <= who.most_contenders());
        let able: Vec<_> =
            able.filter(|who| !who.is_floor() && (with_heavy || !who.is_heavy())).copied().collect();
        let room = comparison.room();
        let counting = able.iter().map(|who| count(room, target, *who, clients));
        let counted: Vec<_> = stream::iter(counting).buffered(AT_ONCE).collect().await;
        for (who, counted) in able.iter().zip(counted) {
            let row = Row::of(Scenario::Counter, target, who, clients.into());
            match counted {
                Ok((history, lost)) => {
                    let violations = Some(history.violations() + lost);
                    comparison.add(Row { violations, cycles: history.len() as u64, ..row });
                }
                Err(error) => comparison.leave_row(&row, &error),
            }
        }
    }
}

/// What happened, and how many counts were lost.
async fn count(room: &Path, target: &Target, who: Implementation, clients: u32) -> Result<(History, u64)> {
    let processes = if target.store == Store::Memory { 1 } else { 2 };
    let each = clients / processes;
    let shape = Shape { processes: processes as usize, contenders: each, sessions: each as usize };
    let mut team = Team::start(who, std::slice::from_ref(&target.url), shape, room).await?;
    let number = room.join(format!("number-{}-{}-{clients}", target.label, who.name()));
    fs::write(&number, "0").map_err(Error::during("writing a number"))?;
    let cycles = u64::from(clients) * INCREMENTS_EACH;
    let effort = Effort { counter: Some(number.clone()), ..Effort::cycles(cycles).until(SPAN) };
    let name = format!("compare-counter-{clients}-{}", who.name());
    let history = team.contest(&name, &effort).await?.whole()?;
    let counted = fs::read_to_string(&number).map_err(Error::during("reading the number"))?;
    let counted: u64 = counted.trim().parse().map_err(Error::during("reading the number"))?;
    let lost = counted.abs_diff(history.len() as u64);
    Ok((history, lost))
}

/// How many implementations: more would mostly wait for a processor.
const AT_ONCE: usize = 3;

const INCREMENTS_EACH: u64 = 10;

/// Who is slow stops before it has counted that far.
const SPAN: Duration = Duration::from_secs(2);
