//! What budgets are held against, store by store, and what ours does there that a floor does not, in one sentence without
//! figures: each report has those beside it.

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
        free: "Beside the calls alone, the library keeps a queue of local waiters.",
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
            "The reader of the connection wakes the waiting task, and the client keeps a lease.",
        )),
        free: "Beside the scripts alone, the library keeps a lease and a queue of local waiters.",
        ..NONE
    },
    Goals {
        store: QUORUM,
        of_the_floor: (0.75, "floor"),
        free: "Ours also counts at each server, keeps the largest number there, and checks for waiters.",
        ..NONE
    },
    Goals {
        store: "etcd",
        margin: Some((12.0, "go-mutex")),
        names: Some((0.9, "floor")),
        names_us: Some(100.0),
        free: "Ours also reads the other contenders, and compares the key of the session.",
        grace: 1.5,
        ..NONE
    },
    Goals {
        store: POSTGRES,
        of_the_floor: (OF_POSTGRES, "floor"),
        queue: Some((OF_POSTGRES, "The client also finds the waiter of a message, and keeps its lease.")),
        free: "Ours also locks the name, reads the session and the queue, and issues the next token.",
        grace: 1.1,
        ..NONE
    },
    Goals {
        store: "zk",
        margin: Some((1.6, "curator")),
        names: Some((0.9, "floor")),
        names_us: Some(50.0),
        free: "Ours also keeps a queue, names the holder, and ties the node to the session.",
        grace: 1.1,
        ..NONE
    },
];
