//! The holders that the server keeps, and how they are shown.

use std::time::{Duration, UNIX_EPOCH};

use leasehold_core::FencingToken;
use leasehold_core::backend::{Holder, Mode};
use redis::Value;

use super::call::Digits;

/// How holders are shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Naming {
    /// Added to every counter.
    pub(crate) base: u64,
    /// The label of a foreign holder.
    pub(crate) foreign: &'static str,
}

impl Naming {
    /// The holder of a lock that other libraries take too. Its value is never shown: it is enough to release the lock.
    pub(crate) const NOT_LEASEHOLD: &str = "(not leasehold)";
    /// A foreign holder of a lock under a key of this store.
    pub(crate) const ANOTHER: &str = "another client";
    /// Of a free lock that is not granted for a while.
    pub(super) const NOBODY: &str = "(none: the server was restarted or promoted)";
}

/// The text that the server keeps of a holder or a waiter for `inspect`: the label, and metadata if any.
pub(crate) fn info(label: &str, metadata: Option<&str>) -> String {
    info_parts(label, metadata, &mut Digits::default()).concat()
}

/// The parts of [`info`].
pub(super) fn info_parts<'i>(
    label: &'i str,
    metadata: Option<&'i str>,
    room: &'i mut Digits,
) -> [&'i str; 4] {
    let (mark, metadata) = metadata.map_or((" ", ""), |metadata| ("+", metadata));
    [room.of(label.len() as u64), mark, label, metadata]
}

/// The record of a grant, "COUNTER ID SINCE INBOX INFO".
#[derive(Debug)]
pub(super) struct GrantRecord<'v> {
    pub(super) counter: u64,
    pub(super) owner: &'v [u8],
    since: u64,
    info: &'v [u8],
}

impl<'v> GrantRecord<'v> {
    pub(super) fn read(value: &'v Value) -> Option<Self> {
        let Value::BulkString(bytes) = value else { return None };
        Self::of(bytes)
    }

    fn of(bytes: &'v [u8]) -> Option<Self> {
        let mut words = bytes.splitn(5, |byte| *byte == b' ');
        let number = |word: Option<&[u8]>| std::str::from_utf8(word?).ok()?.parse().ok();
        let (counter, owner, since) = (number(words.next())?, words.next()?, number(words.next())?);
        Some(Self { counter, owner, since, info: words.nth(1)? })
    }

    /// The holder in it, with `base` added to the counter.
    fn holder(&self, base: u64) -> Option<Holder> {
        let (label, metadata) = told_info(std::str::from_utf8(self.info).ok()?)?;
        let mut holder = Holder::new(label);
        holder.token = self.counter.checked_add(base).and_then(|counter| FencingToken::new(counter, 0));
        holder.since = UNIX_EPOCH.checked_add(Duration::from_micros(self.since));
        holder.metadata = metadata.map(str::to_owned);
        Some(holder)
    }
}

/// The holder in the server's reply, by the record of its grant if it has a valid one.
pub(super) fn holder(record: Option<GrantRecord<'_>>, naming: Naming) -> Holder {
    record.and_then(|record| record.holder(naming.base)).unwrap_or_else(|| {
        let unnamed = Holder::new(naming.foreign);
        if naming.foreign == Naming::NOBODY { unnamed } else { unnamed.of_foreign_client() }
    })
}

/// A mode as the server keeps it.
pub(crate) fn mode(mode: Mode) -> String {
    format!("{} {}", mode.weight(), mode.capacity())
}

/// A holder that shares the lock, by the record of its share: "WEIGHT CAPACITY", and that of its grant.
pub(super) fn sharer(value: &Value, naming: Naming) -> Holder {
    let read = || {
        let Value::BulkString(bytes) = value else { return None };
        let mut words = bytes.splitn(3, |byte| *byte == b' ');
        let mut number = || std::str::from_utf8(words.next()?).ok()?.parse().ok();
        let mode = match (number()?, number()?) {
            (1, u32::MAX) => Mode::SHARED,
            (weight, capacity) => Mode::permits(weight, capacity).ok()?,
        };
        Some((mode, GrantRecord::of(words.next()?)))
    };
    let (mode, record) = read().unwrap_or_default();
    let mut holder = holder(record, naming);
    holder.mode = mode;
    holder
}

/// The holders that share the lock, in order of arrival.
pub(super) fn sharers(holders: impl Iterator<Item = Holder>) -> Vec<Holder> {
    let mut holders: Vec<_> = holders.collect();
    holders.sort_by_key(|holder| holder.token);
    holders
}

/// Label and metadata in the text of [`info`].
pub(crate) fn told_info(info: &str) -> Option<(&str, Option<&str>)> {
    let (length, rest) = info.split_at(info.find([' ', '+'])?);
    let (label, metadata) = rest.get(1..)?.split_at_checked(length.parse().ok()?)?;
    Some((label, rest.starts_with('+').then_some(metadata)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Naming = Naming { base: 0, foreign: Naming::ANOTHER };

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    /// Labels and metadata come back as they went, whatever is in them.
    #[test]
    fn info_round_trips() {
        for (label, metadata) in [
            ("host", None),
            ("", None),
            ("", Some("")),
            ("7 up", Some("5+x\n y")),
            ("é", Some("{\"build\": 7}")),
            ("+", None),
        ] {
            let record = bulk(&format!("9 id 1000000 inbox {}", info(label, metadata)));
            let holder = holder(GrantRecord::read(&record), OURS);
            assert_eq!((holder.label.as_str(), holder.metadata.as_deref()), (label, metadata));
            assert!(!holder.foreign);
            assert_eq!(holder.token, FencingToken::new(9, 0));
            assert_eq!(holder.since, UNIX_EPOCH.checked_add(Duration::from_secs(1)));
        }
    }

    /// Info of another form is a foreign client's.
    #[test]
    fn strange_info_is_read_too() {
        for strange in ["", "5", "5 é", "1 é", "-1 a", "é", "5é", "99999999999999999999 a"] {
            let record = bulk(&format!("9 id 1 inbox {strange}"));
            let holder = holder(GrantRecord::read(&record), OURS);
            assert!(holder.foreign && holder.label == "another client", "{strange:?}");
        }
    }
}
