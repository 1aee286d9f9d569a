//! A process that contends for the name, with one request in flight, and the steps that are possible.

use ::model::Held;
use leasehold_core::Mode;

use super::super::*;
use super::server::{Grant, SessionRow, Tables};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) book: SessionBook,
    pub(super) contender: Option<Contender>,
    pub(super) mode: Mode,
    pub(super) owner: u8,
    pub(super) wants: u8,
    pub(super) held: Option<Held>,
    /// The number, and the owner, of a hold that is being released.
    pub(super) releasing: Option<Seq>,
    pub(super) on: Generation,
    /// The last past that a renewal or `mine` told.
    pub(super) past: i64,
    /// Removals that it was told of.
    pub(super) gone: Vec<Seq>,
    pub(super) request: Option<Request>,
    pub(super) reply: Option<Reply>,
    /// The lease that it trusts; `None` once its deadline has passed.
    pub(super) trusts: Option<u8>,
    pub(super) renewal: Option<Renewing>,
    pub(super) renewals: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Renewing {
    /// The server has locked the row.
    Begun,
    Done {
        row: SessionRow,
        past: i64,
    },
    /// `standing` is sent, with the entries that the book has.
    Asks {
        taken: i32,
        known: Vec<Seq>,
        are_all: bool,
    },
    Shows {
        taken: i32,
        gone: Vec<Seq>,
        are_all: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Request {
    pub(super) what: What,
    pub(super) on: Generation,
    /// The tables as its snapshot shows them, once it has one.
    pub(super) seen: Option<Tables>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum What {
    Acquire { epoch: i32, owner: u8, low: Seq },
    Flush,
    Release(Seq, Seq),
    Abandon(u8),
    Mine,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reply {
    Acquired(Grant, u8, Generation),
    Refused,
    Flushed(Generation),
    Released(Seq),
    Abandoned,
    Mine(i32, i64, Vec<Seq>, Generation),
    SessionIsOver,
}

/// Who does what.
#[derive(Clone, Copy, Debug)]
pub(super) enum Choice {
    Begins(usize),
    Drives(usize),
    Leaves(usize),
    Releases(usize),
    Starts(usize),
    Commits(usize),
    Hears(usize),
    Renews(usize),
    GivesUp(usize),
    Delivers(usize),
    Loses(usize),
    CarriesOutAnOrphan,
    Cuts(usize),
    Expires(usize),
    Crashes(usize),
    Ships,
    Promotes,
    Upgrades,
    ComesBack,
    Revokes,
    Forges(usize),
    Fences(usize),
    EndsFence,
}
