//! What a namespace says to whoever opens it: the base of its tokens, and the record of a move.

use leasehold_core::backend::ledger::Entry;
use leasehold_core::backend::stage;
use leasehold_core::clock::Moment;
use leasehold_core::{Env, Error, Result};
use redis::Value;

use super::Connected;
use crate::keys::Keys;
use crate::{error, scripts};

/// Whether the record admits a session, as [`stage::admit`].
pub(crate) async fn admit(env: &Env, connected: &Connected, keys: &Keys, give_up_at: Moment) -> Result<()> {
    let record = record(connected, keys, give_up_at).await?;
    stage::admit(env, record.as_ref().map(|record| &*record.value))
}

/// The base as the server has it: a key that an administrator sets, or nobody.
pub(crate) async fn token_base(connected: &Connected, keys: &Keys, give_up_at: Moment) -> Result<u64> {
    let key = keys.token_base();
    match connected.ask(redis::cmd("GET").arg(&key), give_up_at).await? {
        Value::Nil => Ok(0),
        value => as_token_base(&value, &key),
    }
}

/// What stands in `key`.
pub(crate) fn as_token_base(value: &Value, key: &str) -> Result<u64> {
    scripts::number(value)
        .ok_or_else(|| Error::invalid_option(format!("the key {key:?} is not a whole number")))
}

/// The record as the server has it.
pub(crate) async fn record(connected: &Connected, keys: &Keys, give_up_at: Moment) -> Result<Option<Entry>> {
    match connected.ask(redis::cmd("GET").arg(keys.record()), give_up_at).await? {
        Value::Nil => Ok(None),
        value => entry(&value).map(Some).ok_or_else(|| error::unexpected("for the record of a move")),
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
