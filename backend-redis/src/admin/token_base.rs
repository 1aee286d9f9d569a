//! The number that the namespace adds to its counters, and how it is raised.
//!
//! Other sessions are counted by the inboxes to which they are subscribed. A session that is reconnecting, or may not
//! subscribe, is live and not counted. So the result is never "none".

use std::num::NonZero;

use leasehold_core::backend::TokenBase;
use leasehold_core::clock::Moment;
use leasehold_core::{ErrorKind, Result};
use redis::Value;

use crate::connection::{Connected, as_token_base, token_base};
use crate::error;
use crate::keys;
use crate::scripts;
use crate::session::Session;

impl Session {
    /// The base as it is now, which later sessions add.
    pub(crate) async fn read_base(&self) -> Result<TokenBase> {
        self.life.open_or_refuse()?;
        let give_up_at = self.give_up_at();
        let connected = self.link.connected(give_up_at).await?;
        let base = token_base(&connected, &self.keys, give_up_at).await?;
        // A counter is never below the server's clock, in microseconds.
        let time = connected.ask(&redis::cmd("TIME"), give_up_at).await?;
        let floor = scripts::micros(&time)?;
        let sessions = self.others(&connected, give_up_at).await?;
        Ok(TokenBase::new(base, floor, sessions))
    }

    /// How many other sessions are subscribed; `None` without any.
    async fn others(&self, connected: &Connected, give_up_at: Moment) -> Result<Option<usize>> {
        let mut listening = redis::cmd("PUBSUB");
        listening.arg("CHANNELS").arg(self.keys.inboxes());
        let channels = match connected.ask(&listening, give_up_at).await {
            Ok(Value::Array(channels)) => channels,
            Err(error) if *error.kind() == ErrorKind::Denied => return Ok(None),
            answer => return answer.and(Err(error::unexpected("to PUBSUB CHANNELS"))),
        };
        let prefix = self.keys.channels();
        let inboxes = channels.iter().filter_map(|name| scripts::text(name)?.strip_prefix(&prefix));
        let others =
            inboxes.filter(|id| *id != self.inbox && keys::is_inbox_of_one_that_adds(id, self.database));
        Ok(NonZero::new(others.count()).map(NonZero::get))
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
