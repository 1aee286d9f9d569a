//! How a story ends: what must hold when nothing comes in anybody's way any more.

use super::super::super::*;
use super::super::process::{NOW, Process};
use super::World;

impl World {
    /// No more faults: whoever may hold must in the end, the others wait, and nothing must be left when all have gone.
    pub(in super::super) fn calm_down(&mut self) -> Result<(), String> {
        self.is_calm = true;
        self.fall_quiet()?;
        for round in 0..200 {
            self.let_all_go_on(round)?;
            if self.processes.iter().all(|process| process.contender.is_none() && process.held.is_none()) {
                return Ok(());
            }
            for who in 0..self.processes.len() {
                if self.processes[who].held.is_some() {
                    self.leave(who);
                }
            }
        }
        match self.processes.iter().position(|process| process.contender.is_some()) {
            Some(stuck) => Err(format!("{stuck} waits for ever: {:?}", self.processes[stuck])),
            None => Ok(()),
        }
    }

    /// Nobody comes or goes any more: nobody waits whom the rule admits, nor goes on looking.
    fn fall_quiet(&mut self) -> Result<(), String> {
        for round in 0..40 {
            self.let_all_go_on(round)?;
        }
        for (who, process) in self.processes.iter().enumerate() {
            let Some(contender) = &process.contender else {
                continue;
            };
            let step = contender.next(NOW, process.deadline(), &process.told);
            if step != Step::Wait {
                return Err(format!("{who} is never done, now with {step:?}: {process:?}"));
            }
            if self.store.admits(process.session) {
                return Err(format!("{who} is admitted, and nobody tells it: {process:?}"));
            }
        }
        Ok(())
    }

    fn let_all_go_on(&mut self, round: u16) -> Result<(), String> {
        for who in 0..self.processes.len() {
            for watch in 0..8 {
                self.tell(who, watch * 64)?;
            }
            // The timer is for watches that have fallen silent, and for nothing else.
            if self.processes[who].watches.iter().any(|watch| watch.is_stalled) {
                self.check_place(who);
            }
            self.read_own(who);
            self.hear_of_reads(who)?;
            self.drive(who, round * 16)?;
            self.check()?;
        }
        for request in std::mem::take(&mut self.delayed) {
            self.store.apply(&request);
            self.check()?;
        }
        Ok(())
    }

    /// The server is full, and nobody wants anything: no entry stays in anybody's way.
    pub(in super::super) fn fill_up(&mut self) -> Result<(), String> {
        self.is_full = true;
        for who in 0..self.processes.len() {
            if let Some(reply) = self.processes[who].reply.take() {
                self.answered(who, reply, 0);
            }
            self.leave(who);
        }
        for who in (0..self.processes.len()).cycle().take(20 * self.processes.len()) {
            self.drive(who, 0)?;
            self.check()?;
        }
        let is_there = |process: &Process| {
            let entry = self.store.sessions[process.session].entry;
            entry.is_some_and(|entry| !self.forgotten.contains(&entry.create))
        };
        match self.processes.iter().position(is_there) {
            Some(who) => Err(format!("{who} has left, and its entry stays: {:?}", self.processes[who])),
            None => Ok(()),
        }
    }
}
