//! Where a request is sent after a server of a cluster has refused it.
//!
//! # Invariants
//! - **redis.redirects-1** Only refusals from before a request has run are followed: it was not applied. Any other answer is
//!   the request's.
//! - **redis.redirects-2** However servers point at each other, a request is sent at most seven times between two pauses.
//!
//! Checked by the tests below, and at each step of a slot's move by `tests/redis/cluster_moves.rs`.

use leasehold_core::Error;

use super::slots::{HashSlot, address};
use crate::config::Address;
use crate::error;

/// The reply of a server that has not run a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// Another server has the slot.
    Moved(HashSlot, Address),
    /// Another server gets the slot, and this one has none of the keys.
    Ask(Address),
    /// The slot is being moved, it has no server, or the server is not ready.
    Later,
}

impl Redirect {
    /// Reads what the server at `asked` has said; `None` for an error that is the request's own.
    pub(crate) fn read(error: &Error, asked: &Address) -> Option<Self> {
        let said = std::error::Error::source(error)?.to_string();
        if said == error::A_FORMER {
            return Some(Self::Later);
        }
        let mut words = said.split(' ');
        let (code, slot, place) = (words.next()?, words.next(), words.next());
        let to = || {
            let (host, port) = place?.rsplit_once(':')?;
            Some((HashSlot::new(slot?.parse().ok()?)?, address(host, port.parse().ok()?, asked)?))
        };
        match code {
            // Without a place that can be read the map is asked for once more.
            "MOVED" => Some(to().map_or(Self::Later, |(slot, to)| Self::Moved(slot, to))),
            "ASK" => Some(to().map_or(Self::Later, |(_, to)| Self::Ask(to))),
            "TRYAGAIN" | "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" => Some(Self::Later),
            _ => None,
        }
    }
}

/// Where a refused request is sent next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NextServer {
    /// At once to the server that has the slot.
    Owner,
    /// At once to that server, behind the word that the slot may be on its way there.
    Asking(Address),
    /// After a pause, to the server that has the slot then.
    Pause,
}

/// The redirects of a request since it was sent first, or since the last pause.
#[derive(Clone, Debug, Default)]
pub(crate) struct Redirects {
    moves: u8,
    has_asked: bool,
}

impl Redirects {
    /// The request was refused; a move is noted in the map by then.
    pub(crate) fn next(&mut self, said: Redirect) -> NextServer {
        match said {
            Redirect::Moved(..) if self.moves < MOST_MOVES => {
                self.moves += 1;
                NextServer::Owner
            }
            Redirect::Ask(to) if !self.has_asked => {
                self.has_asked = true;
                NextServer::Asking(to)
            }
            Redirect::Moved(..) | Redirect::Ask(_) | Redirect::Later => {
                *self = Self::default();
                NextServer::Pause
            }
        }
    }
}

/// Servers that disagree about a slot learn of each other within moments.
const MOST_MOVES: u8 = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::{Effect, ErrorKind};
    use proptest::prelude::*;

    fn at(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.to_owned(), port }
    }

    fn read(said: &str) -> Option<Redirect> {
        let error =
            Error::new(ErrorKind::Unsupported, Effect::NotApplied, "refused").with_source(said.to_owned());
        Redirect::read(&error, &at("asked", 1))
    }

    fn moved(host: &str) -> Redirect {
        Redirect::Moved(HashSlot::of("foo"), at(host, 6381))
    }

    /// A refusal before a request runs is followed, whatever form the address has; an error of a script is not.
    #[test]
    fn refusals_from_before_the_request_are_read() {
        assert_eq!(read("MOVED 12182 10.0.0.2:6381"), Some(moved("10.0.0.2")));
        assert_eq!(read("MOVED 12182 fe80::1:6381"), Some(moved("fe80::1")));
        assert_eq!(read("MOVED 12182 r2.org:6381"), Some(moved("r2.org")));
        assert_eq!(read("MOVED 12182 :6381"), Some(moved("asked")));
        assert_eq!(read("ASK 12182 :7"), Some(Redirect::Ask(at("asked", 7))));
        for later in [
            "MOVED 12182 ?:6381",
            "MOVED 16384 a:1",
            "MOVED 12182 a:0",
            "MOVED",
            "ASK 12182 ?:6381",
            "TRYAGAIN Multiple keys request during rehashing of slot",
            "CLUSTERDOWN Hash slot not served",
            "LOADING Redis is loading the dataset in memory",
            "MASTERDOWN Link with MASTER is down",
        ] {
            assert_eq!(read(later), Some(Redirect::Later), "{later}");
        }
        for own in [
            "CROSSSLOT Keys in request don't hash to the same slot",
            "ERR Script attempted to access a non local key in a cluster node",
            "READONLY You can't write against a read only replica.",
            "ERR MOVED 12182 a:1",
            "",
        ] {
            assert_eq!(read(own), None, "{own}");
        }
    }

    proptest! {
        /// Whatever a server says, nothing panics, and it is not followed for ever.
        #[test]
        fn any_refusals_end_with_a_pause(
            words in "[A-Z]{0,9} [0-9]{0,6} [a-z:?.]{0,9}:[0-9]{0,6}",
            said in prop::collection::vec(0_u8..3, 8),
        ) {
            _ = read(&words);
            let mut redirects = Redirects::default();
            let said = said.iter().map(|said| match said {
                0 => moved("a"),
                1 => Redirect::Ask(at("b", 1)),
                _ => Redirect::Later,
            });
            let pauses = said.filter(|said| redirects.next(said.clone()) == NextServer::Pause).count();
            prop_assert!(pauses > 0);
        }
    }

    /// A move is followed at once, and the word about a slot on its way once; after a pause the count begins anew.
    #[test]
    fn redirects_are_followed_a_few_times() {
        let mut redirects = Redirects::default();
        for _ in 0..2 {
            assert_eq!(redirects.next(Redirect::Ask(at("b", 1))), NextServer::Asking(at("b", 1)));
            assert!((0..MOST_MOVES).all(|_| redirects.next(moved("a")) == NextServer::Owner));
            assert_eq!(redirects.next(moved("a")), NextServer::Pause);
            assert_eq!(redirects.next(Redirect::Ask(at("b", 1))), NextServer::Asking(at("b", 1)));
            assert_eq!(redirects.next(Redirect::Ask(at("b", 1))), NextServer::Pause);
            assert_eq!(redirects.next(moved("a")), NextServer::Owner);
            assert_eq!(redirects.next(Redirect::Later), NextServer::Pause);
        }
    }
}
