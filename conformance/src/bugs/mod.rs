//! Stores that are wrong on purpose, each as the published bug it is named after, and the case that
//! must notice.
//!
//! A kit that has never failed proves nothing. Each bug is a layer over the in-memory store; the test
//! target runs the case named for it with and without this mutation, and fails unless the mutation,
//! and nothing else, makes it fail. Some are planted in the [`simulation`](crate::simulation), too.

mod ledger;
mod names;
mod queueing;
mod releasing;
mod sharing;
mod showing;
mod silence;
mod time;
mod tokens;
mod waiting;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Lock;
use leasehold_core::backend::StoreConfig;
use leasehold_core::clock::Clock;

use crate::host::HostClock;
use crate::layer::{Layer, Wrap, per_session, shared};

/// One way to be wrong.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Bug {
    /// What it does.
    pub name: &'static str,
    /// What is wrong with it, and which library has had that bug.
    pub story: &'static str,
    /// The case that must fail on it.
    pub caught_by: &'static str,
    pub(crate) make: fn() -> Mutation,
}

impl fmt::Debug for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// What is broken.
pub(crate) enum Mutation {
    /// Every session, at the store.
    Store(Wrap),
    /// Every session, where its process drives it from: beyond the network.
    Driver(Wrap),
    /// The clock of every host that is not the world's own.
    Clock(fn(HostClock) -> Arc<dyn Clock>),
    /// How `max_hold` is set on a lock.
    Bound(fn(Lock, Duration) -> Lock),
    /// How work runs under a lock: as a caller would by hand, which the lock does not wait for.
    Work,
}

impl Mutation {
    /// `config` with the mutation of every session around it, wherever that is.
    pub(crate) fn around(&self, config: Box<dyn StoreConfig>) -> Box<dyn StoreConfig> {
        match self {
            Self::Store(wrap) | Self::Driver(wrap) => wrap(config),
            Self::Clock(_) | Self::Bound(_) | Self::Work => config,
        }
    }

    /// How `max_hold` is set on a lock, with this planted.
    pub(crate) fn bound(planted: Option<&Self>) -> fn(Lock, Duration) -> Lock {
        match planted {
            Some(Self::Bound(bound)) => *bound,
            _ => Lock::max_hold,
        }
    }
}

fn store(layer: impl Layer) -> Mutation {
    Mutation::Store(shared(Arc::new(layer)))
}

fn each_session<L: Layer>(make: fn() -> L) -> Mutation {
    Mutation::Store(per_session(move || Arc::new(make())))
}

fn driver(layer: impl Layer) -> Mutation {
    Mutation::Driver(shared(Arc::new(layer)))
}

/// The table at the top of each file of bugs: name, the case that must fail, what is broken; story.
macro_rules! table {
    ($($name:ident, $guarantee:ident::$case:ident, $mutation:expr, $story:literal;)+) => {
        pub(super) const BUGS: &[$crate::bugs::Bug] = &[$($crate::bugs::Bug {
            name: stringify!($name),
            story: $story,
            caught_by: concat!(stringify!($guarantee), "::", stringify!($case)),
            make: || $mutation,
        }),+];
    };
}
use table;

/// Every bug.
pub fn bugs() -> impl Iterator<Item = &'static Bug> {
    let all = [
        releasing::BUGS,
        tokens::BUGS,
        time::BUGS,
        queueing::BUGS,
        waiting::BUGS,
        silence::BUGS,
        names::BUGS,
        ledger::BUGS,
        sharing::BUGS,
        showing::BUGS,
    ];
    all.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn bugs_are_well_formed() {
        let known: BTreeSet<_> = crate::cases().map(|case| case.name).collect();
        let mut seen = BTreeSet::new();
        for bug in bugs() {
            assert!(seen.insert(bug.name), "{bug:?} is there twice");
            assert!(bug.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{bug:?}");
            assert!(known.contains(bug.caught_by), "{bug:?} waits for {}", bug.caught_by);
            assert!(!bug.story.is_empty());
        }
        assert!(seen.len() >= 30, "{} bugs", seen.len());
    }
}
