//! The steps of the world: which are possible, and what each does.

use ::model::{Held, World as Model};
use leasehold_core::OwnerId;

use super::super::*;
use super::Mutant;
use super::world::{Choice, Request, STUCK, What, World};

impl World {
    fn takes(&self, choice: Choice) -> Option<Self> {
        let mut next = self.clone();
        next.age = (next.age + 1) % 5;
        match choice {
            Choice::Begins(who) => {
                let process = &mut next.processes[who];
                (process.wants, process.owner) = (process.wants - 1, process.owner + 1);
                process.contender = Some(Contender::new(Demand::Waits));
            }
            Choice::Drives(who) => next.drives(who),
            Choice::Leaves(who) => {
                next.faults -= 1;
                next.processes[who].contender.as_mut()?.abandon();
            }
            Choice::Releases(who) => {
                let process = &mut next.processes[who];
                let seq = process.held.take()?.counter.cast_signed();
                process.book.release(seq, OwnerId::from_random([process.owner; 16])).ok()?;
                process.releasing = Some(seq);
            }
            Choice::Starts(who) => next.starts(who),
            Choice::Commits(who) => {
                let request = next.processes[who].request.take()?;
                let reply = next.carries_out(who, &request);
                next.processes[who].reply = Some(reply);
            }
            Choice::Hears(who) => next.hears(who),
            Choice::Renews(who) => next.renews(who),
            Choice::GivesUp(who) => {
                next.faults -= 1;
                next.gives_up(who);
            }
            Choice::Delivers(at) => {
                let (to, message) = next.messages.remove(at);
                let process = &mut next.processes[to];
                match message {
                    Notice::Told(seq, told) => process.book.hears(seq, told),
                    Notice::Lost(seq) if process.book.taken(seq).is_some() => process.held = None,
                    _ => {}
                }
            }
            Choice::Loses(at) => drop(next.messages.remove(at)),
            Choice::CarriesOutAnOrphan => {
                let (who, request) = next.orphans.remove(0);
                next.carries_out(who, &request);
            }
            Choice::Cuts(who) => {
                next.cuts -= 1;
                next.faults -= 1;
                next.cuts(who, true);
            }
            Choice::Expires(who) => next.server.now.sessions[who].is_late = true,
            Choice::Crashes(kept) => {
                next.crashes -= 1;
                next.faults -= 1;
                next.crash(kept);
            }
            Choice::Promotes(timeline) => {
                next.promotions -= 1;
                next.faults -= 1;
                next.crash(usize::MAX);
                next.server.moves_to(timeline, next.mutant);
            }
            Choice::Revokes => {
                next.revocations -= 1;
                next.faults -= 1;
                let (who, seq) = *next.server.holders().first()?;
                let told = next.server.settle(Some(seq), next.mutant);
                next.server.now.revoked.push(seq);
                next.server.commit(!next.is(Mutant::RevokesAsynchronously));
                next.tell(&told);
                next.messages.push((who, Notice::Lost(seq)));
                if let Some(held) =
                    next.processes[who].held.as_mut().filter(|held| held.counter == seq.unsigned_abs())
                {
                    held.is_overruled = true;
                }
            }
            Choice::Forges(who) => {
                let seq = next.processes[who].contender.as_ref()?.seq()?;
                next.messages.push((who, Notice::Told(seq, EntryNews::Holds)));
            }
        }
        Some(next)
    }
}

impl Model for World {
    type Step = Choice;

    fn steps(&self, found: &mut Vec<(Choice, Self)>) {
        let mut choices = Vec::new();
        let may_fail = self.faults > 0 && self.age == 0;
        for (who, process) in self.processes.iter().enumerate() {
            let is_idle = process.request.is_none() && process.reply.is_none();
            let is_free =
                process.contender.is_none() && process.held.is_none() && process.releasing.is_none();
            let lives = process.trusts.is_some();
            if lives && is_idle && is_free && process.wants > 0 {
                choices.push(Choice::Begins(who));
            }
            let is_moved = process.book.epoch_on(process.on).is_none();
            if lives && is_idle && (process.contender.is_some() || process.releasing.is_some() || is_moved) {
                choices.push(Choice::Drives(who));
            }
            if process.contender.is_some() && may_fail {
                choices.push(Choice::Leaves(who));
            }
            if process.held.is_some() {
                choices.push(Choice::Releases(who));
            }
            if let Some(request) = &process.request {
                if self.may_start(who, request) {
                    choices.push(Choice::Starts(who));
                }
                if self.may_commit(who, request) {
                    choices.push(Choice::Commits(who));
                }
            }
            if process.reply.is_some() {
                choices.push(Choice::Hears(who));
            }
            if lives && (process.renewals > 0 || process.renewal.is_some()) {
                choices.push(Choice::Renews(who));
            }
            if lives && may_fail {
                choices.push(Choice::GivesUp(who));
            }
            if self.may_expire(who) {
                choices.push(Choice::Expires(who));
            }
            if self.cuts > 0 && lives && may_fail {
                choices.push(Choice::Cuts(who));
            }
            if self.is(Mutant::HasAGuessableChannel)
                && process.contender.as_ref().is_some_and(|own| own.seq().is_some())
            {
                choices.push(Choice::Forges(who));
            }
        }
        choices.extend((0..self.messages.len()).flat_map(|at| [Choice::Delivers(at), Choice::Loses(at)]));
        let may_go_on = |(who, request): &(usize, Request)| {
            !matches!(request.what, What::Acquire { .. }) || self.locked_by.is_none_or(|by| by == *who)
        };
        if self.orphans.first().is_some_and(may_go_on) {
            choices.push(Choice::CarriesOutAnOrphan);
        }
        if self.crashes > 0 && may_fail {
            choices.extend((0..self.server.disk.len()).map(Choice::Crashes));
        }
        if self.promotions > 0 && may_fail {
            choices.extend([self.server.timeline + 1, 1].map(Choice::Promotes));
        }
        if self.revocations > 0 && may_fail && !self.server.now.rows.is_empty() && self.locked_by.is_none() {
            choices.push(Choice::Revokes);
        }
        found.extend(choices.into_iter().filter_map(|choice| Some((choice, self.takes(choice)?))));
    }

    fn held(&self) -> Vec<Held> {
        self.processes.iter().filter_map(|process| process.held).collect()
    }

    fn broken(&self) -> Option<&'static str> {
        let is_known = |who: usize| {
            let process = &self.processes[who];
            let is_quiet =
                process.contender.is_none() && process.held.is_none() && process.releasing.is_none();
            let is_settled = process.request.is_none()
                && process.reply.is_none()
                && process.book.epoch_on(process.on).is_some()
                && !self.orphans.iter().any(|(whose, _)| *whose == who);
            process.trusts.is_none() || !(is_quiet && is_settled)
        };
        let stuck = self.server.now.rows.iter().any(|row| !is_known(row.session));
        self.broken.or_else(|| stuck.then_some(STUCK))
    }
}
