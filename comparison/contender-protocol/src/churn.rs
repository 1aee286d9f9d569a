//! Names that are wanted once each, at a rate: whether a store keeps up with names that come and go.
//!
//! Arrivals do not wait for those before them, unless very many are under way. A time counts from when the name was
//! due, so whoever falls behind has long times and not a low rate alone.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::clock::now;
use crate::contest::nanos;
use crate::journal::Cycle;
use crate::mode::Mode;
use crate::session::{Failure, Session};

/// All cycles, each of a name of its own; the first failure, if there was one.
pub(crate) async fn churn<S: Session>(
    session: &Arc<S>,
    name: &str,
    rate: u64,
    span: Duration,
) -> (Vec<Cycle>, Option<Failure>) {
    let (begin, each) = (now(), 1_000_000_000 / rate.max(1));
    let names = nanos(span) / each.max(1);
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
        match due.saturating_sub(now()) {
            0 if index % TURNS == 0 => tokio::task::yield_now().await,
            0 => {}
            early => tokio::time::sleep(Duration::from_nanos(early)).await,
        }
        while let Some(ended) = under_way.try_join_next() {
            keep(ended);
        }
        if under_way.len() >= MOST
            && let Some(ended) = under_way.join_next().await
        {
            keep(ended);
        }
        let (session, name) = (Arc::clone(session), format!("{name}-{index}"));
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
    let (releasing, released, mode) = (granted, Some(now()), Mode::EXCLUSIVE);
    Ok(Cycle { contender: 0, requested: due, granted, releasing, released, token, mode })
}

/// After so many that are late, those under way have a turn.
const TURNS: u64 = 64;

/// So many are under way at most: more would fail, and tell nothing but that.
const MOST: usize = 1_000;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    use super::*;

    /// Everybody gets every lock, after some time.
    #[derive(Default)]
    struct Slow(Mutex<Vec<String>>);

    impl Session for Slow {
        type Lock = ();
        type Held = ();

        const VERSION: &'static str = "slow";

        async fn open(_urls: &[String], _ttl: Duration) -> Result<Self, Failure> {
            Ok(Self::default())
        }

        async fn lock(&self, name: &str) -> Result<(), Failure> {
            self.0.lock().expect("nobody panics").push(name.to_owned());
            Ok(())
        }

        async fn acquire(&self, (): &()) -> Result<(), Failure> {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok(())
        }

        async fn release(&self, (): ()) -> Result<(), Failure> {
            Ok(())
        }
    }

    /// Every name is wanted once and when it is due, however long those before it take.
    #[tokio::test]
    async fn names_come_when_they_are_due() {
        let session = Arc::new(Slow::default());
        let span = Duration::from_millis(50);
        let (cycles, failed) = churn(&session, "n", 1_000, span).await;
        assert!(failed.is_none());
        let due: BTreeSet<_> = cycles.iter().map(|cycle| cycle.requested).collect();
        let apart: BTreeSet<_> = due.iter().zip(due.iter().skip(1)).map(|(a, b)| b - a).collect();
        assert_eq!((due.len(), apart), (50, BTreeSet::from([1_000_000])));
        assert!(cycles.iter().all(|cycle| cycle.granted - cycle.requested >= 20_000_000));
        assert_eq!(session.0.lock().expect("nobody panics").iter().collect::<BTreeSet<_>>().len(), 50);
    }
}
