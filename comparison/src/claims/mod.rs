//! What others have published and what we promise, each as an experiment with its measured answer.
//!
//! Some answers follow from the scenarios' results; others need servers that are stopped, killed or cut
//! off, and start their own.

mod budgets;
mod fail_over;
mod lease;
mod names;
mod outage;
mod published;
#[cfg(feature = "etcd")]
mod shared_lease;

use futures_util::future::{BoxFuture, join_all};

use crate::comparison::Comparison;
use crate::error::Result;
use crate::implementation::Implementation;
use crate::options::Store;
use crate::peers::PEERS;
use crate::report::Claim;

/// What an experiment has shown.
struct Finding {
    measured: String,
    holds: bool,
}

/// An experiment.
struct Experiment<'a> {
    claim: &'static str,
    source: &'static str,
    outcome: BoxFuture<'a, Result<Finding>>,
}

/// Runs every experiment that can be run here.
pub(crate) async fn run(comparison: &mut Comparison) {
    comparison.progress.begin("claims");
    let mut claims = published::claims(&comparison.report);
    let mut troubles = Vec::new();
    {
        let room = comparison.room();
        let mut experiments = Vec::new();
        if comparison.has(Store::Redis) {
            experiments.extend(outage::experiments(room, comparison.peer("rslock")));
            experiments.extend(fail_over::experiments(room));
            experiments.extend(lease::experiments());
        }
        if comparison.has(Store::Etcd) {
            experiments.extend(names::experiments(room, comparison.peer("etcd-lock-rpc")));
            #[cfg(feature = "etcd")]
            experiments.extend(shared_lease::experiments());
        }
        // They mostly wait, each on servers of its own.
        let outcomes = join_all(
            experiments
                .into_iter()
                .map(async |Experiment { claim, source, outcome }| (claim, source, outcome.await)),
        );
        for (claim, source, outcome) in outcomes.await {
            let (measured, holds) = match outcome {
                Ok(finding) => (Some(finding.measured), Some(finding.holds)),
                Err(error) => {
                    troubles.push((format!("the claim \"{claim}\""), error.to_string()));
                    (None, None)
                }
            };
            claims.push(Claim { claim: claim.to_owned(), source: source.to_owned(), measured, holds });
        }
    }
    claims.extend(budgets::claims(&comparison.report, &comparison.drawings));
    comparison.report.claims.extend(claims);
    for (what, why) in troubles {
        comparison.leave_out(what, why);
    }
    comparison.progress.step();
}

impl Comparison {
    fn has(&self, store: Store) -> bool {
        self.stores().any(|(target, _)| target.store == store)
    }

    /// A library of others, if it takes part.
    fn peer(&self, name: &str) -> Option<Implementation> {
        debug_assert!(PEERS.iter().any(|peer| peer.name == name), "no peer is called {name}");
        let everybody = self.stores().flat_map(|(_, everybody)| everybody);
        everybody.copied().find(|who| who.name() == name)
    }
}
