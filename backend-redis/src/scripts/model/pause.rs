//! What the scripts do after a restart of the server that may have lost who holds.

use super::{Entry, First, Message, Server};

/// What is known of the run of the server that wrote what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) run: u64,
    /// When somebody first came to it, in microseconds.
    pub(crate) since: u64,
}

impl Origin {
    /// Somebody comes to that run of the server, where `known` is written; since when it is known.
    pub(crate) fn admit(known: &mut Option<Self>, run: u64, now: u64) -> u64 {
        known.filter(|known| known.run == run && known.since <= now).map_or_else(
            || {
                *known = Some(Self { run, since: now });
                now
            },
            |known| known.since,
        )
    }
}

impl Server {
    /// For how many milliseconds nothing is granted.
    pub(super) fn pause(&self, now: u64) -> Option<u64> {
        let left = self.paused_until?.saturating_sub(now).div_ceil(1000);
        (left > 0).then_some(left)
    }

    /// The holder lets go while nothing is granted: who is first hears when that is over.
    pub(super) fn free_for_a_while(&mut self, now: u64, left: u64, pushes: &mut Vec<Message>) {
        self.free(pushes);
        self.revoked = None;
        self.forget_empty_keys();
        if let First::Is(owner) = self.first_live(now) {
            let Entry { client, .. } = self.entries[&owner];
            pushes.push(Message::Due { client, owner, ask_in: left });
        }
    }
}
