//! A free lock a millisecond away: what becomes of a share of the floor's rate where round trips take longer than
//! processors do.
//!
//! The same contest as that of a free lock, on the same servers, by a way of its own: nobody else takes it.

use std::time::Duration;

use super::contest::Contest;
use crate::comparison::Comparison;
use crate::environment::Latency;
use crate::error::Result;
use crate::implementation::Implementation;
use crate::options::Scenario;
use crate::servers::{Distance, Target, measured};

/// Who finds the store by `contest`'s URL finds it by another one.
pub(super) async fn run(
    comparison: &mut Comparison,
    target: &Target,
    everybody: &[Implementation],
    contest: Contest,
) {
    match lead_away(comparison, target).await {
        Ok(distance) => {
            let contest = Contest { url: distance.url.clone(), ..contest };
            contest.run(comparison, target, everybody).await;
            comparison.kept.end(&contest.url);
        }
        Err(error) => {
            comparison.leave_out(format!("{} in {}", target.label, Scenario::Distance), error.to_string());
        }
    }
}

/// How far it is away is measured once: every way is alike.
async fn lead_away(comparison: &mut Comparison, target: &Target) -> Result<Distance> {
    let distance = target.at_a_distance(ROUND_TRIP).await?;
    let known = &mut comparison.report.environment.distance;
    if known.is_none() {
        *known = Some(Latency::of(ROUND_TRIP, measured(ROUND_TRIP).await?));
    }
    Ok(distance)
}

/// How much longer it takes.
const ROUND_TRIP: Duration = Duration::from_millis(1);
