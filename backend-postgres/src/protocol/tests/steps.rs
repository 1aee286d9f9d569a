//! The steps of the world: which are possible, and what each does.

use ::model::{Held, World as Model};
use leasehold_core::OwnerId;

use super::super::*;
use super::Mutant;
use super::processes::{Choice, Request, What};
use super::server::holders;
use super::world::{STUCK, UNDONE, UNHEARD, World};

impl World {
    pub(super) fn takes(&self, choice: Choice) -> Option<Self> {
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
                let own = process.contender.as_ref().and_then(Contender::seq);
                match message {
                    Notice::Told(seq, told) if self.is(Mutant::BelievesStaleMessages) => {
                        process.book.hears(own.unwrap_or(seq), told);
                    }
                    Notice::Told(seq, told) => process.book.hears(seq, told),
                    Notice::Lost(seq) => next.takes_away(to, seq),
                    Notice::Asked(..) => {}
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
                let answered = next.server.now.revoked.clone();
                next.server.crash(kept);
                next.broken = (next.server.now.revoked != answered).then_some(UNDONE);
                next.breaks_connections();
            }
            Choice::Ships => next.server.ship(),
            Choice::Promotes | Choice::Upgrades => {
                next.promotions -= 1;
                next.faults -= 1;
                next.is_replaced(choice);
            }
            Choice::ComesBack => next.is_replaced(choice),
            Choice::Revokes => {
                next.faults -= 1;
                next.server.begin(next.mutant);
                let (who, seq) = *holders(&next.server.now.rows, 0).first()?;
                let before = next.server.now.clone();
                let told = next.server.settle(0, Some(seq), next.mutant);
                if next.is(Mutant::NotifiesBeforeTheCommit) {
                    // The transaction fails.
                    next.server.now = before;
                    next.tell(&told);
                    return Some(next);
                }
                next.revocations -= 1;
                next.server.now.revoked.push(seq);
                next.server.now.sessions[who].taken += 1;
                next.server.commit(!next.is(Mutant::RevokesAsynchronously));
                next.tell(&told);
                if !next.is_pooled {
                    next.messages.push((who, Notice::Lost(seq)));
                }
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
            Choice::Fences(who) => next.fences(who)?,
            Choice::EndsFence => next.server.fenced.clear(),
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
                choices.extend((self.fences > 0).then_some(Choice::Fences(who)));
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
        choices.extend((!self.server.fenced.is_empty()).then_some(Choice::EndsFence));
        choices.extend((0..self.messages.len()).flat_map(|at| [Choice::Delivers(at), Choice::Loses(at)]));
        // RACE: the lock of its process may be that of a request on later connections.
        let may_go_on = |(who, request): &(usize, Request)| match request.what {
            What::Acquire { .. } => self.locked_by.is_none_or(|by| by == *who && request.seen.is_some()),
            What::Release(..) | What::Abandon(_) => self.locked_by.is_none(),
            What::Flush | What::Mine => true,
        };
        if self.orphans.first().is_some_and(may_go_on) {
            choices.push(Choice::CarriesOutAnOrphan);
        }
        if self.crashes > 0 && may_fail {
            choices.extend((0..self.server.disk.len()).map(Choice::Crashes));
        }
        if self.promotions > 0 && may_fail {
            choices.push(Choice::Promotes);
            choices.extend((self.server.timeline > 1).then_some(Choice::Upgrades));
            choices.extend((self.server.standby != self.server.disk[0]).then_some(Choice::Ships));
        }
        if self.revocations > 0 && may_fail && !self.server.now.rows.is_empty() && self.locked_by.is_none() {
            choices.push(Choice::Revokes);
        }
        found.extend(choices.into_iter().filter_map(|choice| Some((choice, self.takes(choice)?))));
    }

    fn held(&self) -> Vec<Held> {
        let fenced = &self.server.fenced;
        let is_fenced = |held: &Held| fenced.iter().any(|other| other.counter == held.counter);
        let held = self.processes.iter().filter_map(|process| process.held);
        held.filter(|held| !is_fenced(held)).chain(fenced.iter().copied()).collect()
    }

    fn broken(&self) -> Option<&'static str> {
        let is_known = |who: usize| {
            let process = &self.processes[who];
            let is_quiet =
                process.contender.is_none() && process.held.is_none() && process.releasing.is_none();
            let is_settled = process.request.is_none()
                && process.reply.is_none()
                && process.book.epoch_on(process.on).is_some()
                && (self.server.is_uncrashed && process.past == self.past())
                && !self.orphans.iter().any(|(whose, _)| *whose == who);
            process.trusts.is_none() || !(is_quiet && is_settled)
        };
        let stuck = self.server.now.rows.iter().any(|row| !row.is_gone && !is_known(row.session));
        let is_unheard = (0..self.processes.len()).any(|who| self.is_unheard(who));
        self.broken.or_else(|| stuck.then_some(STUCK)).or_else(|| is_unheard.then_some(UNHEARD))
    }
}
