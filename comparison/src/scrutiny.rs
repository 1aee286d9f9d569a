//! Whether two holders at once would be seen: before anybody is compared, what is no lock goes through the same
//! check, and the comparison ends if it is not found out.

use crate::comparison::Comparison;
use crate::driver::{Effort, Shape, Team};
use crate::error::{Error, Result};
use crate::implementation::{Broken, Implementation};
use crate::report::Check;

/// In processes of their own and in one, as everybody contends.
const SHAPES: [(&str, Shape); 2] = [
    ("8 processes", Shape { processes: 8, contenders: 1, sessions: 1 }),
    ("8 sessions of one process", Shape { processes: 1, contenders: 8, sessions: 8 }),
];

const BROKEN: [(&str, Broken); 2] =
    [("no lock at all", Broken::Null), ("a lock that two hold at once", Broken::Twice)];

/// # Errors
///
/// When it was not found out: no report would be worth anything.
pub(crate) async fn run(comparison: &mut Comparison) -> Result<()> {
    let url = format!("file://{}", comparison.room().join("broken").display());
    for (what, broken) in BROKEN {
        for (contenders, shape) in SHAPES {
            let who = Implementation::Broken(broken);
            let mut team = Team::start(who, std::slice::from_ref(&url), shape, comparison.room()).await?;
            let name = format!("broken-{}-{}", who.name(), shape.processes);
            let history = team.contest(&name, &Effort::checked(comparison.scale.checked)).await?.whole()?;
            let (cycles, found) = (history.len() as u64, history.violations());
            let check = Check { what: what.to_owned(), contenders: contenders.to_owned(), cycles, found };
            is_found_out(&check)?;
            comparison.report.checks.push(check);
        }
    }
    Ok(())
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
