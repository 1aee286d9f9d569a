//! The messages that scripts publish to an inbox. None is trusted: one of another form is ignored, and with a message key
//! one without its signature.
//!
//! A signature stands behind the number, so that a client without the key understands the rest.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::OwnerId;

use super::Script;

/// The argument of scripts about inboxes: the prefix of their channels and, behind a line feed, the message key if there is
/// one. Not shown.
pub(crate) struct Inboxes(String);

impl Inboxes {
    pub(crate) fn new(channels: &str, key: Option<&str>) -> Self {
        Self(key.map_or_else(|| channels.to_owned(), |key| format!("{channels}\n{key}")))
    }

    pub(crate) fn told(&self) -> &str {
        &self.0
    }

    pub(crate) fn key(&self) -> Option<&str> {
        Some(self.0.split_once('\n')?.1)
    }

    /// The mark by which other managers compare their key; it reveals no more of the key than a signature does.
    pub(crate) fn mark(&self) -> Option<String> {
        let (channels, key) = self.0.split_once('\n')?;
        Some(signed(key, channels))
    }
}

impl fmt::Debug for Inboxes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// A message in an inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) news: News,
    pub(crate) owner: OwnerId,
    /// The lock's key.
    pub(crate) lock: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// That entry has the lock.
    Granted { counter: u64 },
    /// The lock of that holder was revoked.
    Revoked,
    /// A server of a quorum can vote again, for an entry of that owner.
    Freed,
    /// The turn of that entry may come then without another message.
    Due { ask_in: Duration },
}

impl Message {
    /// Reads a message of a script; `None` for another text, and with a `key` for a message without its signature.
    pub(crate) fn parse(payload: &[u8], key: Option<&str>) -> Option<Self> {
        let mut words = std::str::from_utf8(payload).ok()?.splitn(4, ' ');
        let [news, id, number, lock] = [words.next()?, words.next()?, words.next()?, words.next()?];
        let (number, signature) = number.split_once('/').unwrap_or((number, ""));
        if key.is_some_and(|key| signature != signed(key, &[news, id, number, lock].join(" "))) {
            return None;
        }
        let (owner, number, lock) = (OwnerId::from_hex(id)?, number.parse().ok()?, lock.into());
        let news = match news {
            "granted" => News::Granted { counter: number },
            "due" => News::Due { ask_in: Duration::from_millis(number) },
            "revoked" => News::Revoked,
            "freed" => News::Freed,
            _ => return None,
        };
        Some(Self { news, owner, lock })
    }
}

/// Twice, as a hash of key and text alone could be continued.
fn signed(key: &str, message: &str) -> String {
    let hash = |text: &str| Script::hash_of(&[key, text].concat());
    hash(&hash(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message is read with a lock's key that has spaces, signed or not.
    #[test]
    fn messages_are_read() {
        let owner = OwnerId::from_random([7; 16]);
        let lock = || "p:{a b}".into();
        for payload in ["granted ID 42 p:{a b}", "granted ID 42/a83b p:{a b}"] {
            let message = Message::parse(payload.replace("ID", &owner.to_hex()).as_bytes(), None).unwrap();
            assert_eq!(message, Message { news: News::Granted { counter: 42 }, owner, lock: lock() });
        }
        for (payload, news) in [("revoked ID 5 p:{a b}", News::Revoked), ("freed ID 0 p:{a b}", News::Freed)]
        {
            let message = Message::parse(payload.replace("ID", &owner.to_hex()).as_bytes(), None).unwrap();
            assert_eq!(message, Message { news, owner, lock: lock() });
        }
        for other in ["", "granted", "granted x 1 k", "hello world 1 k", "granted 00 -1 k"] {
            assert_eq!(Message::parse(other.as_bytes(), None), None, "{other}");
        }
    }

    /// With a key, only what it has signed is read, whole.
    #[test]
    fn unsigned_messages_are_passed_over() {
        let inboxes = Inboxes::new("p:inbox:", Some("a secret of 16 b"));
        let key = inboxes.key().unwrap();
        let read = |payload: &str| Message::parse(payload.as_bytes(), Some(key)).is_some();
        let owner = OwnerId::from_random([7; 16]).to_hex();
        let signature = signed(key, &format!("granted {owner} 42 k"));
        assert!(read(&format!("granted {owner} 42/{signature} k")));
        for forged in [
            format!("granted {owner} 42 k"),
            format!("granted {owner} 43/{signature} k"),
            format!("revoked {owner} 42/{signature} k"),
            format!("granted {owner} 42/{signature} kk"),
            format!("granted {owner} 42/{} k", signed("another", &format!("granted {owner} 42 k"))),
        ] {
            assert!(!read(&forged), "{forged}");
        }
        assert_eq!(format!("{inboxes:?}"), "[redacted]");
    }
}
