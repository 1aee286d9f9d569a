//! The number that the namespace adds to its counters, and how it is raised.
//!
//! Other sessions are counted by the inboxes to which they are subscribed. A session that is reconnecting, or may not
//! subscribe, is live and not counted. So the result is never "none".

use std::collections::BTreeSet;
use std::num::NonZero;

use leasehold_core::backend::TokenBase;
use leasehold_core::clock::Moment;
use leasehold_core::{ErrorKind, Result};
use redis::Value;

use crate::connection::{as_token_base, token_base};
use crate::error;
use crate::keys;
use crate::scripts;
use crate::session::Session;

impl Session {
    /// The base as it is now, which later sessions add.
    pub(crate) async fn read_base(&self) -> Result<TokenBase> {
        self.life.open_or_refuse()?;
        let give_up_at = self.give_up_at();
        let base = token_base(&self.fleet, &self.keys, give_up_at).await?;
        // A counter is never below the clock of its server, in microseconds.
        let mut floor = 0;
        for link in self.fleet.primaries() {
            let time = link.connected(give_up_at).await?.ask(&redis::cmd("TIME"), give_up_at).await?;
            floor = floor.max(scripts::micros(&time)?);
        }
        let sessions = self.others(give_up_at).await?;
        Ok(TokenBase::new(base, floor, sessions))
    }

    /// How many other sessions are subscribed; `None` without any, and with a server of a cluster away: each knows of its own
    /// subscribers alone.
    async fn others(&self, give_up_at: Moment) -> Result<Option<usize>> {
        let mut listening = redis::cmd("PUBSUB");
        listening.arg("CHANNELS").arg(self.keys.inboxes());
        let answers = match self.fleet.cluster() {
            None => {
                let connected = self.fleet.home().connected(give_up_at).await?;
                connected.ask(&listening, give_up_at).await.map(|answer| vec![answer])
            }
            Some(cluster) => cluster.ask_all(&listening, give_up_at).await,
        };
        let answers = match answers {
            Err(error) if *error.kind() == ErrorKind::Denied => return Ok(None),
            Err(error) if *error.kind() == ErrorKind::Unavailable && self.fleet.cluster().is_some() => {
                return Ok(None);
            }
            answers => answers?,
        };
        if !answers.iter().all(|answer| matches!(answer, Value::Array(_))) {
            return Err(error::unexpected("to PUBSUB CHANNELS"));
        }
        let prefix = self.keys.channels();
        let channels = answers.iter().flat_map(scripts::parts);
        let inboxes = channels.filter_map(|name| scripts::text(name)?.strip_prefix(&prefix));
        let others: BTreeSet<_> = inboxes
            .filter(|id| *id != self.inbox && keys::is_inbox_of_one_that_adds(id, self.database))
            .collect();
        Ok(NonZero::new(others.len()).map(NonZero::get))
    }

    /// Makes the base `at_least` that large.
    pub(crate) async fn raise_base(&self, at_least: u64) -> Result<()> {
        self.life.open_or_refuse()?;
        let key = self.keys.token_base();
        let mut call = scripts::RAISE.call(&[&key]);
        call.arg(at_least);
        as_token_base(&self.run(&call).await?, &key).map(drop)
    }
}
