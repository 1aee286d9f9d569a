//! What stores and administrators do there.

use super::*;

impl World {
    /// Data is lost, stores die, a plain session takes the lock for a moment.
    pub(super) fn stores_do(&self, found: &mut Vec<(String, Self)>) {
        self.foreign_clients_do(found);
        for at in (0..2).filter(|_| !self.is_repaired()) {
            let place = &self.places[at];
            let mut may = |label: &str, change: &dyn Fn(&mut Self)| {
                let mut next = self.clone();
                change(&mut next);
                found.push((format!("{at} {label}"), next));
            };
            let shake = |next: &mut Self| {
                for guard in next.processes.iter_mut().filter_map(|process| process.guard.as_mut()) {
                    guard.shaken |= guard.rests_on[at];
                }
            };
            // A step or an end does not notice a loss that comes later than its look.
            let is_seen = self.left.plain == 0 && !self.left.ends || self.admin.is_none();
            if self.left.losses > 0 && !place.dead && is_seen {
                may("loses its data", &|next| {
                    next.left.losses -= 1;
                    next.places[at] = Store::default();
                    shake(next);
                });
            }
            if self.left.late > 0 && place.record.is_none() && !place.dead {
                may("gets a late first record", &|next| {
                    next.left.late -= 1;
                    let id = if next.mutant == Mutant::OneId { 5 } else { next.draws() };
                    let began = TokenBase::new(0, 3 * WIDTH + 1, None);
                    next.write(at, &first(id, SIDES[at], MOVE, began));
                });
            }
            if self.left.rewinds > 0 && at == MOVE.old && self.admin.is_none() {
                may("loses its last writes", &|next| {
                    next.left.rewinds -= 1;
                    next.places[at].rewound = true;
                    let read = next.places[at].record.as_mut().expect("nothing else is lost");
                    (read.version, read.record.stand.phase) = (2, Phase::Old);
                    shake(next);
                });
            }
            if self.left.deaths > 0 && !place.dead {
                may("dies", &|next| {
                    next.left.deaths -= 1;
                    (next.places[at].dead, next.places[at].members) = (true, [None; 2]);
                    shake(next);
                });
            }
            if self.left.returns > 0 && place.dead {
                may("comes back", &|next| {
                    next.left.returns -= 1;
                    next.places[at].dead = false;
                });
            }
            let admits = place.record.as_ref().is_none_or(|read| {
                let MoveRecord { side, stand, .. } = read.record;
                Stage { side, phase: stand.phase }.admits_plain_sessions()
            });
            // A store that lost its record bars no session; where locks have left, others are.
            let is_other = |read: &Read| {
                let here = if read.record.side == Side::New { End::Moved } else { End::Left };
                read.record.end.is_some_and(|end| end != here)
            };
            let reads = self.reads(MOVE);
            let is_late = |read: &Read| read.record.end.is_none() && reads.live(SIDES[at]).is_none();
            let counts = place.record.as_ref().is_some_and(|read| !is_other(read) && !is_late(read))
                && !place.dead
                && !place.rewound
                && place.lock.is_none();
            // Nothing bars it until the record is written again, and nothing ends it then. In `new` no process asks that store.
            let drains = self.reads(MOVE).place() == Some(RecordLocation::At(Phase::Drain));
            let is_open = at == MOVE.old && self.reads(MOVE).kept(Side::Old).is_none();
            if self.left.plain > 0 && drains && is_open && place.lock.is_none() {
                may("admits a plain session, which takes the lock", &|next| {
                    next.left.plain -= 1;
                    next.places[at].lock = Some(PLAIN);
                });
            }
            if place.lock == Some(PLAIN) {
                may("sees the plain session end", &|next| next.places[at].lock = None);
            }
            if self.left.grants > 0 && !self.left.barred && admits && counts {
                may("grants a plain session", &|next| {
                    next.left.grants -= 1;
                    next.places[at].count += 1;
                    let token = place.base + place.count + 1;
                    let beside =
                        next.processes.iter().any(|process| process.guard.is_some_and(|held| !held.shaken));
                    let grows = grows(&mut next.granted, Mode::EXCLUSIVE, token);
                    next.broken = if beside { Some(TWO) } else { (!grows).then_some(BACKWARDS) };
                });
            }
        }
    }

    pub(super) fn admin_does(&self, found: &mut Vec<(String, Self)>) {
        let url = self.admins;
        let mut may = |label: String, change: &dyn Fn(&mut Self)| {
            let mut next = self.clone();
            change(&mut next);
            found.push((label, next));
        };
        let Some(work) = &self.admin else {
            let reads = self.reads(url);
            let up = SIDES.iter().all(|side| !self.places[url[*side]].dead);
            if self.left.steps > 0 && up && reads.of_one_move(&names(url)).is_ok() && reads.lost().is_none() {
                for way in [Way::Forth, Way::Back] {
                    may(format!("a step {way:?}"), &|next| {
                        next.left.steps -= 1;
                        next.was_there = next.places[url.old].lock == Some(FOREIGN);
                        next.admin = Some(Work::Step(Transition::new(way), Pair::default()));
                    });
                }
            }
            if self.left.repairs > 0 {
                may("a repair".to_owned(), &|next| {
                    next.left.repairs -= 1;
                    next.admin = Some(Work::Repair(Repair::new(
                        names(url),
                        0,
                        if next.mutant == Mutant::KeepsId { 5 } else { 6 },
                    )));
                });
            }
            for old in [false, true].into_iter().filter(|_| self.left.cleans > 0 && up) {
                let is_looked_at = self.mutant != Mutant::Unkept;
                let cleaned = self.cleaned(&reads);
                let Ok(clean) = Clean::new(&cleaned, &names(url), is_looked_at, old) else { continue };
                may(format!("clean {old}"), &|next| {
                    next.left.cleans -= 1;
                    next.admin = Some(Work::Clean(clean.clone()));
                });
            }
            return;
        };
        let go = |label: String, change: &dyn Fn(&mut Self, &mut Work)| {
            let (mut next, mut work) = (self.clone(), work.clone());
            change(&mut next, &mut work);
            let over = match &work {
                Work::Step(step, _) => {
                    matches!(step.task(), transition::Task::Done(_) | transition::Task::Unread(_))
                }
                Work::Repair(repair) => repair.task() == repair::Task::Done,
                Work::Clean(clean) => matches!(clean.task(), clean::Task::Done | clean::Task::InUse),
            };
            next.admin = next.admin.and_then(|_| (!over).then_some(work));
            found.push((label, next));
        };
        self.goes_on(url, work, go);
        if self.is_repaired() {
            return;
        }
        let mut left = self.clone();
        left.admin = None;
        found.push(("the administrator stops".to_owned(), left));
    }

    /// A repair has waited: operators start nothing until it is done.
    pub(super) fn is_repaired(&self) -> bool {
        matches!(&self.admin, Some(Work::Repair(repair)) if repair.outlasted)
    }

    fn no_session(&self, at: usize) -> bool {
        let here = |process: &Process| !process.frozen && SIDES.iter().any(|side| process.url[*side] == at);
        self.processes.iter().all(|process| process.knowledge.is_none() || !here(process))
    }

    fn nobody(&self, at: usize) -> bool {
        self.places[at].members == [None; 2]
    }

    fn goes_on(
        &self,
        url: Pair<usize>,
        work: &Work,
        mut go: impl FnMut(String, &dyn Fn(&mut Self, &mut Work)),
    ) {
        match work {
            Work::Step(step, _) => match step.task() {
                transition::Task::Read(side) => go(format!("reads {side:?}"), &|next, work| {
                    let Work::Step(step, reads) = work else { return };
                    reads[side] = next.reads(url)[side].take();
                    if side == Side::Old && reads.of_one_move(&names(url)).is_err() {
                        next.admin = None;
                    }
                    step.read(Pair::each(|side| reads.kept(side).map(Read::seen)));
                }),
                transition::Task::Measure(side) => go(format!("measures {side:?}"), &|next, work| {
                    let Work::Step(step, _) = work else { return };
                    step.measured(base(&next.places[url[side]])).expect("there is room");
                }),
                transition::Task::Conform { side, version } => {
                    let members = self.places[url[side]].members;
                    if members.iter().flatten().all(|of| *of >= version) {
                        go(format!("{side:?} conforms"), &|_, work| {
                            let Work::Step(step, _) = work else { return };
                            step.done();
                        });
                    }
                }
                transition::Task::Quiet => go("looks for foreign clients".to_owned(), &|next, work| {
                    let Work::Step(step, _) = work else { return };
                    let record = next.places[url.new].record.as_ref().map(|read| &read.record);
                    let noisy = record.is_some_and(|record| record.unquiet(next.now, QUIET) > 0);
                    let is_held = next.places[url.old].lock == Some(FOREIGN);
                    let is_plain = next.places[url.old].lock == Some(PLAIN);
                    let is_barred = next.reads(url).kept(Side::Old).is_some() || next.places[url.old].dead;
                    if is_plain && next.mutant != Mutant::Uncounted
                        || !is_barred && next.mutant != Mutant::Unbarred
                    {
                        next.admin = None;
                    } else if is_held && next.mutant != Mutant::NoList {
                        next.note(url.new);
                        next.admin = None;
                    } else if noisy {
                        next.admin = None;
                    } else {
                        step.done();
                    }
                }),
                transition::Task::Raise { side, base } => go(format!("raises {side:?}"), &|next, work| {
                    let Work::Step(step, _) = work else { return };
                    next.places[url[side]].base = next.places[url[side]].base.max(base);
                    step.done();
                }),
                transition::Task::Write { side, expected, stand } => {
                    go(format!("writes {side:?}"), &|next, work| {
                        let Work::Step(step, reads) = work else { return };
                        let there = next.places[url[side]].record.as_ref().map(|read| read.version);
                        let replaces = next.mutant == Mutant::Overwrites || there == Some(in_store(expected));
                        let Some(before) = reads.live(side).filter(|_| replaces).cloned() else {
                            next.admin = None;
                            return;
                        };
                        let was_met = next.met.is_some_and(|at| next.now < at + QUIET);
                        if stand.phase == Phase::New && (was_met || next.was_there) {
                            next.broken = Some(NOISY);
                        }
                        // As `walk` does.
                        let id = reads.live(Side::Old).unwrap_or(&before).record.id;
                        let live = SIDES.into_iter().filter_map(|side| reads.live(side));
                        let restored = live.map(|read| read.record.restored).fold(1, u64::max);
                        let record = MoveRecord { id, stand, restored, ..before.record };
                        let version = next.write(url[side], &record);
                        reads[side] = next.reads(url)[side].take();
                        step.written(Some(version));
                    })
                }
                transition::Task::Done(_) | transition::Task::Unread(_) => {}
            },
            Work::Repair(repair) => match repair.task() {
                repair::Task::Look => {
                    let dead = |side: Side| self.places[url[side]].dead;
                    let dead = Pair { old: dead(Side::Old), new: dead(Side::New) };
                    go(format!("looks, dead are {dead:?}"), &|next, work| {
                        let Work::Repair(repair) = work else { return };
                        let mut reads = next.reads(url);
                        if next.mutant == Mutant::TrustsFirst {
                            for read in [&mut reads.old, &mut reads.new].into_iter().flatten() {
                                read.record.restored = read.record.restored.max(1);
                            }
                        }
                        let known = |side: Side| {
                            if dead[side] { Known::Dead } else { Known::Read(reads[side].clone()) }
                        };
                        let known = Pair { old: known(Side::Old), new: known(Side::New) };
                        if repair.looked(&known).is_err() {
                            next.admin = None;
                        }
                    });
                }
                repair::Task::Alone if self.no_session(url.old) && self.no_session(url.new) => {
                    go("no session is there".to_owned(), &|_, work| {
                        let Work::Repair(repair) = work else { return };
                        repair.alone();
                    });
                }
                repair::Task::Alone => {}
                repair::Task::Outlast => {
                    let held = self.processes.iter().any(|process| process.frozen);
                    if !held || self.mutant == Mutant::ShortWait {
                        go("a ttl passes".to_owned(), &|_, work| {
                            let Work::Repair(repair) = work else { return };
                            repair.outlasted();
                        });
                    }
                }
                repair::Task::Measure(side) => go(format!("measures {side:?}"), &|next, work| {
                    let Work::Repair(repair) = work else { return };
                    repair.measured(base(&next.places[url[side]])).expect("there is room");
                }),
                repair::Task::Raise { side, base } => go(format!("raises {side:?}"), &|next, work| {
                    let Work::Repair(repair) = work else { return };
                    next.places[url[side]].base = next.places[url[side]].base.max(base);
                    repair.done();
                }),
                repair::Task::Write { expected, mut record } => {
                    if self.mutant == Mutant::NoSkip {
                        let Window { offset, low, high } = &mut record.stand.window;
                        [offset, low, high].into_iter().for_each(|number| *number -= WIDTH);
                    }
                    go(format!("writes {:?}", record.side), &|next, work| {
                        let Work::Repair(repair) = work else { return };
                        let at = url[record.side];
                        if next.places[at].record.as_ref().map(|read| read.version) == expected {
                            next.write(at, &record);
                            repair.done();
                        } else {
                            next.admin = None;
                        }
                    });
                }
                repair::Task::Done => {}
            },
            Work::Clean(clean) => match clean.task() {
                clean::Task::Nobody(side) => go(format!("looks for sessions at {side:?}"), &|next, work| {
                    let Work::Clean(clean) = work else { return };
                    clean.nobody(next.nobody(url[side]));
                }),
                clean::Task::Write { expected, record } => {
                    go(format!("ends {:?}", record.side), &|next, work| {
                        let Work::Clean(clean) = work else { return };
                        let at = url[record.side];
                        if next.places[at].record.as_ref().map(|read| read.version)
                            == Some(in_store(expected))
                        {
                            let reads = next.reads(url);
                            let is_open = reads.kept(Side::Old).is_none() && reads.live(Side::New).is_some();
                            if record.end == Some(End::Moved) && record.side == Side::New && is_open {
                                next.broken = Some(OPEN);
                            }
                            clean.written(in_store(next.write(at, &record)));
                        } else {
                            next.admin = None;
                        }
                    })
                }
                clean::Task::Done | clean::Task::InUse => {}
            },
        }
    }
}
