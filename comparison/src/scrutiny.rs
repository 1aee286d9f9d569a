//! Whether two holders at once would be seen: before anybody is compared, what is no lock goes through the same
//! check, and the comparison ends if it is not found out.

use std::path::Path;
use std::time::Duration;

use contender_protocol::Draw;

use crate::comparison::Comparison;
use crate::driver::{Effort, Shape, Team, Worker};
use crate::error::{Error, Result};
use crate::implementation::{Broken, Implementation};
use crate::report::Check;
use crate::scenarios::kinds::{Dying, PERMIT};

/// In processes of their own and in one, as everybody contends.
const SHAPES: [(&str, Shape); 2] = [
    ("8 processes", Shape { processes: 8, contenders: 1, sessions: 1 }),
    ("8 sessions of one process", Shape { processes: 1, contenders: 8, sessions: 8 }),
];

/// What it is, and what is wanted of it.
const BROKEN: [(&str, Broken, Option<Draw>); 4] = [
    ("no lock at all", Broken::Null, None),
    ("a lock that two hold at once", Broken::Twice, None),
    ("a lock that readers hold beside a writer", Broken::Beside, Some(Draw::Reads(50))),
    ("a semaphore with a permit too many", Broken::Leaky, Some(Draw::Always(PERMIT))),
];

/// # Errors
///
/// When it was not found out: no report would be worth anything.
pub(crate) async fn run(comparison: &mut Comparison) -> Result<()> {
    let url = format!("file://{}", comparison.room().join("broken").display());
    for (what, broken, draw) in BROKEN {
        for (contenders, shape) in SHAPES {
            let who = Implementation::Broken(broken);
            let mut team = Team::start(who, std::slice::from_ref(&url), shape, comparison.room()).await?;
            let name = format!("broken-{}-{}", who.name(), shape.processes);
            let effort = match draw {
                None => Effort::cycles(0).until(comparison.scale.checked).checked(),
                // One too many is seen while several others hold.
                draw => Effort { draw, hold: LONG_HOLD, ..Effort::cycles(CYCLES) },
            };
            if broken == Broken::Leaky {
                make_one_up(&who, &url, comparison.room(), &name).await?;
            }
            let history = team.contest(&name, &effort).await?.whole()?;
            let (cycles, found) = (history.len() as u64, history.violations());
            let check = Check { what: what.to_owned(), contenders: contenders.to_owned(), cycles, found };
            is_found_out(&check)?;
            comparison.report.checks.push(check);
        }
    }
    let check = leaks(&url, comparison.room()).await?;
    comparison.report.checks.push(check);
    Ok(())
}

/// Lets go twice what was taken once.
async fn make_one_up(who: &Implementation, url: &str, room: &Path, name: &str) -> Result<()> {
    let mut worker = Worker::start(who, &[url.to_owned()], room).await?;
    worker.open(1, LEASE).await?;
    worker.acquire_as(name, PERMIT, BOUND).await?;
    worker.release().await?;
    worker.release_again().await
}

/// Whether a permit that is lost and one that was made up are counted.
async fn leaks(url: &str, room: &Path) -> Result<Check> {
    let who = Implementation::Broken(Broken::Leaky);
    let found = Dying::begin(&who, url, room, LEASE, true).await?.end(LEASE).await?;
    let there_are = u64::from(PERMIT.capacity);
    let (lost, made_up) =
        (found.after_a_kill == Some(there_are - 1), found.after_two_releases == there_are + 1);
    if !(lost && made_up) {
        return Err(Error::new(format!("permits that leak are not seen here: {found:?}")));
    }
    let what = "a semaphore that loses a permit, and makes one up".to_owned();
    Ok(Check { what, contenders: "one killed, one that releases twice".to_owned(), cycles: 2, found: 2 })
}

/// Often: where it was seen once, the next run might miss it.
fn is_found_out(Check { what, contenders, cycles, found }: &Check) -> Result<()> {
    if *found * 8 >= *cycles && *found >= LEAST {
        return Ok(());
    }
    Err(Error::new(format!(
        "two holders at once are not seen here: {what}, {contenders}, was found out {found} times in {cycles} cycles"
    )))
}

const LEAST: u64 = 5;

/// How often, and how long, each holds where several may.
const CYCLES: u64 = 64;
const LONG_HOLD: Duration = Duration::from_millis(4);

/// It knows of none.
const LEASE: Duration = Duration::from_millis(100);

/// Far longer than it takes.
const BOUND: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    /// A check that sees next to nothing is none.
    #[test]
    fn a_blind_check_ends_the_comparison() {
        let check = |cycles, found| Check { cycles, found, ..Check::default() };
        assert!(is_found_out(&check(100, 60)).is_ok());
        for (cycles, found) in [(4_115, 0), (4_115, 20), (12, 4), (0, 0)] {
            assert!(is_found_out(&check(cycles, found)).is_err(), "{cycles} {found}");
        }
    }
}
