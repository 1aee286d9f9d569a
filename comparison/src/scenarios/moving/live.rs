//! The move as it is meant: processes follow while they run.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join;
use leasehold::backend::stage::Phase;
use leasehold::etcd::EtcdConfig;
use leasehold::redis::RedisConfig;
use leasehold::{Env, Timing};
use leasehold_migration::{Admin, Migration, Steps};

use super::{NAME, SHAPE, STEP, effort, servers, stretch, whole};
use crate::comparison::Comparison;
use crate::driver::Team;
use crate::error::{Error, Result};
use crate::figures::rounded;
use crate::history::History;
use crate::implementation::Implementation;
use crate::report::Move;
use crate::servers::{Counted, Counting, Target};

/// The move between two servers, of `url`s such as `redis://127.0.0.1:6379`.
pub(crate) fn migration(old: &str, new: &str) -> std::result::Result<Migration, String> {
    let address = |url: &str| {
        let (_, rest) = url.split_once("://").ok_or_else(|| format!("{url} is no URL"))?;
        rest.parse::<SocketAddr>().map_err(|error| format!("{url}: {error}"))
    };
    let (old, new) = (address(old)?, address(new)?);
    Ok(Migration::new(RedisConfig::new(old.ip().to_string(), old.port()), EtcdConfig::new([new.to_string()])))
}

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
    let urls = [redis.url.clone(), etcd.url.clone()];
    let mut team = Team::start(Implementation::Moving, &urls, SHAPE, comparison.room()).await?;
    let env = Env::new(Timing::for_ttl(TTL)).map_err(Error::during("moving"))?;
    let admin = migration(&urls[0], &urls[1]).map_err(Error::new)?.admin(env);
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
    const DOING: &str = "moving";
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
        let steps = Steps::one().to(*next).wait(STEP).quiet_for(Duration::ZERO);
        let step = async {
            let advanced = admin.advance(&steps, &mut |_| {}).await;
            advanced.map(drop).map_err(Error::during(DOING))
        };
        marks.push(mark(format!("{at} to {next}"), count, step).await?);
    }
    Ok(marks)
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

const PHASES: [Phase; 5] = Phase::ALL;

const TTL: Duration = Duration::from_secs(30);

/// Processes that contend have begun after that.
const BEGUN: Duration = Duration::from_millis(300);

/// What a step takes at most, on average.
const EACH_STEP: Duration = Duration::from_millis(2_500);
