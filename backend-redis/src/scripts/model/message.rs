//! What travels between the contenders and the model of the scripts.

use leasehold_core::backend::Mode;

use super::Owner;
use crate::protocol::ScriptReply;

/// The arguments of a caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub(crate) owner: Owner,
    pub(crate) client: usize,
    /// In milliseconds.
    pub(crate) ttl: u64,
    pub(crate) mode: Mode,
}

impl Asker {
    pub(crate) fn new(owner: Owner, client: usize, ttl: u64) -> Self {
        Self { owner, client, ttl, mode: Mode::EXCLUSIVE }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Acquire,
    Refresh,
    Release,
}

/// To which reign of which server it leads; and in microseconds, if the server pauses, until when nothing is to be granted over
/// it, and until when the primary before may go on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Connection {
    pub(crate) reign: u64,
    pub(crate) paused_until: Option<u64>,
    pub(crate) lag_until: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Message {
    Request {
        client: usize,
        owner: Owner,
        request: Request,
        sent_at: u64,
        over: Connection,
    },
    Reply {
        client: usize,
        owner: Owner,
        answer: ScriptReply,
        sent_at: u64,
    },
    Released {
        client: usize,
        owner: Owner,
    },
    Push {
        client: usize,
        owner: Owner,
        counter: u64,
        /// The reign in which it was sent.
        reign: u64,
    },
    Revoked {
        client: usize,
        owner: Owner,
        grace: u64,
    },
    Due {
        client: usize,
        owner: Owner,
        ask_in: u64,
    },
    /// The message of foreign clients about a free lock.
    Signal,
}

impl Message {
    pub(crate) fn client(&self) -> usize {
        match self {
            Self::Request { client, .. }
            | Self::Reply { client, .. }
            | Self::Released { client, .. }
            | Self::Push { client, .. }
            | Self::Revoked { client, .. }
            | Self::Due { client, .. } => *client,
            Self::Signal => usize::MAX,
        }
    }

    pub(crate) fn is_request(&self) -> bool {
        matches!(self, Self::Request { .. })
    }
}
