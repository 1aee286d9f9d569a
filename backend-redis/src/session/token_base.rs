//! What the namespace adds to its counters, and raising that.
//!
//! Other sessions are seen by the inboxes that they listen to, which costs them nothing. One that is just
//! coming back, or may not listen, is not seen, and lives: so that there are none is never said.

use std::num::NonZero;

use lockcore::backend::TokenBase;
use lockcore::clock::Moment;
use lockcore::{Error, ErrorKind, OwnerId, Result};
use redis::Value;

use super::Session;
use crate::error;
use crate::keys::Keys;
use crate::link::Connected;
use crate::scripts;

impl Session {
    /// The base as it is now, which later sessions add.
    pub(crate) async fn read_base(&self) -> Result<TokenBase> {
        let give_up_at = self.patience();
        let connected = self.connected(give_up_at).await?;
        let base = stored(&connected, &self.keys, give_up_at).await?;
        // A counter is never below the server's clock, in microseconds.
        let time = connected.ask(&redis::cmd("TIME"), give_up_at).await?;
        let floor = scripts::micros(&time)?;
        let sessions = self.others(&connected, give_up_at).await?;
        Ok(TokenBase { base, floor, sessions })
    }

    /// How many others listen; `None` if nobody is seen.
    async fn others(&self, connected: &Connected, give_up_at: Moment) -> Result<Option<usize>> {
        let mut listening = redis::cmd("PUBSUB");
        listening.arg("CHANNELS").arg(self.keys.inboxes());
        let channels = match connected.ask(&listening, give_up_at).await {
            Ok(Value::Array(channels)) => channels,
            Err(error) if *error.kind() == ErrorKind::Denied => return Ok(None),
            answer => return answer.and(Err(error::unexpected("to PUBSUB CHANNELS"))),
        };
        let inboxes = channels.iter().filter_map(|name| scripts::text(name)?.strip_prefix(&self.channels));
        let others = inboxes.filter(|id| *id != self.inbox && OwnerId::from_hex(id).is_some());
        Ok(NonZero::new(others.count()).map(NonZero::get))
    }

    /// Makes the base `at_least` that large.
    pub(crate) async fn raise_base(&self, at_least: u64) -> Result<()> {
        let key = self.keys.token_base();
        let mut call = scripts::RAISE.call_on(&key);
        call.arg(at_least);
        number(&self.run(&scripts::RAISE, &call).await?, &key).map(drop)
    }
}

/// The base as the server has it: a key that an administrator sets, or nobody.
pub(super) async fn stored(connected: &Connected, keys: &Keys, give_up_at: Moment) -> Result<u64> {
    let key = keys.token_base();
    match connected.ask(redis::cmd("GET").arg(&key), give_up_at).await? {
        Value::Nil => Ok(0),
        value => number(&value, &key),
    }
}

fn number(value: &Value, key: &str) -> Result<u64> {
    scripts::number(value)
        .ok_or_else(|| Error::invalid_option(format!("the key {key:?} is not a whole number")))
}
