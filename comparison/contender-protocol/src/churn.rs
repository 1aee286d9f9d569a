//! Names that are wanted once each, at a rate: whether a store keeps up with names that come and go.
//!
//! Arrivals do not wait for those before them. A time counts from when the name was due, so whoever falls
//! behind has long times and not a low rate alone.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::clock::now;
use crate::contest::nanos;
use crate::journal::Cycle;
use crate::order::Churn;
use crate::session::{Failure, Session};

/// All cycles, each of a name of its own; the first failure, if there was one.
pub(crate) async fn churn<S: Session>(session: &Arc<S>, order: &Churn) -> (Vec<Cycle>, Option<Failure>) {
    let (begin, each) = (now(), 1_000_000_000 / order.rate);
    let names = nanos(order.span) / each.max(1);
    let mut under_way = JoinSet::new();
    let (mut cycles, mut failed) = (Vec::new(), None);
    let mut keep = |ended: Result<Result<Cycle, Failure>, tokio::task::JoinError>| match ended {
        Ok(Ok(cycle)) => cycles.push(cycle),
        Ok(Err(failure)) => failed = failed.take().or(Some(failure)),
        Err(panicked) => failed = failed.take().or_else(|| Some(panicked.into())),
    };
    for index in 0..names {
        let due = begin + index * each;
        // As late as it may be, the next one is asked for at once.
        if due > now() {
            tokio::time::sleep(Duration::from_nanos(due - now())).await;
        } else if index % TURNS == 0 {
            tokio::task::yield_now().await;
        }
        while let Some(ended) = under_way.try_join_next() {
            keep(ended);
        }
        let (session, name) = (Arc::clone(session), format!("{}-{index}", order.name));
        under_way.spawn(async move { once(&*session, &name, due).await });
    }
    while let Some(ended) = under_way.join_next().await {
        keep(ended);
    }
    (cycles, failed)
}

async fn once<S: Session>(session: &S, name: &str, due: u64) -> Result<Cycle, Failure> {
    let lock = session.lock(name).await?;
    let held = session.acquire(&lock).await?;
    let (granted, token) = (now(), S::token(&held));
    session.release(held).await?;
    Ok(Cycle { contender: 0, requested: due, granted, releasing: granted, released: Some(now()), token })
}

/// After so many that are late, those under way have a turn.
const TURNS: u64 = 64;
