//! What scripts publish to an inbox. Nothing of it is trusted: what is not understood is passed over.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{OwnerId, Revoke};

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
    /// That holder is to let go within the grace, or has lost the lock by force.
    Revoked { grace: Duration },
    /// The turn of that entry may come then without another message.
    Due { ask_in: Duration },
}

impl Message {
    /// Reads what a script published; `None` for anything else.
    pub(crate) fn parse(payload: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(payload).ok()?.splitn(4, ' ');
        let (news, owner) = (words.next()?, OwnerId::from_hex(words.next()?)?);
        let (number, lock) = (words.next()?.parse().ok()?, words.next()?.into());
        let news = match news {
            "granted" => News::Granted { counter: number },
            "due" => News::Due { ask_in: Duration::from_millis(number) },
            "revoked" => News::Revoked { grace: grace(number) },
            _ => return None,
        };
        Some(Self { news, owner, lock })
    }
}

/// What a holder is told of its grace. A revoker of an earlier version, which gives none, says the counter
/// instead, which is above every grace.
pub(super) fn grace(millis: u64) -> Duration {
    Some(Duration::from_millis(millis)).filter(|grace| *grace <= Revoke::MAX_GRACE).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message is read with a lock's key that has spaces.
    #[test]
    fn messages_are_read() {
        let owner = OwnerId::from_random([7; 16]);
        let payload = format!("granted {} 42 p:{{a b}}", owner.to_hex());
        let message = Message::parse(payload.as_bytes()).unwrap();
        let news = News::Granted { counter: 42 };
        assert_eq!(message, Message { news, owner, lock: "p:{a b}".into() });
        for (number, grace) in [(0, 0), (86_400_000, 86_400_000), (86_400_001, 0), (u64::MAX, 0)] {
            let payload = format!("revoked {} {number} p:{{a b}}", owner.to_hex());
            let grace = Duration::from_millis(grace);
            assert_eq!(Message::parse(payload.as_bytes()).unwrap().news, News::Revoked { grace });
        }
        for other in ["", "granted", "granted x 1 k", "hello world 1 k", "granted 00 -1 k"] {
            assert_eq!(Message::parse(other.as_bytes()), None, "{other}");
        }
    }
}
