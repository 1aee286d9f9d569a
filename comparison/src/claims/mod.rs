//! What others have published and what we promise, each as an experiment with its measured answer.
//!
//! Most answers follow from the scenarios' results; the others need servers that are stopped or killed,
//! and start their own. What is true of one of our stores alone is left to that store's tests.

pub(crate) mod budgets;
#[cfg(feature = "etcd")]
mod etcd;
mod finding;
mod goals;
mod kinds;
mod postgres;
mod published;
mod quorum;
mod redis;
mod spent;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};

use crate::comparison::Comparison;
use crate::error::Result;
#[cfg(feature = "etcd")]
use crate::report::TWICE;
use crate::report::{BUDGET, Claim, Report, STAYS};

use finding::Finding;

pub(crate) use budgets::of_a_move;

/// What is claimed, by whom, and what came of it.
type Experiment<'a> = (String, &'static str, BoxFuture<'a, Result<Finding>>);

fn claim(claim: impl Into<String>, source: &str, finding: Option<Finding>) -> Claim {
    let (claim, source) = (claim.into(), source.to_owned());
    let Some(Finding { told, bound, spread, holds, why, .. }) = finding else {
        return Claim { claim, source, ..Claim::default() };
    };
    let undecided = holds.is_none();
    Claim { claim, source, bound, measured: Some(told), spread, holds, undecided, why }
}

/// Runs every experiment that can be run here.
pub(crate) async fn run(comparison: &mut Comparison) {
    comparison.begin("claims");
    let mut claims = published::claims(&comparison.report);
    claims.extend(kinds::claims(&comparison.report));
    // They mostly wait, each on servers of its own.
    let outcomes = stream::iter(experiments(comparison));
    let outcomes = outcomes.map(|(what, source, outcome)| outcome.map(move |came| (what, source, came)));
    let outcomes: Vec<_> = outcomes.buffered(AT_ONCE).collect().await;
    for (what, source, outcome) in outcomes {
        let finding = outcome.map_err(|error| {
            comparison.leave_out(format!("the claim \"{what}\""), error.to_string());
        });
        claims.push(claim(what, source, finding.ok()));
    }
    claims.extend(budgets::claims(&comparison.report));
    comparison.report.claims.extend(claims);
    comparison.end();
}

/// Judges the budgets of a report that is kept: by its figures, in the words and with the bounds of today.
pub(crate) fn judge_anew(report: &mut Report) {
    if report.verdicts() != [0; 4] {
        let budgets = budgets::claims(report).into_iter().chain(of_a_move(&report.free)).collect::<Vec<_>>();
        // What was counted on servers of its own stays.
        report.claims.retain(|claim| claim.source != BUDGET || claim.claim.ends_with(postgres::SYNCS));
        report.claims.extend(budgets);
    }
}

fn experiments(comparison: &Comparison) -> Vec<Experiment<'_>> {
    let mut experiments: Vec<Experiment<'_>> = Vec::new();
    for (target, everybody) in comparison.stores.iter() {
        match target.label.as_str() {
            "redis" => {
                experiments.push((
                    STAYS.to_owned(),
                    "common comparisons of lock stores",
                    redis::unleased().boxed(),
                ));
            }
            "redis-quorum" => {
                let able = everybody.iter().filter(|who| !who.is_floor());
                experiments.extend(able.flat_map(|who| quorum::experiments(comparison.room(), who)));
            }
            "postgres" => experiments.extend(postgres::experiments(comparison.place())),
            #[cfg(feature = "etcd")]
            "etcd" => {
                experiments.push((TWICE.to_owned(), "reports by etcd's users", etcd::asked_twice().boxed()))
            }
            _ => {}
        }
    }
    experiments
}

/// How many are under way: each has processes and servers of its own.
const AT_ONCE: usize = 6;
