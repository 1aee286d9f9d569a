//! Foreign clients at the store that is left, and processes that meet them.

use super::*;

impl World {
    /// A foreign client comes and goes, and time passes.
    pub(super) fn foreign_clients_do(&self, found: &mut Vec<(String, Self)>) {
        let mut may = |label: &str, change: &dyn Fn(&mut Self)| {
            let mut next = self.clone();
            change(&mut next);
            found.push((label.to_owned(), next));
        };
        let lock = self.places[MOVE.old].lock;
        if lock == Some(FOREIGN) {
            may("a foreign client leaves", &|next| {
                (next.places[MOVE.old].lock, next.was_there) = (None, false);
                next.processes.iter_mut().for_each(|process| process.waits = false);
            });
        } else if lock.is_none() && self.left.foreign > 0 {
            may("a foreign client comes", &|next| {
                next.left.foreign -= 1;
                next.places[MOVE.old].lock = Some(FOREIGN);
            });
        }
        if self.left.ticks > 0 {
            may("time passes", &|next| {
                next.left.ticks -= 1;
                next.now += TICK;
                // A waiter looks again.
                for i in (0..2).filter(|i| self.processes[*i].waits && self.drains(*i)) {
                    next.meets(i, next.mutant != Mutant::MeetsOnce);
                }
            });
        }
    }

    pub(super) fn drains(&self, i: usize) -> bool {
        let view = self.processes[i].knowledge.and_then(|knowledge| knowledge.view());
        view.is_some_and(|view| view.phase == Phase::Drain)
    }

    /// Whether the holder there is taken for a foreign client.
    pub(super) fn is_met(&self, at: usize) -> bool {
        self.places[at].lock.is_some_and(|of| {
            of == FOREIGN
                || (self.mutant == Mutant::ByLabel && of < FOREIGN && self.places[at].members[of].is_none())
        })
    }

    /// A foreign client holds what process `i` wants.
    pub(super) fn meets(&mut self, i: usize, notes: bool) {
        let Pair { old, new } = self.processes[i].url;
        if self.places[old].lock == Some(FOREIGN) {
            self.met = Some(self.now);
        } else {
            self.broken = Some(OURS);
        }
        if notes {
            self.note(new);
        }
    }

    pub(super) fn note(&mut self, at: usize) {
        let met = self.places[at].record.as_ref().and_then(|read| read.record.having_met("a", self.now));
        if let Some(record) = met {
            self.write(at, &record);
        }
    }
}
