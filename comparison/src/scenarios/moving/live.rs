//! The move as it is meant: processes follow while they run.

use std::time::Duration;

use futures_util::future::join;
use leasehold::Timing;
use leasehold::backend::Env;
use leasehold::migrate::{Admin, Migration, Phase, Steps};

use super::{NAME, SHAPE, STEP, effort, servers, stretch, whole};
use crate::comparison::Comparison;
use crate::driver::Team;
use crate::error::{Error, Result};
use crate::figures::rounded;
use crate::history::History;
use crate::implementation::Implementation;
use crate::report::Move;
use crate::servers::{Counted, Counting, Target};

pub(super) async fn run(comparison: &Comparison) -> Result<Move> {
    let timed = once(comparison, false).await?;
    let counted = once(comparison, true).await?;
    let Moved { history, mut marks } = timed;
    // What came before the first phase was looked at, and after the last, is a part of both.
    if let (Some((begin, end)), [first, .., last]) = (history.ends(), &mut marks[..]) {
        (first.from, last.until) = (begin.min(first.from), end + 1);
    }
    let mut stretches: Vec<_> =
        marks.iter().map(|mark| stretch(&mark.phase, &history, mark.from, mark.until)).collect();
    for (stretch, mark) in stretches.iter_mut().zip(&counted.marks) {
        let (cycles, _) = counted.history.between(mark.from, mark.until);
        let each = |asked: u64| rounded(asked as f64 / cycles.max(1) as f64);
        stretch.requests_per_cycle = mark.asked.iter().map(|asked| each(asked.requests)).collect();
    }
    whole(&history, stretches)
}

/// Who moves the locks, as `leasehold migrate` does.
pub(super) async fn admin(old: &str, new: &str) -> leasehold::Result<Admin> {
    let registry = leasehold::registry();
    let migration = Migration::new(registry.store(old)?, registry.store(new)?);
    migration.admin(Env::new(Timing::for_ttl(TTL))?).await
}

struct Moved {
    history: History,
    marks: Vec<Mark>,
}

/// A phase, or the way from one to the next.
struct Mark {
    phase: String,
    from: u64,
    until: u64,
    /// Of the store that is left and the one moved to.
    asked: Vec<Counted>,
}

async fn once(comparison: &Comparison, counted: bool) -> Result<Moved> {
    let (redis, etcd) = servers(comparison).await?;
    let url = format!("{}?migrate_to={}", redis.url, etcd.url);
    let who = Implementation::Ours;
    let mut team = Team::start(who, std::slice::from_ref(&url), SHAPE, comparison.room()).await?;
    let admin = admin(&redis.url, &etcd.url).await.map_err(Error::during(DOING))?;
    let phase = comparison.scale.phase;
    let (steps, phases) = (PHASES.len() as u32 - 1, PHASES.len() as u32);
    let most = effort(phase * phases + EACH_STEP * steps);
    let walk = walk(&admin, phase, counted.then_some([&redis, &etcd]));
    let (outcome, marks) = join(team.contest(NAME, &most), walk).await;
    let closed = admin.close().await;
    let (history, marks) = (outcome?.whole()?, marks?);
    closed.map_err(Error::during("closing the administrator"))?;
    let (_, end) = history.ends().ok_or_else(|| Error::new("nobody was granted the lock"))?;
    if marks.last().is_none_or(|last| last.until > end) {
        return Err(Error::new("the contest was over before the move"));
    }
    Ok(Moved { history, marks })
}

/// Phase by phase; what lies between two marks.
async fn walk(admin: &Admin, phase: Duration, count: Option<[&Target; 2]>) -> Result<Vec<Mark>> {
    let mut marks = Vec::new();
    // Until the contest goes on.
    tokio::time::sleep(BEGUN).await;
    for (index, at) in PHASES.iter().enumerate() {
        marks.push(
            mark(at.to_string(), count, async {
                tokio::time::sleep(phase).await;
                Ok(())
            })
            .await?,
        );
        let Some(next) = PHASES.get(index + 1) else { break };
        marks.push(mark(format!("{at} to {next}"), count, step(admin, *next)).await?);
    }
    Ok(marks)
}

/// The next phase is `to`, or it is there already.
pub(super) async fn step(admin: &Admin, to: Phase) -> Result<()> {
    let steps = Steps::one().to(to).wait(STEP).quiet_for(Duration::ZERO);
    admin.advance(&steps, &mut |_| {}).await.map(drop).map_err(Error::during(DOING))
}

/// What is asked of both while `during` takes its time.
async fn mark(
    phase: String,
    count: Option<[&Target; 2]>,
    during: impl Future<Output = Result<()>>,
) -> Result<Mark> {
    let mut counting: Vec<Counting<'_>> = Vec::new();
    for target in count.into_iter().flatten() {
        counting.extend(target.count().await);
    }
    let from = contender_protocol::now();
    during.await?;
    let until = contender_protocol::now();
    let mut asked = Vec::new();
    for counting in counting {
        asked.push(counting.end().await?);
    }
    Ok(Mark { phase, from, until, asked })
}

pub(super) const DOING: &str = "moving";

pub(super) const PHASES: [Phase; 5] = Phase::ALL;

const TTL: Duration = Duration::from_secs(30);

/// Processes that contend have begun after that.
const BEGUN: Duration = Duration::from_millis(300);

/// What a step takes at most, on average.
const EACH_STEP: Duration = Duration::from_millis(1_500);
