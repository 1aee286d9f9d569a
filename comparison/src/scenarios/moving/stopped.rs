//! What one does without a move: everybody stops, the tokens are carried over, everybody starts anew.
//!
//! It is as fast as a machine can do it: nobody is waited for, and processes start where they stopped.

use leasehold::FencingToken;

use super::{NAME, SHAPE, effort, servers, stretch, whole};
use crate::comparison::Comparison;
use crate::driver::Team;
use crate::error::{Error, Result};
use crate::history::History;
use crate::implementation::Implementation;
use crate::report::Move;

pub(super) async fn run(comparison: &Comparison) -> Result<Move> {
    let (redis, etcd) = servers(comparison).await?;
    let span = comparison.scale.phase * 2;
    let contest = async |url: &String| {
        let who = Implementation::Ours;
        let mut team = Team::start(who, std::slice::from_ref(url), SHAPE, comparison.room()).await?;
        team.contest(NAME, &effort(span)).await?.whole()
    };
    let before = contest(&redis.url).await?;
    carry_over(&before, &etcd.url).await?;
    let after = contest(&etcd.url).await?;
    let (Some((begin, left)), Some((reached, end))) = (before.ends(), after.ends()) else {
        return Err(Error::new("nobody was granted the lock"));
    };
    let history = before.and(after);
    let stretches = vec![
        stretch("Redis", &history, begin, left),
        stretch("nobody locks", &history, left, reached + 1),
        stretch("etcd", &history, reached + 1, end),
    ];
    whole(&history, stretches)
}

/// From then on every token of the other store is above the last one.
async fn carry_over(before: &History, url: &str) -> Result<()> {
    const DOING: &str = "carrying the tokens over";
    let last = before
        .last_token()
        .and_then(|token| FencingToken::new(token / PER_COUNTER, u16::try_from(token % PER_COUNTER).ok()?));
    let last = last.ok_or_else(|| Error::new("there is no token to carry over"))?;
    let locks = leasehold::connect(url).await.map_err(Error::during(DOING))?;
    locks.raise_token_base(last).await.map_err(Error::during(DOING))?;
    locks.shutdown().await.map_err(Error::during(DOING))
}

/// Tokens that one grant of a store has room for.
const PER_COUNTER: u64 = 1024;
