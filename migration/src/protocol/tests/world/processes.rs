//! What a process that moves does, what the stores answer it, and what becomes of it.

use super::*;

impl<const P: usize, const L: usize, const A: usize> World<P, L, A> {
    pub(super) fn processes_do(&self, i: usize, found: &mut Vec<(Label, Self)>) {
        let mut may = |label, change: &dyn Fn(&mut Self)| {
            let mut next = self.clone();
            change(&mut next);
            found.push((label, next));
        };
        let process = &self.processes[i];
        for side in SIDES {
            let store = &self.stores[side];
            let signed = process.knowledge.is_signed(side);
            let late = self.is(Mutant::ReadFirst) && signed && store.members[i].is_none();
            if !signed || (late && process.knowledge.view().is_some()) {
                may(Label::Signs(i, side), &|next| {
                    next.processes[i].knowledge.signed(side);
                    if signed || !self.is(Mutant::ReadFirst) {
                        next.stores[side].members[i] = Some(0);
                    }
                });
            }
            if signed && process.knowledge.known(side) != Some(store.record) {
                may(Label::Reads(i, side, store.record.stand.phase), &|next| {
                    let learned = next.processes[i].knowledge.learn(side, store.record);
                    learned.expect("no store loses its data");
                    next.settle(i);
                });
            }
            let mut knowledge = process.knowledge;
            let alone = match &process.work {
                Work::Holding(hold, _) => hold.alone(side) && !self.is(Mutant::AckEarly),
                _ => false,
            };
            if store.members[i].is_some() && knowledge.acknowledge(side, alone) {
                let version = knowledge.acknowledged(side).expect("it is");
                may(Label::Acknowledges(i, side, version), &|next| {
                    next.processes[i].knowledge = knowledge;
                    next.stores[side].members[i] = Some(version);
                });
            }
        }
        let signed = SIDES.iter().all(|side| self.stores[*side].members[i].is_some());
        let ready = signed || !self.is(Mutant::ReadFirst);
        match process.work {
            Work::Idle if self.left.acquisitions > 0 && process.knowledge.view().is_some() && ready => {
                may(Label::Begins(i), &|next| {
                    next.left.acquisitions -= 1;
                    let view = next.processes[i].knowledge.view();
                    next.processes[i].work = Work::Asking(Contender::new(view));
                    next.settle(i);
                });
            }
            Work::Idle => {}
            Work::Asking(mut contender) => {
                if process.reading {
                    let record = self.stores.old.record;
                    may(Label::LooksAfterGrant(i, record.stand.phase), &|next| {
                        let process = &mut next.processes[i];
                        process.knowledge.learn(Side::Old, record).expect("no store loses its data");
                        process.reading = false;
                        next.settle(i);
                        if let Work::Asking(contender) = &mut next.processes[i].work {
                            contender.read();
                        }
                        next.settle(i);
                    });
                }
                if let Step::Take { counter } = contender.step() {
                    may(Label::Takes(i, counter), &|next| {
                        let process = &mut next.processes[i];
                        let hold = PairHold::of(&contender, process.knowledge.view());
                        process.work = Work::Holding(hold, counter);
                        process.reading = false;
                        next.settle(i);
                    });
                }
                let drains = process.knowledge.view().is_some_and(|view| view.phase == Phase::Drain);
                if drains && contender.parts.old == Part::Asked {
                    may(Label::CannotReachOld(i), &|next| {
                        next.asking(i, |contender| contender.failed(Side::Old, true))
                    });
                }
                if self.left.impatience > 0 {
                    may(Label::GivesUp(i), &|next| {
                        next.left.impatience -= 1;
                        next.asking(i, Contender::unwanted);
                    });
                    for side in SIDES {
                        if contender.parts[side] == Part::Asked && self.stores[side].lock != Lock::Free {
                            may(Label::IsBusy(i, side), &|next| {
                                next.left.impatience -= 1;
                                next.asking(i, |contender| contender.busy(side));
                            });
                        }
                    }
                }
            }
            Work::Holding(hold, _) if !hold.over => may(Label::LetsGo(i), &|next| {
                if let Work::Holding(hold, _) = &mut next.processes[i].work {
                    hold.let_go();
                }
                next.settle(i);
            }),
            Work::Holding(..) => {}
        }
        self.stores_answer(i, &mut may);
        if self.left.faults > 0 {
            self.faults(i, &mut may);
        }
    }

    fn asking(&mut self, i: usize, change: impl Fn(&mut Contender)) {
        if let Work::Asking(contender) = &mut self.processes[i].work {
            change(contender);
        }
        self.settle(i);
    }

    fn stores_answer(&self, i: usize, may: &mut impl FnMut(Label, &dyn Fn(&mut Self))) {
        let parts = self.parts(i);
        // The mutant's first process has the new store's lock before it asks for the old one's.
        let flips = self.is(Mutant::OrderFlip) && i == 0 && self.stores.old.record.stand.phase == Phase::Both;
        let has_new = self.stores.new.lock == Lock::Process(i);
        if flips && parts.old == Part::Asked && parts.new == Part::Free && self.stores.new.lock == Lock::Free
        {
            may(Label::Granted(i, Side::New), &|next| next.stores.new.lock = Lock::Process(i));
        }
        for side in SIDES {
            let lock = self.stores[side].lock;
            let flipped = flips && has_new;
            let waits = flips && !has_new && side == Side::Old;
            let free = lock == Lock::Free || (flipped && side == Side::New);
            if parts[side] == Part::Asked && free && !waits && self.is_first(i, side) {
                may(Label::Granted(i, side), &|next| next.grant(i, side));
            }
            if parts[side] == Part::Leaving {
                may(Label::Released(i, side), &|next| {
                    if next.stores[side].lock == Lock::Process(i) {
                        next.stores[side].lock = Lock::Free;
                    }
                    next.gone(i, side);
                });
            }
        }
    }

    fn faults(&self, i: usize, may: &mut impl FnMut(Label, &dyn Fn(&mut Self))) {
        may(Label::Dies(i), &|next| {
            next.left.faults -= 1;
            next.processes[i] = Process::default();
            for side in SIDES {
                next.orphan(i, side);
                next.stores[side].members[i] = None;
                next.stores[side].queued[i] = None;
            }
        });
        for side in SIDES {
            if self.stores[side].members[i].is_none() {
                continue;
            }
            may(Label::IsCutFrom(i, side), &|next| {
                next.left.faults -= 1;
                next.stores[side].members[i] = None;
                next.processes[i].knowledge.lapsed(side);
                if matches!(next.parts(i)[side], Part::Held(_) | Part::Leaving) {
                    next.orphan(i, side);
                    next.gone(i, side);
                }
                next.settle(i);
            });
            may(Label::LapsesAt(i, side), &|next| {
                next.left.faults -= 1;
                next.stores[side].members[i] = None;
                if next.is(Mutant::NoBound) {
                    return;
                }
                next.processes[i].knowledge.lapsed(side);
                match &mut next.processes[i].work {
                    Work::Idle => {}
                    Work::Asking(contender) => drop(contender.unbacked(side)),
                    Work::Holding(hold, _) => drop(hold.unbacked(side)),
                }
                next.settle(i);
            });
        }
    }
}
