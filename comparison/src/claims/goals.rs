//! What budgets are held against, store by store, and why one may be out of reach there: what a lock does that a floor does
//! not, what was tried to do it for less, and what was left and why.
//!
//! What it comes to stands beside these words in each report, measured; the words have no figures.

use crate::implementation::{CALLS, SCRIPTS};

/// What differs by store.
#[derive(Debug)]
pub(super) struct Goals {
    pub(super) store: &'static str,
    /// How many times faster than which fair peer.
    pub(super) margin: Option<(f64, &'static str)>,
    /// Which share of the rate of our own scripts sent raw, and why not all of it.
    pub(super) queue: Option<(f64, &'static str)>,
    /// Which share of whose rate a free lock has.
    pub(super) of_the_floor: (f64, &'static str),
    /// Which share of whose rate many names on one client have.
    pub(super) names: Option<(f64, &'static str)>,
    /// How many microseconds of the client one cycle of those takes.
    pub(super) names_us: Option<f64>,
    /// Why a free lock is not as fast as the floor.
    pub(super) free: &'static str,
    /// What comes on top of the ttl, in seconds: the store's own expiry, and one second.
    pub(super) grace: f64,
}

/// Where no server knows who is first.
pub(super) const QUORUM: &str = "redis-quorum";

/// Whose releases may wait for the disk, too.
pub(super) const POSTGRES: &str = "postgres";

/// Which share of its floors' rates.
pub(super) const OF_POSTGRES: f64 = 0.9;

const NONE: Goals = Goals {
    store: "",
    margin: None,
    queue: None,
    of_the_floor: (0.95, "floor"),
    names: None,
    names_us: None,
    free: "",
    grace: 1.0,
};

pub(super) const GOALS: [Goals; 7] = [
    Goals { store: "memory", ..NONE },
    Goals {
        store: "file",
        of_the_floor: (0.9, CALLS),
        free: "The floor takes the kernel's lock, and that is all. Ours writes who holds and the next token, with a checksum, \
               before anybody is told, so that a holder that died is told from one that lives and no token is given twice: \
               more calls of the kernel, each of which costs what one of the floor's does. The same calls without our library \
               are the limit.",
        ..NONE
    },
    Goals {
        store: "redis",
        margin: Some((15.0, "redisson-fair")),
        of_the_floor: (0.95, SCRIPTS),
        names: Some((0.95, SCRIPTS)),
        names_us: Some(12.0),
        queue: Some((
            0.85,
            "The server does the same work for both. What is left is the client's: the \
             message that hands the lock over is read by its connection's reader, which wakes the task that waits, and a \
             lease is kept for it. Tried, and kept: one timer for all requests of a connection, and messages heard where \
             they arrive.",
        )),
        free: "The floor sets a key, counts, and deletes. A lock that serves in order looks in the same steps whether anybody \
               waits, keeps who holds and until when, and gives the next token. Tried, and kept: one path through the scripts \
               for a lock that is free, with two commands fewer, and one timer for all requests of a connection. The same scripts \
               without our library are the limit.",
        ..NONE
    },
    Goals {
        store: QUORUM,
        of_the_floor: (0.75, "floor"),
        free: "The floor sets a key at a majority and deletes it. Ours makes the same requests and more commands in them: each \
               server counts, keeps the largest number that it gave, looks whether anybody waits, and is asked to forget by \
               all. Tried, and kept: one path through the scripts for a lock that is free, requests that are driven by their \
               caller instead of a task for each server, and one timer for all; six commands instead of \
               nine at each server: no clock is asked, and the largest number is noted once a second.",
        ..NONE
    },
    Goals {
        store: "etcd",
        margin: Some((12.0, "go-mutex")),
        names: Some((0.9, "floor")),
        names_us: Some(100.0),
        free: "The floor puts a key and deletes it. Ours shows in the same answer who else is there, and compares the \
               session's key, so that a copy of a request which arrives late does nothing: the same requests, larger ones. \
               Where syncs of the disk are slow they hide that. Tried, and kept: a request that fits one frame, and no copies \
               of the client's channels.",
        grace: 1.5,
        ..NONE
    },
    Goals {
        store: POSTGRES,
        of_the_floor: (OF_POSTGRES, "floor"),
        queue: Some((
            OF_POSTGRES,
            "The server does the same work for both. What is left is the client's: it finds whom a message is about, and keeps \
             a lease.",
        )),
        free: "The floor inserts a row and deletes it. Ours takes the name's lock, reads the session and the queue, and gives \
               the next token, in as many statements and as many syncs of the disk.",
        grace: 1.1,
        ..NONE
    },
    Goals {
        store: "zk",
        margin: Some((1.6, "curator")),
        names: Some((0.9, "floor")),
        names_us: Some(50.0),
        free: "The floor creates a node of a fixed name and deletes it. Ours stands in a queue, says who holds, and may be \
               written by its session alone. Tried, and kept: who takes a lock again that nobody else has wanted since makes \
               two requests, as its node's number tells that it is alone; a third, which lists, is for who cannot know that, \
               as ZooKeeper has no request that creates and lists.",
        grace: 1.1,
        ..NONE
    },
];
