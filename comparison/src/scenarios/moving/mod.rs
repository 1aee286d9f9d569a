//! A namespace moves from Redis to etcd while eight processes want one of its locks: how long nobody is granted it,
//! what a cycle asks of both servers in each phase, and whether two ever hold at once or a token goes back. Beside
//! it what one does without a move: stop everybody, carry the tokens over, start everybody on the other store.
//!
//! What servers count slows them down, so requests are counted in a move of their own.

mod free;
mod live;
mod stopped;

use std::time::Duration;

use crate::comparison::Comparison;
use crate::driver::{Effort, Shape};
use crate::error::{Error, Result};
use crate::figures::rounded;
use crate::history::History;
use crate::options::{Scenario, Store};
use crate::report::{Move, Stretch};
use crate::servers::Target;

pub(crate) async fn run(comparison: &mut Comparison) {
    comparison.begin("move: Redis to etcd");
    let stores = comparison.stores.iter().map(|(target, _)| target.store);
    let stores: Vec<_> = stores.collect();
    if stores.contains(&Store::Redis) && stores.contains(&Store::Etcd) {
        comparison.progress.doing("move: phase by phase");
        let moved = live::run(comparison).await;
        keep(comparison, "phase by phase, under load", moved);
        comparison.progress.doing("move: everybody stops");
        let stopped = stopped::run(comparison).await;
        keep(comparison, "everybody stops and starts anew", stopped);
        comparison.progress.doing("move: a free lock in each phase");
        match free::run(comparison).await {
            Ok(free) => comparison.report.free = free,
            Err(error) => comparison.leave_out("a free lock in each phase of a move", error.to_string()),
        }
    } else {
        comparison.leave_out(Scenario::Move.to_string(), "it wants Redis and etcd");
    }
    comparison.end();
}

fn keep(comparison: &mut Comparison, what: &str, moved: Result<Move>) {
    match moved {
        Ok(moved) => {
            let broken = moved.overlaps + moved.tokens_back;
            if broken > 0 {
                comparison
                    .progress
                    .say(&format!("VIOLATION: a move broke exclusion or order {broken} times"));
            }
            comparison.report.moves.push(Move { what: what.to_owned(), ..moved });
        }
        Err(error) => comparison.leave_out(format!("a move, {what}"), error.to_string()),
    }
}

/// Servers of their own: what is moved stays moved.
async fn servers(comparison: &Comparison) -> Result<(Target, Target)> {
    let place = comparison.place();
    Ok((Target::start(Store::Redis, 1, place).await?, Target::start(Store::Etcd, 1, place).await?))
}

/// Who holds does so for a millisecond, or two at once would not be seen.
fn effort(span: Duration) -> Effort {
    Effort { hold: HOLD, ..Effort::cycles(0).until(span) }
}

/// What happened between `from` and `until`.
fn stretch(phase: &str, history: &History, from: u64, until: u64) -> Stretch {
    let (cycles, longest_gap) = history.between(from, until);
    let seconds = until.saturating_sub(from) as f64 / 1e9;
    Stretch {
        phase: phase.to_owned(),
        seconds: rounded(seconds),
        cycles_per_s: rounded(cycles as f64 / seconds.max(1e-9)),
        longest_gap_ms: longest_gap.map(|gap| rounded(gap as f64 / 1e6)),
        cycles: cycles as u64,
        requests_per_cycle: Vec::new(),
    }
}

/// The whole of it.
fn whole(history: &History, stretches: Vec<Stretch>) -> Result<Move> {
    if history.len() == 0 {
        return Err(Error::new("nobody was granted the lock"));
    }
    Ok(Move {
        what: String::new(),
        cycles: history.len() as u64,
        overlaps: history.overlaps(),
        tokens_back: history.tokens_back(),
        longest_gap_ms: history.between(0, u64::MAX).1.map(|gap| rounded(gap as f64 / 1e6)),
        stretches,
    })
}

const NAME: &str = "compare-move";

const SHAPE: Shape = Shape { processes: 8, contenders: 1, sessions: 1 };

const HOLD: Duration = Duration::from_millis(1);

/// How long a step of a move may take: every process looks at it once a second, and the one before is over then.
const STEP: Duration = Duration::from_secs(10);
