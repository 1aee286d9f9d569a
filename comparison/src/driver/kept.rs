//! Processes that are slow to start, and faster the longer they run, from one contest to the next.
//!
//! A virtual machine that has run the same library for a while is what its users have. So there is one per store and
//! library, and one more for contests in which everybody shares a session: a process closes none.

use std::collections::BTreeMap;

use super::{Shape, Team};
use crate::implementation::Implementation;

/// Those that take part in no contest now.
#[derive(Debug, Default)]
pub(crate) struct Kept(BTreeMap<Place, Team>);

/// A store, an implementation, and whether it has one session.
type Place = (String, &'static str, bool);

impl Kept {
    /// Whoever can be used for a contest of that shape.
    pub(crate) fn take(&mut self, store: &str, who: &Implementation, shape: Shape) -> Option<Team> {
        self.0.remove(&place(store, who, shape))
    }

    /// Keeps it, if it was slow to start.
    pub(crate) fn keep(&mut self, store: &str, who: &Implementation, team: Team) {
        if who.is_heavy() {
            self.0.insert(place(store, who, team.shape), team);
        }
    }
}

fn place(store: &str, who: &Implementation, shape: Shape) -> Place {
    (store.to_owned(), who.name(), shape.sessions == 1)
}
