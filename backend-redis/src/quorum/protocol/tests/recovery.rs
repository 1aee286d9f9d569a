//! Blank servers, and two lookers for each, which restore them.

use std::time::Duration;

use leasehold_core::OwnerId;

use super::events::Mutant;
use super::world::{TTL, What, World};
use crate::quorum::agreed::Agreed;
use crate::quorum::protocol::{Met, Recovered, Size, Standing, met, recovered, who_differs};
use crate::quorum::scripts::Looker;

/// The managers that look: their terms, and for how long their locks last. The second one has not been let in yet.
pub(super) const MANAGERS: [(&str, u64); 2] = [("0", TTL), ("1", TTL / 4)];

/// A request of a looker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Asks {
    Admit { manager: usize, has_followed: bool, episode: OwnerId, met: Option<Met> },
    Install { own: Standing, told: Recovered, terms: &'static str },
}

impl World {
    /// Looks at one more server, twice at each, and then sends the blank one its floor.
    pub(super) fn look(&mut self, looker: usize, answers: bool) {
        let (looks, servers) = (self.recoveries[looker].len(), self.size.servers);
        let (at, blank) = (looks % servers, looker % servers);
        let met_before = self.met[looker].get(at).filter(|_| looks >= servers);
        let (manager, has_followed, met_before) =
            (self.manager_at(looker), self.has_followed[at], met_before.cloned().flatten());
        self.ids += 1;
        let episode = OwnerId::from_random(u128::from(self.ids).to_be_bytes());
        let asks = Asks::Admit { manager, has_followed, episode, met: met_before };
        self.runs[looker / servers][at] = self.servers[at].run;
        let standing = if answers { self.carry_out(at, &asks) } else { None };
        if !answers {
            self.send_late(at, asks);
        }
        self.recoveries[looker].push(standing);
        if looks + 1 == servers {
            self.leave_out_who_differs(looker, 0);
            self.met[looker] = met(self.size, self.moment(), &self.recoveries[looker]);
            self.begin_anew(looker);
            if self.setting.mutant == Mutant::TellsUseWithClocks {
                let tells = |met: &Met| met.since != met.clocks;
                self.met[looker].iter_mut().for_each(|met| *met = met.take().filter(tells));
            }
        }
        if looks + 1 < 2 * servers {
            return;
        }
        self.leave_out_who_differs(looker, servers);
        let mut seen = std::mem::take(&mut self.recoveries[looker]);
        let Some(own) = seen[blank].clone() else { return };
        self.mistake(blank, &mut seen);
        let (first, second) = seen.split_at(servers);
        let size = Size { quorum: self.size.quorum.max(Size::majority(servers)), ..self.size };
        let pause = Duration::from_millis(self.pause(blank, manager));
        let agreed = Agreed { size, pause, trusts_disks: self.setting.trusts };
        if let Some(mut told) = recovered(agreed, blank, first, second) {
            if self.setting.mutant == Mutant::FloorNotCopied {
                told.floor = 0;
            }
            let (terms, _) = MANAGERS[manager];
            self.send_late(blank, Asks::Install { own, told, terms });
        }
    }

    /// The manager of a looker.
    fn manager_at(&self, looker: usize) -> usize {
        if self.setting.is_mixed { looker / self.size.servers } else { self.manager }
    }

    pub(super) fn has_stale_run(&self, looker: usize, server: usize) -> bool {
        self.runs[looker / self.size.servers][server] != self.servers[server].run
    }

    /// Two looks, and what comes of them, without anything in between.
    pub(super) fn look_at_all(&mut self, looker: usize, answers: impl Fn(usize) -> bool) {
        self.recoveries[looker].clear();
        (0..2 * self.size.servers).for_each(|look| self.look(looker, answers(look)));
        let is_install =
            |what: &What| matches!(what, What::Asks(asks) if matches!(**asks, Asks::Install { .. }));
        if self.network.last().is_some_and(|message| is_install(&message.what)) {
            self.deliver(self.network.len() - 1);
        }
    }

    /// What a server does that is asked so, and answers to a look.
    pub(super) fn carry_out(&mut self, at: usize, asks: &Asks) -> Option<Standing> {
        let now = self.clock(at);
        match asks {
            Asks::Admit { manager, has_followed, episode, met } => {
                let (terms, pause) = MANAGERS[*manager];
                let is_new = !self.may_hold[*manager] || self.setting.mutant == Mutant::PausesByOnesOwnTerms;
                let pause = if is_new { Duration::ZERO } else { Duration::from_millis(pause) };
                let run = self.servers[at].run.to_string();
                let (has_followed, episode, met) = (*has_followed, *episode, met.as_ref());
                let looker = Looker { run: &run, has_followed, terms, pause, episode, met };
                let up_for = Duration::from_millis(self.now - self.up_since[at]);
                let mut standing = self.servers[at].admit(now, &looker);
                self.may_hold[*manager] |= standing.whole && standing.terms == terms;
                standing.is_used &=
                    self.setting.mutant != Mutant::ForgetsThatItWasMet || !standing.id.is_empty();
                Some(Standing { up_for, sent_at: self.moment(), ..standing })
            }
            Asks::Install { own, told, terms } => {
                if self.servers[at].install(own, told, terms) {
                    self.may_hold[usize::from(*terms == MANAGERS[1].0)] = true;
                }
                None
            }
        }
    }

    /// Clocks are written down anew wherever one of those that were is missing.
    fn begin_anew(&mut self, looker: usize) {
        if self.setting.mutant != Mutant::BeginsPausesAnew {
            return;
        }
        let mut look = self.recoveries[looker].clone();
        let runs: Vec<_> = look.iter().flatten().map(|standing| standing.run.clone()).collect();
        let is_left = |standing: &Standing| standing.since.iter().all(|(run, _)| runs.contains(run));
        look.iter_mut().flatten().filter(|own| !is_left(own)).for_each(|own| own.since.clear());
        let begun = met(self.size, self.moment(), &look).into_iter().zip(&self.recoveries[looker]);
        let of = |(begun, own): (Option<Met>, &Option<Standing>)| {
            Some(Met { since: own.as_ref()?.since.clone(), ..begun? })
        };
        self.met[looker] = begun.map(of).collect();
    }

    fn leave_out_who_differs(&mut self, looker: usize, from: usize) {
        let (terms, _) = MANAGERS[self.manager_at(looker)];
        let look = &mut self.recoveries[looker][from..];
        while let Some(server) = who_differs(terms, look) {
            look[server] = None;
        }
    }

    /// What is broken in how two looks are read.
    fn mistake(&self, blank: usize, seen: &mut [Option<Standing>]) {
        let (first, second) = seen.split_at_mut(self.size.servers);
        match self.setting.mutant {
            Mutant::NoPause | Mutant::PausesByTheOthers => {
                let own = first[blank].iter_mut().chain(&mut second[blank]);
                own.for_each(|own| own.pause = Duration::ZERO);
            }
            Mutant::AsksBeforeThePauseEnds => {
                for (before, after) in first.iter_mut().flatten().zip(second.iter().flatten()) {
                    before.clock = after.clock;
                    before.since.clone_from(&after.since);
                }
            }
            Mutant::TellsWhoWasNotBlank => {
                second[blank].iter_mut().for_each(|own| own.beside = vec![own.episode.clone()]);
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
            Mutant::PausesByClocksThatAreLeft => {
                let look = first.to_vec();
                let goes_on = |run: &String, then: u64| {
                    look.iter().flatten().any(|other| other.run == *run && then <= other.clock)
                };
                let own = first[blank].iter_mut();
                own.for_each(|own| own.since.retain(|(run, then)| goes_on(run, *then)));
            }
            Mutant::CountsBackwards => {
                let clocks: Vec<_> =
                    first.iter().flatten().map(|other| (other.run.clone(), other.clock)).collect();
                let own = first[blank].iter_mut();
                let clock = |run: &String| clocks.iter().find(|(other, _)| other == run).map(|(_, at)| *at);
                let since = own.flat_map(|own| &mut own.since);
                since.for_each(|(run, then)| *then -= 2 * then.saturating_sub(clock(run).unwrap_or(*then)));
            }
            Mutant::FloorWithoutTheClock => {
                second.iter_mut().flatten().for_each(|standing| standing.clock = 0);
            }
            Mutant::TrustsCopies => second.iter_mut().flatten().for_each(|standing| standing.id.clear()),
            Mutant::TrustsWhileOneIsAway => {
                let Some(own) = second[blank].clone() else { return };
                let away = Standing { id: String::new(), whole: false, ..own };
                second
                    .iter_mut()
                    .filter(|standing| standing.is_none())
                    .for_each(|gone| *gone = Some(away.clone()));
            }
            _ => {}
        }
    }

    /// How long a server pauses that comes up, in milliseconds.
    fn pause(&mut self, server: usize, manager: usize) -> u64 {
        match self.setting.mutant {
            Mutant::NoPause => 0,
            Mutant::PausesByTheOthers => {
                let ends = |at: usize| Some(self.servers[at].vote?.1.saturating_sub(self.ahead[at]));
                let whole = (0..self.size.servers).filter(|at| !self.is_blank(*at));
                let known = whole.filter_map(ends).max().unwrap_or(0);
                let until = *self.told_until[server].get_or_insert(known);
                if until <= self.now { 0 } else { u64::from(u32::MAX) }
            }
            _ => MANAGERS[manager].1,
        }
    }
}
