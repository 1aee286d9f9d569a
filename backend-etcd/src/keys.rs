//! Names of keys, and their values; pure.
//!
//! | key | holds |
//! |---|---|
//! | `PREFIX/enc(NAME)/LEASE`, `…/%shared/LEASE` | one contender of a lock, in the order of its creation: [`Slot`] |
//! | `PREFIX/%session/LEASE` | a session; its revision is the session's epoch |
//! | `PREFIX/%session/LEASE/REVISION` | the request that the session releases the entry created at REVISION, with a grace in milliseconds |
//! | `PREFIX/%token_base` | the number that is added to every counter |
//! | `PREFIX/%format` | how the rest is laid out, if not as here |
//! | `PREFIX/%move` | how far a move to another store is |
//! | `PREFIX/%members/OWNER` | a participant of the move |
//!
//! Numbers are lower-case hexadecimal, as other clients of etcd write lease ids.
//!
//! # Invariants
//! - **etcd.keys-1** `enc` is injective and leaves no `/`, so no key belongs to two names (G10). In an encoded name each `%`
//!   is followed by two digits.

use std::borrow::Cow;
use std::time::Duration;

use leasehold_core::backend::{AcquireRequest, Holder, Revoke};
use leasehold_core::{Error, ErrorKind, LockName, Mode, OwnerId, Result};

use crate::protocol::{AFTER_SHARED, Key, Revision, SHARED, Slot, mode_of};

/// The keys of one namespace.
#[derive(Clone, Debug)]
pub(crate) struct Keyspace {
    root: String,
}

/// The keys of one lock, as one session sees them.
#[derive(Clone, Debug)]
pub(crate) struct LockKeys {
    /// The prefix of all contenders' keys.
    pub(crate) queue: Vec<u8>,
    /// The session's own entry.
    pub(crate) own: Vec<u8>,
    pub(crate) slot: Slot,
}

impl LockKeys {
    /// The two ranges of the entries that do not share.
    pub(crate) fn who_do_not_share(&self) -> [(Vec<u8>, Vec<u8>); 2] {
        let at = |place: &str| [&self.queue, place.as_bytes()].concat();
        [(self.queue.clone(), at(SHARED)), (at(AFTER_SHARED), end_of(&self.queue))]
    }

    /// The prefix of the entries with the same mode, if that mode has one.
    pub(crate) fn who_are_alike(&self) -> &[u8] {
        let last = self.own.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        self.own.get(..last).unwrap_or_default()
    }
}

/// The range of a watch: one key, or those from it to before another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Range {
    pub(crate) key: Box<[u8]>,
    pub(crate) end: Option<Box<[u8]>>,
    pub(crate) of: Of,
}

/// Which changes of a range are reported, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Of {
    /// Deletions in a queue, as long as it is used.
    Queue,
    /// The same of one contender, whose queue's prefix is the first so many bytes of the key.
    Rival(usize),
    /// Deletions of an own entry, until it is released.
    Entry,
    /// Every change, until the session ends.
    Session,
}

impl Range {
    /// The keys that begin with `prefix`.
    pub(crate) fn all(prefix: &[u8]) -> Self {
        Self { key: prefix.into(), end: Some(end_of(prefix).into()), of: Of::Queue }
    }

    pub(crate) fn rival(queue: &[u8], key: Key) -> Self {
        Self { key, end: None, of: Of::Rival(queue.len()) }
    }

    /// The queue of the range, and the contender's key if it is one contender's.
    pub(crate) fn place(&self) -> Option<(&[u8], Option<&Key>)> {
        match self.of {
            Of::Queue => Some((&self.key, None)),
            Of::Rival(queue) => Some((self.key.get(..queue)?, Some(&self.key))),
            Of::Entry | Of::Session => None,
        }
    }

    pub(crate) fn entry(key: &[u8]) -> Self {
        Self { key: key.into(), end: None, of: Of::Entry }
    }

    pub(crate) fn session(key: &[u8], end: Vec<u8>) -> Self {
        Self { key: key.into(), end: Some(end.into()), of: Of::Session }
    }
}

impl Keyspace {
    pub(crate) fn new(prefix: &str) -> Self {
        let root = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Self { root }
    }

    pub(crate) fn lock(&self, name: &LockName, slot: Slot, lease: i64) -> LockKeys {
        let queue = self.queue(name);
        let own = [queue.as_slice(), slot.path(lease).as_bytes()].concat();
        LockKeys { queue, own, slot }
    }

    pub(crate) fn queue(&self, name: &LockName) -> Vec<u8> {
        [&self.root, &*escape(name.as_str(), SLASH), "/"].concat().into_bytes()
    }

    /// The prefix of the keys of all names that begin with `prefix`.
    pub(crate) fn names(&self, prefix: &str) -> Vec<u8> {
        [&self.root, &*escape(prefix, SLASH)].concat().into_bytes()
    }

    /// The lock of a contender's key; `None` for any other key.
    pub(crate) fn name_of(&self, key: &[u8]) -> Option<LockName> {
        let (name, _contender) = self.split(key)?;
        LockName::new(unescape(name, SLASH)?).ok()
    }

    /// The lock and slot of an entry of the session with that lease; `None` for any other key.
    pub(crate) fn entry_of(&self, key: &[u8], lease: i64) -> Option<(LockName, Slot)> {
        let slot = Slot::of(self.split(key)?.1, lease)?;
        Some((self.name_of(key)?, slot))
    }

    /// The mode of a contender's key.
    pub(crate) fn mode_of(&self, key: &[u8]) -> Mode {
        self.split(key).map_or(Mode::EXCLUSIVE, |(_name, contender)| mode_of(contender.as_bytes()))
    }

    /// The encoded name, and the rest after it.
    fn split<'a>(&self, key: &'a [u8]) -> Option<(&'a str, &'a str)> {
        std::str::from_utf8(key).ok()?.strip_prefix(&self.root)?.split_once('/')
    }

    pub(crate) fn session(&self, lease: i64) -> Vec<u8> {
        format!("{}%session/{lease:x}", self.root).into_bytes()
    }

    /// The value of the key of a session that takes part in a move.
    pub(crate) const MOVES: &str = "moves";

    /// The range of the keys of all sessions and their inboxes.
    pub(crate) fn sessions(&self) -> (Vec<u8>, Vec<u8>) {
        let bound = |after| format!("{}%session{after}", self.root).into_bytes();
        (bound('/'), bound('0'))
    }

    /// The lease of a session's key; `None` for any other key.
    pub(crate) fn lease_of(&self, key: &[u8]) -> Option<i64> {
        let sessions = format!("{}%session/", self.root);
        i64::from_str_radix(std::str::from_utf8(key).ok()?.strip_prefix(&sessions)?, 16).ok()
    }

    /// The end of the range that holds a session's key and its inbox, and nothing else: `0` comes
    /// right after `/`.
    pub(crate) fn session_end(&self, lease: i64) -> Vec<u8> {
        format!("{}%session/{lease:x}0", self.root).into_bytes()
    }

    pub(crate) fn inbox(&self, lease: i64, create: Revision) -> Vec<u8> {
        format!("{}%session/{lease:x}/{create:x}", self.root).into_bytes()
    }

    /// The entry that a message in the inbox of `lease` is about.
    pub(crate) fn asked_for(&self, lease: i64, key: &[u8]) -> Option<Revision> {
        let inbox = format!("{}%session/{lease:x}/", self.root);
        let create = std::str::from_utf8(key).ok()?.strip_prefix(&inbox)?;
        Revision::from_str_radix(create, 16).ok()
    }

    pub(crate) fn token_base(&self) -> Vec<u8> {
        format!("{}%token_base", self.root).into_bytes()
    }

    pub(crate) fn format(&self) -> Vec<u8> {
        format!("{}%format", self.root).into_bytes()
    }

    pub(crate) fn record(&self) -> Vec<u8> {
        format!("{}%move", self.root).into_bytes()
    }

    /// The prefix of the keys of participants.
    pub(crate) fn members(&self) -> Vec<u8> {
        format!("{}%members/", self.root).into_bytes()
    }

    pub(crate) fn member(&self, id: OwnerId) -> Vec<u8> {
        format!("{}%members/{}", self.root, id.to_hex()).into_bytes()
    }

    /// A key that is never written.
    pub(crate) fn probe(&self) -> Vec<u8> {
        format!("{}%probe", self.root).into_bytes()
    }
}

/// The value of a contender's key. Foreign clients leave theirs empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HolderNote {
    pub(crate) owner: OwnerId,
    pub(crate) ttl: Duration,
    pub(crate) label: String,
    pub(crate) metadata: Option<String>,
}

impl HolderNote {
    pub(crate) fn new(request: &AcquireRequest, ttl: Duration) -> Self {
        let metadata = request.metadata.as_deref().map(str::to_owned);
        Self { owner: request.owner, ttl, label: request.label.as_ref().to_owned(), metadata }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let (owner, ttl, label) = (self.owner.to_hex(), self.ttl.as_millis(), escape(&self.label, NEWLINE));
        let mut lines = format!("{FORMAT}\n{owner}\n{ttl}\n{label}");
        if let Some(metadata) = &self.metadata {
            lines.extend(["\n", &*escape(metadata, NEWLINE)]);
        }
        lines.into_bytes()
    }

    /// Reads the text of [`HolderNote::to_bytes`], also of a later version, whose further lines are ignored; `None` for
    /// anything else.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut lines = std::str::from_utf8(bytes).ok()?.split('\n');
        if lines.next()? != FORMAT {
            return None;
        }
        let owner = OwnerId::from_hex(lines.next()?)?;
        let ttl = Duration::from_millis(lines.next()?.parse().ok()?);
        let label = unescape(lines.next()?, NEWLINE)?;
        let metadata = match lines.next() {
            Some(line) => Some(unescape(line, NEWLINE)?),
            None => None,
        };
        Some(Self { owner, ttl, label, metadata })
    }
}

/// The holder of an entry, with the label of its record; of a foreign client with its key.
pub(crate) fn holder(key: &[u8], value: &[u8], counter: u64) -> Holder {
    let Some(record) = HolderNote::from_bytes(value) else {
        let holder = Holder::new(format!("etcd key {}", String::from_utf8_lossy(key)));
        return holder.with_counter(counter).of_foreign_client();
    };
    let mut holder = Holder::new(record.label).with_counter(counter);
    holder.metadata = record.metadata;
    holder.ttl = Some(record.ttl);
    holder
}

/// The value of a message in an inbox.
pub(crate) fn message(grace: Duration) -> String {
    grace.as_millis().to_string()
}

/// The grace of a message. A value that is no number means none.
pub(crate) fn grace_of(message: &[u8]) -> Duration {
    let millis = std::str::from_utf8(message).ok().and_then(|text| text.parse().ok());
    Duration::from_millis(millis.unwrap_or(0)).min(Revoke::MAX_GRACE)
}

/// Refuses a namespace of another format. Without a key for it a namespace has the first format.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`], which names the format.
pub(crate) fn understood(stored: Option<&[u8]>) -> Result<()> {
    let text = String::from_utf8_lossy(stored.unwrap_or(b"1"));
    if text == "1" {
        return Ok(());
    }
    let refused = format!("the namespace has format {text:?}, but this version reads format 1");
    Err(Error::not_applied(ErrorKind::Unsupported, refused))
}

/// Reads the token base.
pub(crate) fn base(stored: Option<&[u8]>) -> Result<u64> {
    let text = String::from_utf8_lossy(stored.unwrap_or(b"0"));
    let message = || format!("invalid token_base {text:?}: expected a number");
    text.trim().parse().map_err(|_| Error::not_applied(ErrorKind::Protocol, message()))
}

/// The first key after all that begin with `prefix`; for an empty one, the value that etcd reads as no end.
pub(crate) fn end_of(prefix: &[u8]) -> Vec<u8> {
    let Some(last) = prefix.iter().rposition(|byte| *byte < u8::MAX) else {
        return vec![0];
    };
    [&prefix[..last], &[prefix[last] + 1]].concat()
}

/// A special character, and how it is written in a text.
type Escape = (&'static str, &'static str);

const SLASH: Escape = ("/", "%2F");
const NEWLINE: Escape = ("\n", "%0A");

fn escape<'a>(text: &'a str, (special, written): Escape) -> Cow<'a, str> {
    // Most have nothing to escape.
    match text.contains('%') || text.contains(special) {
        true => text.replace('%', "%25").replace(special, written).into(),
        false => text.into(),
    }
}

/// Reverts [`escape`]; `None` for a text that it does not write.
fn unescape(text: &str, (special, written): Escape) -> Option<String> {
    let plain = text.replace(written, special).replace("%25", "%");
    (escape(&plain, (special, written)) == text).then_some(plain)
}

/// The first line of every record, with its version.
const FORMAT: &str = "leasehold 1";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(name: &str) -> LockName {
        LockName::new(name).unwrap()
    }

    /// A name without special characters is the lock that `etcdctl lock PREFIX/NAME` takes.
    #[test]
    fn plain_names_are_shared_with_other_clients() {
        let keys = Keyspace::new("leasehold").lock(&name("nightly"), Slot::first(Mode::EXCLUSIVE), 0x1a);
        assert_eq!(&*keys.queue, b"leasehold/nightly/");
        assert_eq!(keys.own, b"leasehold/nightly/1a");
    }

    #[test]
    fn ranges_tell_who_shares() {
        let keys = Keyspace::new("p");
        let own = |mode, number| keys.lock(&name("n"), Slot { mode, number }, 0x1a);
        let reader = own(Mode::SHARED, 1);
        let bounds = reader.who_do_not_share();
        let lies_there =
            |key: &[u8]| bounds.iter().any(|(from, to)| from.as_slice() <= key && key < to.as_slice());
        assert!(!lies_there(&reader.own) && !lies_there(&own(Mode::SHARED, 0).own));
        for mode in [Mode::EXCLUSIVE, Mode::permits(1, 2).unwrap(), Mode::permits(8, 9).unwrap()] {
            assert!(lies_there(&own(mode, 0).own), "{mode}");
        }
        assert!(lies_there(b"p/n/zz") && !lies_there(b"p/m/1") && !lies_there(b"p/n0"));
        assert_eq!(own(Mode::permits(1, 20).unwrap(), 3).who_are_alike(), b"p/n/%1of20/");
    }

    /// A key that a server reports for the wrong queue is in none.
    #[test]
    fn rivals_are_in_the_queue() {
        let place = |key: &[u8]| Range::rival(b"p/n/", key.into()).place().map(|(queue, _)| queue.to_vec());
        assert_eq!(place(b"p/n/1a"), Some(b"p/n/".to_vec()));
        assert_eq!(place(b"p/n"), None);
    }

    #[test]
    fn sessions_do_not_meet() {
        let keys = Keyspace::new("p");
        let (from, to) = (keys.session(0x1a), keys.session_end(0x1a));
        let inside = |key: &[u8]| from.as_slice() <= key && key < to.as_slice();
        assert!(inside(&keys.session(0x1a)) && inside(&keys.inbox(0x1a, 7)));
        for other in [0x1, 0x1a0, 0x1aa, 0x1b, 0x1a_9999] {
            assert!(!inside(&keys.session(other)) && !inside(&keys.inbox(other, 7)), "{other:x}");
        }
        assert_eq!(keys.asked_for(0x1a, &keys.inbox(0x1a, 77)), Some(77));
        assert_eq!(keys.asked_for(0x1a, &keys.session(0x1a)), None);
    }

    #[test]
    fn sessions_are_told_from_their_inboxes() {
        let keys = Keyspace::new("p");
        let (from, to) = keys.sessions();
        for lease in [1, 0x1a, i64::MAX] {
            for (key, is) in [(keys.session(lease), Some(lease)), (keys.inbox(lease, 7), None)] {
                assert!(from <= key && key < to);
                assert_eq!(keys.lease_of(&key), is);
            }
        }
        assert_eq!(keys.lease_of(&keys.token_base()), None);
        assert!(keys.token_base() >= to);
    }

    #[test]
    fn other_keys_are_nobodys() {
        let keys = Keyspace::new("p");
        for key in [
            "p/%session/1a",
            "p/%token_base",
            "p/%move",
            "p/%members/1a",
            "p/a",
            "q/a/1",
            "p/a%2f/1",
            "p/a%/1",
            "p//1",
        ] {
            assert_eq!(keys.name_of(key.as_bytes()), None, "{key}");
        }
        assert_eq!(keys.name_of(&[b'p', b'/', 0xff, b'/', b'1']), None);
        assert_eq!(Keyspace::new("").name_of(b"a/1"), Some(name("a")));
    }

    #[test]
    fn foreign_values_are_no_records() {
        for value in ["", "leasehold 1", "leasehold 2\nx", "leasehold 1\nnohex\n1\nl"] {
            assert_eq!(HolderNote::from_bytes(value.as_bytes()), None, "{value:?}");
        }
        // Only escapes that we write are read.
        let owner = OwnerId::from_random([7; 16]).to_hex();
        for (label, is_ours) in
            [("a%25b", true), ("a%0Ab", true), ("a%2Fb", false), ("a%zz", false), ("a%", false)]
        {
            let record = HolderNote::from_bytes(format!("leasehold 1\n{owner}\n3000\n{label}").as_bytes());
            assert_eq!(record.is_some(), is_ours, "{label}");
        }
        let theirs = holder(b"p/a/1a", b"", 7);
        assert!(theirs.foreign && theirs.label.contains("p/a/1a"));
        assert!(!holder(b"p/a/1a", format!("leasehold 1\n{owner}\n3000\na").as_bytes(), 7).foreign);
    }

    #[test]
    fn further_lines_are_passed_over() {
        let owner = OwnerId::from_random([7; 16]);
        let record = HolderNote {
            owner,
            ttl: Duration::from_secs(3),
            label: "l".to_owned(),
            metadata: Some("m".to_owned()),
        };
        let mut bytes = record.to_bytes();
        bytes.extend_from_slice(b"\n1700000000000\nmore");
        assert_eq!(HolderNote::from_bytes(&bytes), Some(record));
    }

    #[test]
    fn messages_carry_a_grace() {
        for grace in [Duration::ZERO, Duration::from_millis(1), Revoke::MAX_GRACE] {
            assert_eq!(grace_of(message(grace).as_bytes()), grace);
        }
        assert_eq!(message(Duration::from_secs(2)), "2000");
        for (foreign, millis) in [
            ("", 0),
            ("x", 0),
            ("-1", 0),
            ("1.5", 0),
            ("2000 ", 0),
            ("99999999999999999999999", 0),
            ("86400001", 86_400_000),
        ] {
            assert_eq!(grace_of(foreign.as_bytes()), Duration::from_millis(millis), "{foreign:?}");
        }
        assert_eq!(grace_of(&[0xff]), Duration::ZERO);
    }

    proptest! {
        /// etcd.keys-1, and what is written can be read.
        #[test]
        fn names_come_back_and_stay_apart(a in "[a/%.0-9F ]{1,12}", b in "[a/%.0-9F ]{1,12}") {
            let keys = Keyspace::new("p");
            let (ka, kb) = (keys.queue(&name(&a)), keys.queue(&name(&b)));
            for mode in [Mode::EXCLUSIVE, Mode::SHARED] {
                let slot = Slot { mode, number: 0 };
                let own = keys.lock(&name(&a), slot, 1).own;
                prop_assert_eq!(keys.entry_of(&own, 1), Some((name(&a), slot)));
                prop_assert_eq!(keys.mode_of(&own), mode);
            }
            prop_assert!(a == b || !ka.starts_with(&kb));
            prop_assert_eq!(ka.starts_with(&keys.names(&b)), a.starts_with(&b));
        }

        /// Records carry every label and metadata.
        #[test]
        fn records_come_back(label in "\\PC*|.{0,9}\n.{0,9}%", metadata in proptest::option::of(".*|\n")) {
            let owner = OwnerId::from_random([7; 16]);
            let record = HolderNote { owner, ttl: Duration::from_millis(1500), label, metadata };
            prop_assert_eq!(HolderNote::from_bytes(&record.to_bytes()), Some(record));
        }
    }
}
