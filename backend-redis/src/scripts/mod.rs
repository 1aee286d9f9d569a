//! The scripts of the server, and their replies.
//!
//! Every request that changes a lock is one script, so for others it acts at once or not at all. Names reach a script only as
//! keys, everything else as arguments; the texts are constants. The bytes of a reply are not trusted: a reply without the
//! expected form is an error.
//!
//! | text | runs |
//! |---|---|
//! | `own.lua` | the operations on locks under leasehold's own keys, with `base.lua`, which explains them, `admin.lua` and `tell.lua` |
//! | `foreign.lua` | the same on locks under keys of other libraries |
//! | `record.lua`, `members.lua` | the record of a move, and its participants |
//! | `raise.lua` | raises the token base |
//! | `admit.lua` | returns since when a server is known that may have forgotten holders |

mod call;
#[cfg(test)]
mod differential;
mod holders;
mod message;
#[cfg(test)]
pub(crate) mod model;

use std::sync::LazyLock;
use std::time::Duration;

use leasehold_core::backend::Holder;
use leasehold_core::{Error, FencingToken, LockName, Result, Revoke};
use redis::{Cmd, Value};

use crate::error;
use crate::keys::{Keys, NameKeys};
use crate::protocol::ScriptReply;

pub(crate) use self::call::{Call, ReignTimes};
use self::holders::{GrantRecord, holder, sharer, sharers};
pub(crate) use self::holders::{Naming, info, mode, told_info};
pub(crate) use self::message::{Inboxes, Message, News};

/// How programs of either engine send a message.
pub(crate) const TELL: &str = include_str!("tell.lua");

/// A script and the name under which a server keeps it.
#[derive(Debug)]
pub(crate) struct Script {
    text: String,
    pub(crate) hash: String,
    /// The beginning of each call.
    head: Vec<u8>,
}

/// Locks under our own keys.
pub(crate) static OWN: LazyLock<Script> = LazyLock::new(|| program(include_str!("own.lua")));
/// Locks under keys of other libraries.
pub(crate) static FOREIGN: LazyLock<Script> = LazyLock::new(|| program(include_str!("foreign.lua")));

pub(crate) static RAISE: LazyLock<Script> = LazyLock::new(|| Script::new(&[include_str!("raise.lua")]));
pub(crate) static RECORD: LazyLock<Script> = LazyLock::new(|| timed(include_str!("record.lua")));
pub(crate) static MEMBERS: LazyLock<Script> = LazyLock::new(|| timed(include_str!("members.lua")));
pub(crate) static ADMIT: LazyLock<Script> = LazyLock::new(|| timed(include_str!("admit.lua")));

/// The program of our keys and the names of its operations that acquire and release an exclusive lock, for a measurement of
/// what the store adds to them. `base.lua` lists their arguments.
#[doc(hidden)]
pub fn exclusive_scripts() -> (&'static str, [&'static str; 2]) {
    (&OWN.text, ["acquire", "release"])
}

/// The sections of `base.lua`: arguments, time, counting, queue, operations.
fn base() -> [&'static str; 5] {
    sections(include_str!("base.lua"))
}

fn sections<const N: usize>(text: &'static str) -> [&'static str; N] {
    let sections = text.split("---\n").collect::<Vec<_>>();
    sections.try_into().expect("the texts are constants")
}

/// With the paths of a free lock before the functions that they do not need.
fn program(text: &'static str) -> Script {
    let [arguments, time, counting, queue, operations] = base();
    let [release, free, rest] = sections(text);
    let admin = include_str!("admin.lua");
    Script::new(&[arguments, release, time, counting, free, TELL, queue, rest, operations, admin])
}

fn timed(text: &str) -> Script {
    Script::new(&[base()[1], text])
}

impl Script {
    /// The script that consists of these `parts`.
    pub(crate) fn new(parts: &[&str]) -> Self {
        let text = parts.concat();
        let hash = Self::hash_of(&text);
        Self { head: call::head(&hash), hash, text }
    }

    /// As a server hashes `text`.
    pub(crate) fn hash_of(text: &str) -> String {
        redis::Script::new(text).get_hash().to_owned()
    }

    /// Every script, to be loaded ahead of its first use where a user may not bring the text.
    pub(crate) fn all() -> impl Iterator<Item = &'static Self> {
        [&*OWN, &*FOREIGN, &*RAISE, &*RECORD, &*MEMBERS, &*ADMIT].into_iter()
    }

    pub(crate) fn load(&self) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(&self.text);
        command
    }

    #[cfg(test)]
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The script on `keys`.
    pub(crate) fn call(&'static self, keys: &[&str]) -> Call {
        Call::new(self, keys)
    }

    /// The call of an operation of a program on the keys of `names`.
    pub(crate) fn operation_on(
        &'static self,
        operation: &str,
        keys: &Keys,
        names: &[&LockName],
    ) -> Result<Call> {
        let mut call = Call::on(self, keys, names)?;
        call.arg_of(&[operation]);
        Ok(call)
    }

    /// The call of an operation of a program.
    pub(crate) fn operation(&'static self, operation: &str, keys: &[&str]) -> Call {
        let mut call = self.call(keys);
        call.arg(operation);
        call
    }
}

/// The answer to an entry, and the holder for which it waits.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) answer: ScriptReply,
    /// `None` unless it waits.
    pub(crate) holder: Option<Holder>,
}

/// Reads the answer of `acquire` or `share`, or one of `renew`'s.
///
/// # Errors
///
/// [`ErrorKind::Protocol`](leasehold_core::ErrorKind::Protocol).
pub(crate) fn reply(value: &Value, naming: Naming) -> Result<Reply> {
    let wrong = || error::unexpected("for an entry");
    let counter = |value| number(value).ok_or_else(wrong);
    let answer = match parts(value) {
        [] => ScriptReply::Holds { counter: counter(value)? },
        [Value::Int(0), Value::Int(ask_in), record, holding @ ..] => {
            return Ok(waits(*ask_in, record, holding, naming));
        }
        [Value::Int(1), granted, ..] => ScriptReply::Holds { counter: counter(granted)? },
        [Value::Int(2), granted, asked] => {
            // A foreign client may have written anything there; that costs no other lock its renewal.
            let grace = number(asked).map_or(Revoke::MAX_GRACE, Duration::from_millis).min(Revoke::MAX_GRACE);
            ScriptReply::Revoked { counter: counter(granted)?, grace }
        }
        [Value::Int(3), ..] => ScriptReply::Gone,
        [Value::Int(4)] => ScriptReply::HoldsOn,
        _ => return Err(wrong()),
    };
    Ok(Reply { answer, holder: None })
}

/// Reads the answer to a waiter: the record of the last grant, and the holder.
fn waits(ask_in: i64, record: &Value, holding: &[Value], naming: Naming) -> Reply {
    let record = GrantRecord::read(record);
    let answer = ScriptReply::Waits {
        seen: record.as_ref().map_or(0, |record| record.counter),
        ask_in: u64::try_from(ask_in).ok().map(Duration::from_millis),
        behind_foreign: matches!(holding, [_, Value::Int(1)]),
    };
    // The last grant may have been another's.
    let is_its =
        |record: &GrantRecord<'_>| matches!(holding, [Value::BulkString(id), ..] if id == record.owner);
    let mut holder = match holding {
        [_, share @ Value::BulkString(_)] => sharer(share, naming),
        [_, Value::Int(2)] => holder(record.filter(is_its), Naming { foreign: Naming::NOBODY, ..naming }),
        _ => holder(record.filter(is_its), naming),
    };
    // Free, behind more ended entries than one call drops.
    holder.foreign &= !matches!(holding, [] | [Value::Nil]);
    Reply { answer, holder: Some(holder) }
}

/// Reads the answers of `renew`, one for each of `entries`.
pub(crate) fn replies(value: &Value, entries: usize, naming: Naming) -> Result<Vec<Reply>> {
    each_of(value, entries, || error::unexpected("for a batch of entries"), |answer| reply(answer, naming))
}

/// The result of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Released {
    /// It was the holder's.
    pub(crate) held: bool,
    /// The lock is free, and waiters are behind more ended entries than one call drops.
    pub(crate) unswept: bool,
}

/// Reads the answer of `release`.
pub(crate) fn released(value: &Value) -> Result<Released> {
    match number(value) {
        Some(had @ 0..=6) => Ok(Released { held: had % 4 == 1, unswept: had >= 4 }),
        _ => Err(error::unexpected("to a release")),
    }
}

/// The call of `revoke`, without its last argument.
pub(crate) fn revoke(script: &'static Script, keys: &NameKeys, channels: &str, how: Revoke) -> Call {
    let mut call = script.operation("revoke", &keys.all());
    call.arg(channels);
    match how {
        Revoke::Ask { grace } => call.arg(grace.as_millis().to_string()),
        Revoke::Force => call.arg("force"),
    };
    call
}

/// The result of `revoke`.
#[derive(Debug, Default)]
pub(crate) struct Revoked {
    /// Each with the rest of its lease, if that ends.
    pub(crate) holders: Vec<Holder>,
    /// The lock is free, and waiters are behind more ended entries than one call drops.
    pub(crate) unswept: bool,
}

/// Reads the answer of `revoke`.
pub(crate) fn revoked(value: &Value, naming: Naming) -> Result<Revoked> {
    let wrong = || error::unexpected("to a revocation");
    let left = |left: i64| u64::try_from(left).ok().map(Duration::from_millis);
    match parts(value) {
        [Value::Int(0)] => Ok(Revoked::default()),
        [Value::Int(1), Value::Int(ttl), Value::Int(more), record @ ..] => {
            let mut holder = holder(record.first().and_then(GrantRecord::read), naming);
            holder.ttl = left(*ttl);
            Ok(Revoked { holders: vec![holder], unswept: *more == 1 })
        }
        [Value::Int(2), Value::Int(more), shares @ ..] => {
            let share = |share: &Value| {
                let [Value::Int(ttl), record] = parts(share) else { return Err(wrong()) };
                let mut holder = sharer(record, naming);
                holder.ttl = left(*ttl);
                Ok(holder)
            };
            let holders = shares.iter().map(share).collect::<Result<Vec<_>>>()?;
            Ok(Revoked { holders: sharers(holders.into_iter()), unswept: *more == 1 })
        }
        _ => Err(wrong()),
    }
}

/// The state of a name, by `inspect`.
#[derive(Debug)]
pub(crate) struct Shown {
    /// In order of arrival.
    pub(crate) holders: Vec<Holder>,
    pub(crate) waiting: usize,
}

/// Reads the answers of `inspect`, one for each name.
pub(crate) fn inspected(value: &Value, names: usize, naming: Naming) -> Result<Vec<Shown>> {
    let wrong = || error::unexpected("about a name");
    let one = |answer: &Value| {
        let [Value::Int(waiting), Value::Int(held @ 0..=2), records @ ..] = parts(answer) else {
            return Err(wrong());
        };
        let holders = match *held {
            0 => Vec::new(),
            1 => {
                let mut holder = holder(records.first().and_then(GrantRecord::read), naming);
                if let Some(Value::Int(left)) = records.first() {
                    holder.ttl = Some(u64::try_from(*left).map_or(Duration::MAX, Duration::from_millis));
                }
                vec![holder]
            }
            _ => sharers(records.iter().map(|record| sharer(record, naming))),
        };
        Ok(Shown { holders, waiting: usize::try_from(*waiting).map_err(|_| wrong())? })
    };
    each_of(value, names, wrong, one)
}

/// Reads `count` answers of one reply.
fn each_of<T>(
    value: &Value,
    count: usize,
    wrong: impl Fn() -> Error,
    read: impl Fn(&Value) -> Result<T>,
) -> Result<Vec<T>> {
    if parts(value).len() == count { parts(value).iter().map(read).collect() } else { Err(wrong()) }
}

/// The result of `admit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Known(KnownReign),
    /// The other managers have other terms: as the first argument of the script.
    OtherTerms(String),
    /// The server does not tell its reign.
    Unnamed,
}

/// The reign of a server, as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownReign {
    /// In microseconds of the server's clock.
    pub(crate) since: u64,
    /// When that was answered.
    pub(crate) now: u64,
    /// Its process, and what it is called since its promotion.
    pub(crate) reign: String,
    /// The slots that it had by then, if those were noted.
    pub(crate) slots: String,
}

/// Reads the answer of `admit`.
pub(crate) fn admission(value: &Value) -> Result<Admission> {
    let known = |since, now, reign, slots| {
        let (reign, slots) = (text(reign)?.to_owned(), text(slots)?.to_owned());
        Some(Admission::Known(KnownReign { since: number(since)?, now: number(now)?, reign, slots }))
    };
    match parts(value) {
        [Value::Int(1), since, now, reign, slots] => known(since, now, reign, slots),
        [Value::Int(0), terms] => text(terms).map(|terms| Admission::OtherTerms(terms.to_owned())),
        [Value::Int(2)] => Some(Admission::Unnamed),
        _ => None,
    }
    .ok_or_else(|| error::unexpected("about its reign"))
}

/// Leases as the server counts them.
pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A whole number as scripts write it, which is as text where it may be large.
pub(crate) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => text(value)?.parse().ok(),
    }
}

/// The answer of `TIME`.
pub(crate) fn micros(value: &Value) -> Result<u64> {
    let read = || {
        let [seconds, micros] = parts(value) else { return None };
        number(seconds)?.checked_mul(1_000_000)?.checked_add(number(micros)?)
    };
    read().ok_or_else(|| error::unexpected("to TIME"))
}

/// The parts of a reply; none if it is no array.
pub(crate) fn parts(value: &Value) -> &[Value] {
    match value {
        Value::Array(parts) => parts,
        _ => &[],
    }
}

pub(crate) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

/// A counter with the namespace's base, if a token can hold it.
///
/// # Errors
///
/// [`ErrorKind::Protocol`](leasehold_core::ErrorKind::Protocol).
pub(crate) fn counter(counter: u64, base: u64) -> Result<u64> {
    let counter = counter.checked_add(base).filter(|counter| *counter <= FencingToken::MAX_COUNTER);
    counter.ok_or_else(|| -> Error { error::unexpected("a counter beyond the largest token") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::backend::Mode;

    const OURS: Naming = Naming { base: 0, foreign: Naming::ANOTHER };

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    /// Each form of answer is read; a lease without end has no end.
    #[test]
    fn answers_are_read() {
        let waits = |left, record, holding| {
            Value::Array(vec![Value::Int(0), Value::Int(left), bulk(record), holding])
        };
        let (ours, ask_in) = ("7 id 1 inbox 2 me", Some(Duration::from_millis(30)));
        let answered = |left, record, holding: Value| {
            let Reply { answer, holder } = reply(&waits(left, record, holding.clone()), OURS).unwrap();
            let holder = holder.unwrap();
            assert_eq!(holder.foreign, holder.label != "me" && holding != Value::Nil);
            (answer, holder.label)
        };
        let waiting = |ask_in| ScriptReply::Waits { seen: 7, ask_in, behind_foreign: false };
        let (me, another) = (|| "me".to_owned(), || "another client".to_owned());
        assert_eq!(answered(30, ours, bulk("id")), (waiting(ask_in), me()));
        assert_eq!(answered(-1, ours, bulk("id")), (waiting(None), me()));
        assert_eq!(answered(30, ours, bulk("other")), (waiting(ask_in), another()));
        assert_eq!(answered(30, ours, Value::Nil), (waiting(ask_in), another()));
        // The text of a foreign client may be empty.
        assert_eq!(answered(30, ours, bulk("")), (waiting(ask_in), another()));
        let pauses = Value::Array(vec![Value::Int(0), Value::Int(30), bulk(ours), Value::Nil, Value::Int(2)]);
        let Reply { answer, holder } = reply(&pauses, OURS).unwrap();
        let holder = holder.unwrap();
        assert_eq!((answer, holder.label.as_str(), holder.foreign), (waiting(ask_in), Naming::NOBODY, false));
        assert_eq!(
            answered(30, "", bulk("id")),
            (ScriptReply::Waits { seen: 0, ask_in, behind_foreign: false }, another())
        );
        let holds = ScriptReply::Holds { counter: 1_795_219_022_957_972 };
        assert_eq!(reply(&Value::Int(1_795_219_022_957_972), OURS).unwrap().answer, holds);
        let shared = Value::Array(vec![
            Value::Int(0),
            Value::Int(30),
            bulk(ours),
            bulk("b"),
            bulk("2 5 6 b 1 inbox 3 you"),
        ]);
        let Reply { answer, holder } = reply(&shared, OURS).unwrap();
        let holder = holder.unwrap();
        assert_eq!((answer, holder.label.as_str()), (waiting(ask_in), "you"));
        assert_eq!((holder.mode, holder.token), (Mode::permits(2, 5).unwrap(), FencingToken::new(6, 0)));
        let renewed = Value::Array(vec![Value::Int(1), bulk("1795219022957972")]);
        assert_eq!(reply(&renewed, OURS).unwrap().answer, holds);
    }

    /// Holders that share a lock are shown in order of arrival, each with its mode; of one without a record nothing is
    /// known.
    #[test]
    fn sharers_are_read() {
        let records = ["1 4294967295 8 c 1 inbox 1 c", "2 5 6 b 1 inbox 1 b", "x", "0 0 9 d 1 inbox 1 d"];
        let shown = |holders: &[Holder]| -> Vec<_> {
            holders.iter().map(|holder| (holder.label.clone(), holder.mode.to_string())).collect()
        };
        let expected = [
            (Naming::ANOTHER, "exclusive"),
            (Naming::ANOTHER, "exclusive"),
            ("b", "2 of 5"),
            ("c", "shared"),
        ]
        .map(|(label, mode)| (label.to_owned(), mode.to_owned()));
        let head = [Value::Int(3), Value::Int(2)];
        let answer = Value::Array(head.into_iter().chain(records.map(bulk)).collect());
        let Shown { holders, waiting } = inspected(&Value::Array(vec![answer]), 1, OURS).unwrap().remove(0);
        assert_eq!((shown(&holders), waiting), (expected.to_vec(), 3));
        let head = [Value::Int(2), Value::Int(1)];
        let shares = records.map(|record| Value::Array(vec![Value::Int(700), bulk(record)]));
        let answer = Value::Array(head.into_iter().chain(shares).collect());
        let Revoked { holders, unswept } = revoked(&answer, OURS).unwrap();
        assert_eq!((shown(&holders), unswept), (expected.to_vec(), true));
        assert!(holders.iter().all(|holder| holder.ttl == Some(Duration::from_millis(700))));
    }

    /// Whether a release was the holder's, and whether it is to be repeated.
    #[test]
    fn releases_are_read() {
        for (had, held, unswept) in [
            (0, false, false),
            (1, true, false),
            (2, false, false),
            (4, false, true),
            (5, true, true),
            (6, false, true),
        ] {
            assert_eq!(released(&Value::Int(had)).unwrap(), Released { held, unswept });
        }
        assert!(released(&Value::Int(7)).is_err());
    }

    /// A counter that no token can hold is refused, and none wraps.
    #[test]
    fn counters_beyond_the_largest_token_are_refused() {
        assert_eq!(counter(1, 2).unwrap(), 3);
        assert!(counter(FencingToken::MAX_COUNTER, 1).is_err());
        assert!(counter(u64::MAX, u64::MAX).is_err());
    }
}
