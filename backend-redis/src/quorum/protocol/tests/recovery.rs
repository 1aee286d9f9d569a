//! Servers that came up, and whoever tells them what they may have forgotten.

use std::time::Duration;

use leasehold_core::OwnerId;

use super::events::Mutant;
use super::model::Looker;
use super::world::{TTL, World};
use crate::quorum::agreed::Agreed;
use crate::quorum::protocol::{Size, Standing, clocks, recovered, who_differs};

/// Whoever looks: what it has agreed on, and for how long a lock of it lasts. The second one has not been let in yet.
pub(super) const MANAGERS: [(&str, u64); 2] = [("0", TTL), ("1", TTL / 4)];

impl World {
    /// Looks at one more server, twice at each, and tells the blank one what it may know then.
    pub(super) fn look(&mut self, blank: usize, answers: bool) {
        let looks = self.recoveries[blank].len();
        let (at, servers) = (looks % self.size.servers, self.size.servers);
        let (terms, pause) = MANAGERS[self.manager];
        let pause = if self.manager > 0 || self.mutant == Mutant::PausesByOnesOwnTerms { 0 } else { pause };
        let standing = answers.then(|| {
            let first = self.recoveries[blank].get(at).filter(|_| looks >= servers);
            let first = first.and_then(Option::as_ref);
            let run = self.servers[at].run.to_string();
            let is_blank = first.is_some_and(|first| !first.whole && first.run == run);
            let clocks = self.clocks[blank].clone().filter(|_| is_blank);
            let looker = Looker { terms, pause, clocks: clocks.as_deref() };
            let up_for = Duration::from_millis(self.now - self.up_since[at]);
            let now = self.clock(at);
            Standing { up_for, sent_at: self.moment(), ..self.servers[at].admit(now, looker) }
        });
        self.recoveries[blank].push(standing);
        if looks + 1 == servers {
            self.leave_out_who_differs(blank, 0);
            self.clocks[blank] = clocks(self.size, self.moment(), &self.recoveries[blank]);
        }
        if looks + 1 < 2 * servers {
            return;
        }
        self.leave_out_who_differs(blank, servers);
        let mut seen = std::mem::take(&mut self.recoveries[blank]);
        let Some(mut is) = seen[servers + blank].clone() else { return };
        if self.mutant == Mutant::BlankTermsDoNotCount {
            is = self.servers[blank].standing(0);
        }
        self.mistake(blank, &mut seen);
        let (first, second) = seen.split_at(servers);
        let size = Size { quorum: self.size.quorum.max(Size::majority(servers)), ..self.size };
        let pause = Duration::from_millis(self.pause(blank));
        let agreed = Agreed { size, pause, trusts_disks: self.trusts_disks };
        if let Some(mut told) = recovered(agreed, blank, first, second) {
            if self.mutant == Mutant::FloorNotCopied {
                told.floor = 0;
            }
            self.ids += 1;
            let id = OwnerId::from_random(u128::from(self.ids).to_be_bytes());
            let now = self.clock(blank);
            self.servers[blank].install(now, &is, &told, (terms, id));
        }
    }

    fn leave_out_who_differs(&mut self, blank: usize, from: usize) {
        let (terms, _) = MANAGERS[self.manager];
        let look = &mut self.recoveries[blank][from..];
        if self.mutant == Mutant::BlankTermsDoNotCount {
            let blank = look.iter_mut().flatten().filter(|standing| !standing.whole);
            blank.for_each(|standing| terms.clone_into(&mut standing.terms));
        }
        while let Some(server) = who_differs(terms, look) {
            look[server] = None;
        }
    }

    /// What is broken in how two looks are read.
    fn mistake(&self, blank: usize, seen: &mut [Option<Standing>]) {
        let (first, second) = seen.split_at_mut(self.size.servers);
        match self.mutant {
            Mutant::AsksBeforeThePauseEnds => {
                for (before, after) in first.iter_mut().flatten().zip(second.iter().flatten()) {
                    before.clock = after.clock;
                    before.since.clone_from(&after.since);
                }
            }
            Mutant::TellsWhoWasNotBlank => {
                second[blank].iter_mut().for_each(|own| own.beside = vec![own.run.clone()]);
            }
            Mutant::PausesByUptime => {
                let Some(up_for) = first[blank].as_ref().map(|own| own.up_for) else { return };
                for standing in first.iter_mut().flatten() {
                    (standing.is_used, standing.up_for) = (false, up_for);
                }
            }
            Mutant::PausesByOneClock => {
                let own = first[blank].iter_mut();
                own.for_each(|own| own.since.retain(|(run, _)| *run == own.run));
            }
            Mutant::TrustsCopies => second.iter_mut().flatten().for_each(|standing| standing.id.clear()),
            _ => {}
        }
    }

    /// How long a server pauses that comes up, in milliseconds.
    fn pause(&mut self, server: usize) -> u64 {
        match self.mutant {
            Mutant::NoPause => 0,
            Mutant::PausesByTheOthers => {
                let ends = |at: usize| Some(self.servers[at].vote?.1.saturating_sub(self.ahead[at]));
                let whole = (0..self.size.servers).filter(|at| !self.is_blank(*at));
                let known = whole.filter_map(ends).max().unwrap_or(0);
                let until = *self.told_until[server].get_or_insert(known);
                if until <= self.now { 0 } else { u64::from(u32::MAX) }
            }
            _ => MANAGERS[self.manager].1,
        }
    }
}
