//! Servers that came up, and whoever tells them what they may have forgotten.

use std::time::Duration;

use super::events::Mutant;
use super::world::{TTL, World};
use crate::quorum::protocol::{Size, Standing, recovered};

impl World {
    /// Looks at one more server, twice at each, and tells the blank one what it may know then.
    pub(super) fn look(&mut self, blank: usize, answers: bool) {
        let looks = self.recoveries[blank].len();
        let at = looks % self.size.servers;
        let standing = answers.then(|| {
            let (now, left) = (self.clock(at), self.pause_left(at));
            Standing { pause_left: Duration::from_millis(left), ..self.servers[at].admit(now, false) }
        });
        self.recoveries[blank].push(standing);
        if looks + 1 < 2 * self.size.servers {
            return;
        }
        let mut seen = std::mem::take(&mut self.recoveries[blank]);
        if self.mutant == Mutant::AsksBeforeThePauseEnds {
            let (first, second) = seen.split_at_mut(self.size.servers);
            if let (Some(first), Some(second)) = (&mut first[blank], &second[blank]) {
                first.pause_left = second.pause_left;
            }
        }
        if self.mutant == Mutant::TellsWhoWasNotBlank {
            let own = seen[self.size.servers + blank].iter_mut();
            own.for_each(|own| own.beside = vec![own.run.clone()]);
        }
        let (first, second) = seen.split_at(self.size.servers);
        let majority = Size::majority(self.size.servers);
        let size = Size { quorum: self.size.quorum.max(majority), ..self.size };
        if let (Some(mut told), Some(own)) = (recovered(size, blank, first, second), &second[blank]) {
            if self.mutant == Mutant::FloorNotCopied {
                told.floor = 0;
            }
            let now = self.clock(blank);
            self.servers[blank].install(now, own.run.parse().unwrap(), &told);
        }
    }

    /// How much of the pause of a server is left, in milliseconds.
    fn pause_left(&mut self, server: usize) -> u64 {
        let until = match self.mutant {
            Mutant::NoPause => 0,
            Mutant::PausesByTheOthers => {
                let ends = |at: usize| Some(self.servers[at].vote?.1.saturating_sub(self.ahead[at]));
                let whole = (0..self.size.servers).filter(|at| !self.is_blank(*at));
                let known = whole.filter_map(ends).max().unwrap_or(0);
                *self.told_until[server].get_or_insert(known)
            }
            _ => self.up_since[server] + TTL,
        };
        until.saturating_sub(self.now)
    }
}
