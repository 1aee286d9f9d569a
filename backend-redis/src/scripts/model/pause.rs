//! The scripts after a restart of the server that may have lost holders.

use super::{Entry, First, Message, Server};

/// The run of the server in which the key was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) run: u64,
    /// When a manager first connected to it, in microseconds.
    pub(crate) since: u64,
}

impl Origin {
    /// A manager connects to that run of the server, where `known` is written; returns since when the run is known.
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
        let left = self.over.paused_until?.saturating_sub(now).div_ceil(1000);
        (left > 0).then_some(left)
    }

    /// The holder releases while nothing is granted: the first waiter gets a message when that is over.
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
