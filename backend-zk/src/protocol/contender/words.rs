//! What a contender says and hears: requests and their answers, what happens besides, how it ends.

use crate::keys::{Listing, Node};

/// Our node, as the server made it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Mine {
    pub(crate) node: Node,
    /// The transaction that created it.
    pub(crate) czxid: i64,
}

/// What to ask the server; there is one answer to each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ask {
    /// Make our node and list the directory, in one flight.
    Enter,
    /// Make the directory and what is above it.
    MakeDirectory,
    /// A write that is answered after whatever was sent before it.
    Barrier,
    List,
    /// Whose a node is.
    Look(Node),
    /// Tell of the end of a contender, and of our own node's if its end decides; in this order, so
    /// that ours was there when the other one was seen.
    Watch {
        predecessor: String,
        own: Option<Node>,
    },
    Delete(Node),
    /// Remove the directory, if it is empty and ours.
    RemoveDirectory,
    /// Whether this contender is there, by the word of the leader. What is watched stays so.
    Confirm(String),
}

/// How long to rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Pause {
    /// Before a request is repeated.
    Brief,
    /// As long as a request may take.
    Request,
}

/// What came of what was asked.
pub(crate) type Answer = Result<Said, Failure>;

/// What a server says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Said {
    /// Our node is made; with the listing, if that was answered, too.
    Made(Mine, Option<Listing>),
    Listed(Listing),
    /// Whose a node is.
    Owned {
        session: i64,
        czxid: i64,
    },
    /// The contender ahead, which was to be watched, is gone. Of our own node that is a failure.
    NobodyAhead,
    /// To everything else.
    Done,
}

/// Why a request did not do what it was to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Failure {
    /// There is no such node, or no such directory.
    Absent,
    /// The server did nothing, and will not.
    Refused,
    /// The session has ended, and with it what it made.
    SessionOver,
    /// It may have been done, or can be done in a moment.
    Unknown,
}

/// What happens besides answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Happening {
    /// The watched contender was deleted.
    Ended,
    /// Something else happened to it, or to our node.
    Changed,
    /// Our own node was deleted, by somebody else.
    Removed,
    /// The connection was lost and made again.
    Reconnected,
    /// Nothing has happened for longer than a session lasts.
    Overdue,
    /// Nobody wants the lock any more.
    Abandoned,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    Ask(Ask),
    /// Let time pass, and ask then.
    Rest(Pause, Ask),
    /// Wait for the answer that is out, or for what happens.
    Wait,
    End(End),
}

/// How an acquisition ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum End {
    Held(Mine),
    /// Somebody else is first: this contender.
    Busy(String),
    /// Abandoned, and nothing is left.
    Left,
    /// The server refused, and nothing is left.
    Refused,
    /// The directory's numbers are near their end, as this contender shows, and nothing is left.
    WornOut(String),
    /// Our node is gone, or was never made.
    Lost,
    /// The session is over, or can tell nothing certain any more.
    SessionOver,
}
