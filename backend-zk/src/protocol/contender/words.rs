//! What a contender says and hears: requests and their answers, what happens besides, how it ends.

use crate::keys::{Listing, Node};

/// Our node, as the server made it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Mine {
    pub(crate) node: Node,
    /// The transaction that created it.
    pub(crate) czxid: i64,
}

/// What to ask the server; there is one answer to each. What can be asked again is, until it is answered,
/// unless it says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ask {
    /// Make our node and list the directory, in one flight; that too, if it is missing. Asked once.
    Enter,
    /// Make our node, and no more: since our hold or our listing there may have been no other contender in the directory that
    /// this transaction made. Asked once.
    Return(i64),
    /// Is there a node of ours, made by this session? A write, which is answered after whatever was sent before
    /// it; then a listing, and a look at the node.
    Search,
    List,
    /// Tell what becomes of a contender.
    Watch(String),
    /// Tell of the end of our own node. What is watched stays so. Asked once.
    WatchOwn(Node),
    /// Whether this contender is there, by the word of the leader. What is watched stays so. Asked once.
    Confirm(String),
    Delete(Node),
    /// Delete our node, and read who keeps us out, in one flight.
    GiveWay(Node, String),
    /// Remove the directory, if it is empty and ours. Asked once.
    RemoveDirectory,
}

impl Ask {
    /// Whether it is asked until it is answered; else the contender says what follows where nobody knows what
    /// came of it.
    pub(crate) fn is_asked_again(&self) -> bool {
        matches!(self, Self::Search | Self::List | Self::Watch(_) | Self::Delete(_) | Self::GiveWay(..))
    }
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
    /// Our node is made, or found; with the listing, if that was answered, too.
    Made(Mine, Option<Listing>),
    /// Our node is made in the directory that was meant, which was not removed in between.
    Back(Mine),
    Listed(Listing),
    /// The contender is there, and a change of it is its passing on, if it `passes`.
    Watched {
        passes: bool,
    },
    /// Our own node is gone.
    Removed,
    /// To everything else; there is no node of ours.
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
    /// It was written.
    Changed,
    /// Our own node was deleted, by somebody else.
    Removed,
    /// Our own node has stood for a while, and is not watched.
    Stands,
    /// The connection was lost and made again; or something else is told of that says nothing certain.
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
