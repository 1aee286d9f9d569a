//! The words of a contender: its requests and their answers, other events, and how it ends.

use crate::keys::{Listing, Next, Node};

/// Our node, as the server made it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Mine {
    pub(crate) node: Node,
    /// The transaction that created it.
    pub(crate) czxid: i64,
}

/// A request to the server. There is one answer to each. A request is repeated until it is answered, unless it says
/// "sent once".
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ask {
    /// Make the own node and list the directory in one flight, and make the directory if it is missing. Sent once.
    Enter,
    /// Make the own node only. With this number no contender has come since this session's hold or listing. Sent once.
    Return(Next),
    /// Search a node that this session made for the contender: a write, which is answered after all earlier requests, a
    /// listing, and a read of the node.
    Search,
    List,
    /// Watch a contender.
    Watch(String),
    /// Watch the own node; other watches stay. Sent once.
    WatchOwn(Node),
    /// Check at the leader whether this contender is there; watches stay. Sent once.
    Confirm(String),
    Delete(Node),
    /// Delete our node and read the holder that blocks us, in one flight.
    GiveWay(Node, String),
    /// Remove the directory, if it is empty and this store made it. Sent once.
    RemoveDirectory,
}

impl Ask {
    /// Whether it is repeated until it is answered. Otherwise the contender decides what follows an unknown effect.
    pub(crate) fn is_asked_again(&self) -> bool {
        matches!(self, Self::Search | Self::List | Self::Watch(_) | Self::Delete(_) | Self::GiveWay(..))
    }
}

/// The length of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Pause {
    /// Before a request is repeated.
    Brief,
    /// As long as a request may take.
    Request,
}

/// The answer to a request.
pub(crate) type Answer = Result<Said, Failure>;

/// An answer of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Said {
    /// Our node is made or found, with the listing if that was answered, too.
    Made(Mine, Option<Listing>),
    /// Our node is made in the directory of the prediction, which was not removed in between.
    Back(Mine),
    Listed(Listing),
    /// The contender is there. If it `passes`, a change of its node passes the lock on.
    Watched {
        passes: bool,
    },
    /// The own node is gone.
    Removed,
    /// The answer to all other requests; to a search: the contender has no node.
    Done,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Failure {
    /// There is no such node, or no such directory.
    Absent,
    /// The server refused the request, and did nothing.
    Refused,
    /// The session has ended, and its nodes with it.
    SessionOver,
    /// The request may have been carried out, or may succeed in a moment.
    Unknown,
}

/// An event that is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Happening {
    /// The watched contender was deleted.
    Ended,
    /// It was written.
    Changed,
    /// Another client deleted our own node.
    Removed,
    /// Our own node has stood for a while, and is not watched.
    Stands,
    /// The connection was lost and made again, or a watch has reported something that proves nothing.
    Reconnected,
    /// Nothing has happened for longer than a session lasts.
    Overdue,
    /// The caller has left.
    Abandoned,
}

/// The next action.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    Ask(Ask),
    /// Pause before the request.
    Rest(Pause, Ask),
    /// Wait for the pending answer, or for an event.
    Wait,
    End(End),
}

/// How an acquisition ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum End {
    Held(Mine),
    /// This contender is first.
    Busy(String),
    /// Abandoned, and nothing is left.
    Left,
    /// The server refused, and nothing is left.
    Refused,
    /// The directory's numbers are near their end, as this contender shows. Nothing is left.
    WornOut(String),
    /// The own node is gone, or was never made.
    Lost,
    /// The session has ended, or its state cannot be known.
    SessionOver,
}
