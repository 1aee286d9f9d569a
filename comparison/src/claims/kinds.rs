//! What users of locks that several hold complain of, answered by the scenario `kinds`.

use super::claim;
use super::finding::{Bound, Finding};
use crate::report::{ADDED, ALONE, Claim, Kind, LOST, Leak, Report, STARVES};
use crate::scenarios::kinds::ONE_WRITER;

/// Of everybody who took part; nothing, if nobody did.
pub(super) fn claims(report: &Report) -> Vec<Claim> {
    let mut claims = Vec::new();
    for kind in report.kinds.iter().filter(|kind| kind.load == ONE_WRITER && kind.implementation != ALONE) {
        claims.push(claim(
            format!("{STARVES}: {} on {}", kind.implementation, kind.store),
            "reports by users of read-write locks",
            starves(kind),
        ));
    }
    for leak in &report.leaks {
        let who = format!("{} on {}", leak.implementation, leak.store);
        if let Some(free) = leak.after_a_kill {
            claims.push(claim(
                format!("{LOST}: {who}"),
                "reports by users of semaphores",
                Some(lost(leak, free)),
            ));
        }
        claims.push(claim(format!("{ADDED}: {who}"), "reports by users of semaphores", added(leak)));
    }
    claims
}

/// Most of the time that there was.
fn starves(kind: &Kind) -> Option<Finding> {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let found = Finding::of(&kind.starved_of_runs, Bound::AtLeast(0.5), percent)?;
    Some(found.and(" of the run was its longest wait"))
}

fn lost(leak: &Leak, free: u64) -> Finding {
    let told = format!("{free} of {} can be taken when twice its lease is over", leak.permits);
    Finding::seen(told, free < leak.permits)
}

fn added(leak: &Leak) -> Option<Finding> {
    let free = leak.after_two_releases?;
    let told = format!("{}; {free} of {} can be taken then", leak.second_release, leak.permits);
    Some(Finding::seen(told, free > leak.permits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leak(after_a_kill: Option<u64>, after_two_releases: u64) -> Report {
        let second_release = "accepted".to_owned();
        let after_two_releases = Some(after_two_releases);
        let leak = Leak { permits: 3, after_a_kill, after_two_releases, second_release, ..Leak::default() };
        Report { leaks: vec![leak], ..Report::default() }
    }

    /// One that is missing is lost, and one more than there are was added; where nobody can be killed, nobody asks.
    #[test]
    fn permits_are_lost_or_added() {
        let verdicts = |report| claims(&report).into_iter().map(|claim| claim.holds).collect::<Vec<_>>();
        assert_eq!(verdicts(leak(Some(2), 4)), [Some(true), Some(true)]);
        assert_eq!(verdicts(leak(Some(3), 3)), [Some(false), Some(false)]);
        assert_eq!(verdicts(leak(None, 3)), [Some(false)]);
        assert_eq!(verdicts(Report::default()), []);
    }

    /// A writer starves that waits for most of every run; the exclusive lock beside it is nobody's read-write lock.
    #[test]
    fn a_writer_starves_that_waits_for_most_of_the_run() {
        let kind = |who: &str, starved: [f64; 5]| Kind {
            load: ONE_WRITER.into(),
            implementation: who.into(),
            starved_of_runs: starved.to_vec(),
            ..Kind::default()
        };
        let kinds = vec![kind("a", [0.9, 0.6, 1.0, 0.9, 0.8]), kind("b", [0.01; 5]), kind(ALONE, [0.1; 5])];
        let found = claims(&Report { kinds, ..Report::default() });
        let holds: Vec<_> = found.iter().map(|claim| (claim.holds, claim.class())).collect();
        assert_eq!(holds, [(Some(true), "no"), (Some(false), "yes")], "a fault that is not found is good");
    }
}
