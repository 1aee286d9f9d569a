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

/// To which run of the server it leads, and until when nothing is to be granted over it, if the server pauses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Connection {
    pub(crate) run: u64,
    pub(crate) paused_until: Option<u64>,
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
        /// The run of the server that sent it.
        run: u64,
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
