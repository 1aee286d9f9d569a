//! The parts of a namespace that a session reads when it connects: the token base, the record of a move, the format, and the mark of the
//! message key.

use std::fmt;
use std::sync::Weak;

use async_trait::async_trait;
use futures_util::future::try_join;
use leasehold_core::backend::ledger::Entry;
use leasehold_core::backend::stage;
use leasehold_core::clock::Moment;
use leasehold_core::{Effect, Env, Error, ErrorKind, Result};
use redis::{Cmd, Value};

use super::Connected;
use crate::error;
use crate::keys::{FORMAT, Keys};
use crate::scripts::{self, Inboxes};

/// Sends commands to the server that has a key.
#[async_trait]
pub(crate) trait Asks: fmt::Debug + Send + Sync {
    /// Sends a command about `key`, and other keys of its slot, and waits for its answer until `give_up_at`.
    async fn ask_about(&self, key: &str, command: &Cmd, give_up_at: Moment) -> Result<Value>;
}

/// A namespace, as a session sees it.
#[derive(Clone, Debug)]
pub(crate) struct Namespace {
    keys: Keys,
    /// The cluster that has it, if it lies on more than one server.
    cluster: Option<Weak<dyn Asks>>,
    /// Of the message key, if the session has one.
    mark: Option<String>,
    /// Whether the session adds the token base, and a move can refuse it. A session that moves locks adds the base itself, and
    /// follows the record.
    is_plain: bool,
}

impl Namespace {
    pub(crate) fn new(keys: Keys, inboxes: &Inboxes, is_plain: bool) -> Self {
        Self { keys, cluster: None, mark: inboxes.mark(), is_plain }
    }

    /// The same namespace in a cluster.
    pub(crate) fn in_cluster(mut self, cluster: Weak<dyn Asks>) -> Self {
        self.cluster = Some(cluster);
        self
    }

    /// Whether the namespace admits a session that has come over `connected`: the base that it adds, and what is wrong with
    /// its message key, if something is. A session that moves locks reads the format with each record.
    ///
    /// # Errors
    ///
    /// As [`stage::admit`], [`record`] and [`token_base`].
    pub(super) async fn admit(
        &self,
        env: &Env,
        connected: &Connected,
        give_up_at: Moment,
    ) -> Result<(u64, Option<String>)> {
        if !self.is_plain && self.mark.is_none() {
            return Ok((0, None));
        }
        let cluster =
            self.cluster.as_ref().map(|cluster| cluster.upgrade().ok_or_else(error::closed)).transpose()?;
        let asks = cluster.as_deref().unwrap_or(connected);
        let record = record(asks, &self.keys, give_up_at);
        if !self.is_plain {
            return Ok((0, self.note_key(record.await?.1, asks, give_up_at).await?));
        }
        // After the subscription by which a move counts this session, and the base last: so the base was in force while the
        // session was admitted. One server is sent both together.
        let base = token_base(asks, &self.keys, give_up_at);
        let ((record, noted), base) = match cluster {
            None => try_join(record, base).await?,
            Some(_) => (record.await?, base.await?),
        };
        stage::admit(env, record.as_ref().map(|record| &*record.value))?;
        Ok((base, self.note_key(noted, asks, give_up_at).await?))
    }

    /// The fault of the session's message key, if it has one. It only reads.
    ///
    /// # Errors
    ///
    /// As [`record`].
    pub(crate) async fn read_other_key(&self, asks: &dyn Asks, give_up_at: Moment) -> Result<Option<String>> {
        Ok(self.other_key(record(asks, &self.keys, give_up_at).await?.1))
    }

    /// As [`Namespace::other_key`]. The first session with a key notes it.
    async fn note_key(
        &self,
        noted: Option<String>,
        asks: &dyn Asks,
        give_up_at: Moment,
    ) -> Result<Option<String>> {
        let noted = match (noted, &self.mark) {
            (None, Some(mark)) => {
                let mut note = redis::cmd("SET");
                note.arg(self.keys.format()).arg(format!("{FORMAT} {mark}")).arg("NX").arg("GET");
                match asks.ask_about(&self.keys.format(), &note, give_up_at).await {
                    // A full server refuses this; the next session notes it.
                    Err(error) if error.effect() == Effect::NotApplied => None,
                    said => mark_of(&said?, &self.keys)?,
                }
            }
            (noted, _) => noted,
        };
        Ok(self.other_key(noted))
    }

    /// The fault of the session's message key beside the one that is noted, which costs time and no lock.
    fn other_key(&self, noted: Option<String>) -> Option<String> {
        noted.filter(|noted| *noted != *self.mark.as_deref().unwrap_or_default()).map(|_| {
            let how = if self.mark.is_some() { "differs from that" } else { "is missing, unlike that" };
            let key = self.keys.format();
            format!(
                "`message_key` {how} of the other managers of the prefix, so they ignore each other's \
                 messages, and grants come up to a third of the ttl late: set the same key for all. After a \
                 change of the key, delete {key:?}"
            )
        })
    }
}

/// The token base: a key that an administrator sets, or 0 without it.
pub(crate) async fn token_base(asks: &dyn Asks, keys: &Keys, give_up_at: Moment) -> Result<u64> {
    let key = keys.token_base();
    match asks.ask_about(&key, redis::cmd("GET").arg(&key), give_up_at).await? {
        Value::Nil => Ok(0),
        value => as_token_base(&value, &key),
    }
}

/// The value of `key`.
pub(crate) fn as_token_base(value: &Value, key: &str) -> Result<u64> {
    let message = || format!("the key {key:?} is not a whole number");
    scripts::number(value).ok_or_else(|| Error::not_applied(ErrorKind::Protocol, message()))
}

/// The record of a move as the server has it, and the mark of the message key that is noted with the format, if one is.
/// A key of another type counts as none.
///
/// # Errors
///
/// `Unsupported` for a namespace of another format.
pub(crate) async fn record(
    asks: &dyn Asks,
    keys: &Keys,
    give_up_at: Moment,
) -> Result<(Option<Entry>, Option<String>)> {
    let key = keys.record();
    let answer = asks.ask_about(&key, redis::cmd("MGET").arg(&key).arg(keys.format()), give_up_at).await?;
    let [record, format] = scripts::parts(&answer) else {
        return Err(error::unexpected("for the record of a move"));
    };
    let mark = mark_of(format, keys)?;
    match record {
        Value::Nil => Ok((None, mark)),
        value => {
            let record = entry(value).ok_or_else(|| error::unexpected("for the record of a move"))?;
            Ok((Some(record), mark))
        }
    }
}

/// The mark that is noted with our format.
fn mark_of(format: &Value, keys: &Keys) -> Result<Option<String>> {
    if *format == Value::Nil {
        return Ok(None);
    }
    let said = scripts::text(format).ok_or_else(|| error::unexpected("for the format of a namespace"))?;
    let (format, mark) = said.split_once(' ').unwrap_or((said, ""));
    if format == FORMAT {
        Ok(Some(mark.to_owned()))
    } else {
        Err(error::another_format(format, &keys.format()))
    }
}

fn entry(value: &Value) -> Option<Entry> {
    let Value::BulkString(bytes) = value else { return None };
    let (version, value) = bytes.split_at(bytes.iter().position(|byte| *byte == b' ')?);
    let written = std::str::from_utf8(version).ok()?;
    let version: u64 = written.parse().ok()?;
    // The script compares what is written, so another spelling would never be in force.
    (version.to_string() == written).then(|| Entry { version, value: value[1..].to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record is its version and whatever bytes were written; what has no version is none.
    #[test]
    fn a_record_is_a_version_and_bytes() {
        let read = |bytes: &[u8]| entry(&Value::BulkString(bytes.to_vec()));
        assert_eq!(read(b"7 \xff a"), Some(Entry { version: 7, value: b"\xff a".to_vec() }));
        assert_eq!(read(b"7 "), Some(Entry { version: 7, value: Vec::new() }));
        for strange in
            [&b""[..], b"7", b" 7", b"-7 a", b"+7 a", b"07 a", b"99999999999999999999 a", b"\xff a"]
        {
            assert_eq!(read(strange), None, "{strange:?}");
        }
        assert_eq!(entry(&Value::Int(7)), None);
    }
}
