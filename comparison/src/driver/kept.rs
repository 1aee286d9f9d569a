//! Processes that are slow to start, and faster the longer they run, from one contest to the next.
//!
//! A virtual machine that has run the same library for a while is what its users have. So there is one per URL and
//! library, and one more for contests in which everybody shares a session: a process closes none.

use std::collections::BTreeMap;

use super::{Shape, Team};
use crate::implementation::Implementation;

/// Those that take part in no contest now.
#[derive(Debug, Default)]
pub(crate) struct Kept(BTreeMap<Place, Team>);

/// A store's URL, an implementation, and whether it has one session.
type Place = (String, &'static str, bool);

impl Kept {
    /// Whoever can be used for a contest of that shape.
    pub(crate) fn take(&mut self, url: &str, who: &Implementation, shape: Shape) -> Option<Team> {
        self.0.remove(&place(url, who, shape))
    }

    /// Keeps it, if it was slow to start.
    pub(crate) fn keep(&mut self, url: &str, who: &Implementation, team: Team) {
        if who.is_heavy() {
            self.0.insert(place(url, who, team.shape), team);
        }
    }

    /// Ends those whose way to the store ends.
    pub(crate) fn end(&mut self, url: &str) {
        self.0.retain(|(of, ..), _| of != url);
    }
}

fn place(url: &str, who: &Implementation, shape: Shape) -> Place {
    (url.to_owned(), who.name(), shape.sessions == 1)
}
