//! The two ways through the proxy and what is counted on them.

/// Which way bytes flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a connection has two directions")]
pub enum Direction {
    /// Requests.
    ClientToServer,
    /// Replies.
    ServerToClient,
}

impl Direction {
    /// Both of them.
    pub const BOTH: [Self; 2] = [Self::ClientToServer, Self::ServerToClient];
}

/// What has happened in one direction, over all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Bytes handed to the receivers' kernels since the start.
    pub forwarded: u64,
    /// Frames that [`Mode::Hold`](super::Mode::Hold) holds at this moment.
    pub held: usize,
    /// Frames dropped since the start.
    pub dropped: u64,
}
