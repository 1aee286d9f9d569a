//! What becomes of permits: of a holder that is killed, and when one is released twice. Both are counted by taking
//! as many as can be taken.

use std::path::Path;
use std::time::Duration;

use contender_protocol::{Mode, now};
use futures_util::future::join_all;

use crate::comparison::Comparison;
use crate::driver::Worker;
use crate::error::Result;
use crate::implementation::Implementation;
use crate::options::{Scenario, Store};
use crate::report::Leak;
use crate::scale::CRASH_TTL;
use crate::servers::Target;

/// One of three.
pub(crate) const PERMIT: Mode = Mode { weight: 1, capacity: 3 };

/// Far longer than a free one takes.
const BOUND: Duration = Duration::from_secs(30);

/// Somebody who saw a holder of a permit die.
#[derive(Debug)]
pub(crate) struct Dying {
    who: Implementation,
    witness: Worker,
    lock: String,
    /// When the holder was killed; never, where locks end with the process.
    killed_at: Option<u64>,
}

/// How many can be taken after a kill and after two releases, and what was answered to the second.
#[derive(Debug)]
pub(crate) struct Leaks {
    pub(crate) after_a_kill: Option<u64>,
    pub(crate) after_two_releases: u64,
    pub(crate) second_release: String,
}

/// Kills a holder with each library.
pub(super) async fn begin(
    comparison: &mut Comparison,
    target: &Target,
    everybody: &[Implementation],
) -> Vec<Dying> {
    let room = comparison.room();
    let kills = target.store != Store::Memory;
    let dying = everybody.iter().map(|who| Dying::begin(who, &target.url, room, CRASH_TTL, kills));
    let dying = join_all(dying).await;
    let mut witnesses = Vec::new();
    for (who, dying) in everybody.iter().zip(dying) {
        match dying {
            Ok(dying) => witnesses.push(dying),
            Err(error) => leave_out(comparison, target, who, error.to_string()),
        }
    }
    witnesses
}

/// Counts what is left, when every lease is over.
pub(super) async fn end(comparison: &mut Comparison, target: &Target, dying: Vec<Dying>) {
    let counted =
        join_all(dying.into_iter().map(|one| async { (one.who, one.end(super::patience(CRASH_TTL)).await) }));
    for (who, counted) in counted.await {
        match counted {
            Ok(Leaks { after_a_kill, after_two_releases, second_release }) => {
                comparison.report.leaks.push(Leak {
                    store: target.label.clone(),
                    implementation: who.name().to_owned(),
                    permits: PERMIT.capacity.into(),
                    after_a_kill,
                    after_two_releases: Some(after_two_releases),
                    second_release,
                });
            }
            Err(error) => leave_out(comparison, target, &who, error.to_string()),
        }
    }
}

fn leave_out(comparison: &mut Comparison, target: &Target, who: &Implementation, why: String) {
    comparison
        .leave_out(format!("permits of {} on {} in {}", who.name(), target.label, Scenario::Kinds), why);
}

impl Dying {
    /// One takes a permit and is killed, another one sees it.
    pub(crate) async fn begin(
        who: &Implementation,
        url: &str,
        room: &Path,
        ttl: Duration,
        kills: bool,
    ) -> Result<Self> {
        let urls = &[url.to_owned()];
        let mut witness = Worker::start(who, urls, room).await?;
        witness.open(1, ttl).await?;
        let lock = format!("compare-leaks-{}", who.name());
        let mut killed_at = None;
        if kills {
            let mut holder = Worker::start(who, urls, room).await?;
            holder.open(1, ttl).await?;
            holder.acquire_as(&lock, PERMIT, BOUND).await?;
            holder.kill().await?;
            killed_at = Some(now());
        }
        Ok(Self { who: *who, witness, lock, killed_at })
    }

    /// What it finds `patience` after that.
    pub(crate) async fn end(mut self, patience: Duration) -> Result<Leaks> {
        // More than there are, so that one that was made up is seen.
        let most = u64::from(PERMIT.capacity) + 2;
        let mut after_a_kill = None;
        if let Some(killed_at) = self.killed_at {
            let since = Duration::from_nanos(now().saturating_sub(killed_at));
            tokio::time::sleep(patience.saturating_sub(since)).await;
            after_a_kill = Some(self.witness.count(&self.lock, most, PERMIT).await?);
        }
        let lock = format!("{}-twice", self.lock);
        self.witness.acquire_as(&lock, PERMIT, BOUND).await?;
        self.witness.release().await?;
        let second_release = match self.witness.release_again().await {
            Ok(()) => "accepted".to_owned(),
            Err(refused) => format!("refused ({refused})"),
        };
        let after_two_releases = self.witness.count(&lock, most, PERMIT).await?;
        Ok(Leaks { after_a_kill, after_two_releases, second_release })
    }
}
