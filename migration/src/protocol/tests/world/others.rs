//! What sessions do that take no part, and administrators.

use super::*;

impl<const P: usize, const L: usize, const A: usize> World<P, L, A> {
    pub(super) fn plain_does(&self, k: usize, found: &mut Vec<(Label, Self)>) {
        let Plain { side, life } = self.plain[k];
        let mut becomes = |label, life: Life, change: &dyn Fn(&mut Self)| {
            let mut next = self.clone();
            next.plain[k].life = life;
            change(&mut next);
            found.push((label, next));
        };
        let store = &self.stores[side];
        let stage = Stage { side, phase: store.record.stand.phase };
        let admits = stage.admits_plain_sessions()
            || (self.is(Mutant::BarredLate) && side == Side::Old && stage.phase == Phase::Shadow);
        match life {
            Life::Closed if self.left.openings > 0 && self.is(Mutant::KeepsBase) => {
                let back = Life::Hasty { base: 0 };
                becomes(Label::PlainOpens(k), back, &|next| next.left.openings -= 1);
            }
            Life::Closed if self.left.openings > 0 => {
                becomes(Label::PlainOpens(k), Life::Opening, &|next| next.left.openings -= 1);
            }
            Life::Closed => {}
            Life::Early => {
                becomes(Label::PlainCloses(k), Life::Closed, &|_| {});
                if self.has_come_to_both() {
                    becomes(Label::PlainOpens(k), Life::Open { base: 0 }, &|_| {});
                }
            }
            Life::Opening if self.is(Mutant::BaseFirst) => {
                becomes(Label::PlainReadsBase(k, store.base), Life::Hasty { base: store.base }, &|_| {});
            }
            Life::Opening => {
                let life = if admits { Life::Admitted } else { Life::Closed };
                becomes(Label::PlainReadsRecord(k, stage.phase), life, &|_| {});
            }
            Life::Hasty { base } => {
                let life = if admits { Life::Open { base } } else { Life::Closed };
                becomes(Label::PlainReadsRecord(k, stage.phase), life, &|_| {});
            }
            Life::Admitted => {
                becomes(Label::PlainReadsBase(k, store.base), Life::Open { base: store.base }, &|_| {});
            }
            Life::Open { base } => {
                if store.lock == Lock::Free && self.left.acquisitions > 0 {
                    let token = base + store.count + 1;
                    becomes(Label::PlainTakes(k, token), Life::Holds { base, token }, &|next| {
                        next.left.acquisitions -= 1;
                        next.stores[side].lock = Lock::Plain(k);
                        next.stores[side].count += 1;
                    });
                }
                becomes(Label::PlainCloses(k), Life::Closed, &|_| {});
            }
            Life::Holds { base, .. } => {
                becomes(Label::PlainReleases(k), Life::Open { base }, &|next| {
                    next.stores[side].lock = Lock::Free;
                });
                // It counts, and is shown, until its lease is over.
                becomes(Label::PlainCloses(k), Life::Closed, &|next| next.stores[side].lock = Lock::Free);
            }
        }
    }

    pub(super) fn admin_does(&self, a: usize, found: &mut Vec<(Label, Self)>) {
        let mut may = |label, change: &dyn Fn(&mut Self)| {
            let mut next = self.clone();
            change(&mut next);
            let task = next.admins[a].as_ref().map(|admin| admin.step.task());
            if matches!(task, Some(Task::Done(_) | Task::Unread(_))) {
                next.admins[a] = None;
            }
            found.push((label, next));
        };
        let Some(admin) = &self.admins[a] else {
            for way in [Way::Forth, Way::Back].into_iter().filter(|_| self.left.transitions > 0) {
                may(Label::AdminBegins(a, way), &|next| {
                    next.left.transitions -= 1;
                    next.admins[a] = Some(Admin { step: Transition::new(way), reads: Pair::default() });
                });
            }
            return;
        };
        may(Label::AdminStops(a), &|next| next.admins[a] = None);
        let task = admin.step.task();
        let on = |next: &mut Self, change: &dyn Fn(&mut Admin)| {
            next.admins[a].as_mut().map(change).expect("it is at work");
        };
        match task {
            Task::Read(side) => {
                let seen = self.stores[side].record;
                may(Label::Admin(a, task), &|next| {
                    on(next, &|admin| {
                        admin.reads[side] = Some(seen);
                        admin.step.read(admin.reads);
                    });
                });
                if side == Side::New {
                    may(Label::CannotRead(a, side), &|next| {
                        on(next, &|admin| {
                            admin.reads.new = None;
                            admin.step.read(admin.reads);
                        })
                    });
                }
            }
            Task::Measure(side) => {
                let Store { base, count, .. } = self.stores[side];
                let base = TokenBase::new(base, count + 1, None);
                may(Label::Admin(a, task), &|next| {
                    on(next, &|admin| admin.step.measured(base).expect("there is room"))
                });
            }
            Task::Conform { side, version } if self.conforms(side, version) => {
                may(Label::Admin(a, task), &|next| on(next, &|admin| admin.step.done()));
            }
            Task::Conform { .. } => {}
            // There are no foreign clients here.
            Task::Quiet => may(Label::Admin(a, task), &|next| on(next, &|admin| admin.step.done())),
            Task::Raise { side, base } => may(Label::Admin(a, task), &|next| {
                if !next.is(Mutant::NoRaise) {
                    next.stores[side].base = next.stores[side].base.max(base);
                }
                on(next, &|admin| admin.step.done());
            }),
            Task::Write { side, expected, stand } => {
                let record = self.stores[side].record;
                let equal = match self.mutant {
                    Mutant::ComparesPhases => {
                        admin.reads[side].is_none_or(|read| record.stand.phase == read.stand.phase)
                    }
                    _ => record.version == expected,
                };
                if !equal {
                    may(Label::Conflict(a, side), &|next| on(next, &|admin| admin.step.written(None)));
                } else if self.writes_nothing(side, stand.phase) {
                    may(Label::Admin(a, task), &|next| on(next, &|admin| admin.step.written(Some(expected))));
                } else {
                    let version = record.version + 1;
                    may(Label::Admin(a, task), &|next| {
                        next.stores[side].record = Seen { version, stand };
                        on(next, &|admin| {
                            admin.reads[side] = Some(Seen { version, stand });
                            admin.step.written(Some(version));
                        });
                    });
                }
            }
            Task::Done(_) | Task::Unread(_) => unreachable!("it has gone"),
        }
    }

    fn conforms(&self, side: Side, version: u64) -> bool {
        let phase = self.stores[side].record.stand.phase;
        let unchecked = match self.mutant {
            Mutant::SkipShadow => side == Side::Old && phase == Phase::Shadow,
            Mutant::DrainUnchecked => side == Side::Old && phase == Phase::Both,
            Mutant::BackUnchecked => side == Side::New && phase == Phase::Both,
            Mutant::EarlyUncounted => {
                side == Side::New && self.stores.old.record.stand.phase == Phase::Shadow
            }
            _ => false,
        };
        let acknowledged = |of: u64| of >= version || (self.is(Mutant::AckAny) && of > 0);
        let members = self.stores[side].members.iter().flatten().all(|of| acknowledged(*of));
        let open = |plain: &&Plain| plain.side == side && plain.life != Life::Closed;
        let foreign = self.plain.iter().filter(open).count();
        unchecked || (members && (foreign == 0 || self.is(Mutant::Uncounted)))
    }

    fn writes_nothing(&self, side: Side, phase: Phase) -> bool {
        let now = self.stores[side].record.stand.phase;
        match self.mutant {
            Mutant::NoBar => side == Side::Old && phase == Phase::Drain && now == Phase::Both,
            Mutant::ResumeUnbumped => side == Side::Old && phase == Phase::Drain && now == Phase::Drain,
            Mutant::ClosedNotReplaced => side == Side::New && phase == Phase::Both && now < Phase::Drain,
            _ => false,
        }
    }
}
