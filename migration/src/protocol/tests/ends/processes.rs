//! What processes do there.

use super::*;

impl World {
    pub(super) fn process_does(&self, i: usize, found: &mut Vec<(String, Self)>) {
        let mut may = |label: String, change: &dyn Fn(&mut Self)| {
            let mut next = self.clone();
            change(&mut next);
            found.push((format!("{i} {label}"), next));
        };
        let Process { url, opens, knowledge, guard, frozen, .. } = &self.processes[i];
        let dead = SIDES.into_iter().find(|side| self.places[url[*side]].dead);
        let Some(knowledge) = knowledge else {
            if self.left.starts == 0 {
                return;
            }
            if let Some(dead) = dead {
                // The other one's record says enough, or the process does not start.
                let mut reads = self.reads(*url);
                reads[dead] = None;
                let is_enough = |read: &Read| {
                    read.record.is_enough() || self.mutant == Mutant::Hasty && dead == Side::New
                };
                if reads.live(dead.other()).is_some_and(is_enough) {
                    may("starts without a store".to_owned(), &|next| next.starts(i, &reads));
                }
                return;
            }
            let mut reads = self.reads(*url);
            if self.left.apart {
                for side in [Side::New, Side::Old] {
                    let Some(read) = &opens[side] else {
                        return may(format!("reads {side:?}"), &|next| {
                            next.processes[i].opens[side] = Some(reads[side].clone());
                        });
                    };
                    reads[side] = read.clone();
                }
            }
            // Replaces the version that was read. Both are read again after that.
            let writes = |next: &mut Self, record: &MoveRecord| {
                let version = |read: &Option<Read>| read.as_ref().map(|read| read.version);
                next.processes[i].opens = Pair::default();
                let at = url[record.side];
                if version(&next.places[at].record) == version(&reads[record.side]) {
                    next.write(at, record);
                }
            };
            let is_half = reads.live(Side::Old).is_some() && reads.new.is_none();
            match reads.opening(&names(*url)) {
                Ok(opening) if opening == Opening::Follow || is_half && self.mutant == Mutant::Halved => {
                    may("starts".to_owned(), &|next| next.starts(i, &reads));
                }
                Ok(Opening::Write(record)) => may("goes on".to_owned(), &|next| writes(next, &record)),
                Ok(Opening::Follow) | Err(_) => {
                    may("is refused".to_owned(), &|next| next.processes[i].opens = Pair::default());
                }
                Ok(Opening::Begin(side)) => may(format!("begins {side:?}"), &|next| {
                    let there = reads.live(Side::New).map(|read| &read.record);
                    let kept = there.filter(|_| next.mutant == Mutant::OneId).map(|new| new.id);
                    let id = kept.unwrap_or_else(|| next.draws());
                    let record = first(id, side, *url, base(&next.places[url.old]));
                    writes(next, &record);
                }),
            }
            return;
        };
        if *frozen {
            return may("comes to its deadline".to_owned(), &|next| next.ends(i, true));
        }
        may("stops".to_owned(), &|next| next.ends(i, true));
        if self.left.freezes > 0 && guard.is_some() {
            may("stands still".to_owned(), &|next| {
                next.left.freezes -= 1;
                next.processes[i].frozen = true;
                next.places.iter_mut().for_each(|place| place.members[i] = None);
            });
        }
        // One that reads the older record first would acquire in the old store alone: docs/src/migrating-cases.md.
        let misleads = |side| self.places[url[side]].rewound && knowledge.view().is_none();
        for side in SIDES.into_iter().filter(|side| !self.places[url[*side]].dead && !misleads(*side)) {
            let mut after = self.clone();
            after.looks(i, side);
            if after != *self {
                may(format!("looks at {side:?}"), &|next| next.looks(i, side));
            }
        }
        if guard.is_some() {
            may("lets go".to_owned(), &|next| next.ends(i, false));
        } else if knowledge.view().is_some_and(|view| view.phase <= Phase::Drain)
            && !self.processes[i].waits
            && self.is_met(url.old)
        {
            may("waits for a foreign client".to_owned(), &|next| {
                next.processes[i].waits = true;
                if next.drains(i) {
                    next.meets(i, next.mutant != Mutant::NotesLate);
                }
            });
        } else if let Some(view) = knowledge.view().filter(|_| self.left.grants > 0) {
            let rests: &[Side] = match view.class() {
                Class::Old => &[Side::Old],
                Class::Bridge => &SIDES,
                Class::New => &[Side::New],
            };
            let counts = url[*rests.last().unwrap()];
            let is_free = |side: &Side| self.places[url[*side]].lock.is_none();
            // While it can be reached, the old store is asked in `drain`, too.
            let asks_old = view.phase == Phase::Drain && !self.places[url.old].dead;
            let free = rests.iter().all(|side| is_free(side) && !self.places[url[*side]].dead)
                && (!asks_old || is_free(&Side::Old));
            // The look after the grant.
            let read = self.places[url.old].record.as_ref().map(Read::seen);
            let reads = matches!(view.phase, Phase::Shadow | Phase::Both);
            let token = view.seen.stand.counter(self.places[counts].count + 1);
            // In `old` nothing is read after the grant: docs/src/migrating-cases.md.
            let is_lost =
                view.phase == Phase::Old && read.is_none_or(|read| read.version < view.seen.version);
            if let Some(token) = token.filter(|_| free && (!reads || read == Some(view.seen))) {
                may("takes".to_owned(), &|next| {
                    next.left.grants -= 1;
                    next.places[counts].count += 1;
                    let mut rests_on = [false; 3];
                    rests.iter().for_each(|side| rests_on[url[*side]] = true);
                    next.places[url.old].lock = next.places[url.old].lock.or_else(|| asks_old.then_some(i));
                    let guard = Guard { rests_on, epoch: view.seen.stand.epoch, shaken: false };
                    next.given(i, guard, (!is_lost).then_some(token));
                });
            }
        }
    }

    fn starts(&mut self, i: usize, reads: &Pair<Option<Read>>) {
        self.left.starts -= 1;
        let process = &mut self.processes[i];
        let mut up = SIDES.into_iter().filter(|side| !self.places[process.url[*side]].dead);
        let known = up.find_map(|side| reads.live(side)).filter(|_| self.mutant != Mutant::Unnamed);
        process.id = known.map_or(0, |read| read.record.id);
        (process.opens, process.knowledge) = (Pair::default(), Some(Knowledge::default()));
    }

    /// Signs, reads and acknowledges, as `session` does.
    fn looks(&mut self, i: usize, side: Side) {
        let url = self.processes[i].url;
        let read = self.places[url[side]].record.clone();
        if let Some(read) = read.as_ref().filter(|_| self.processes[i].id == 0) {
            self.processes[i].id = read.record.id;
        }
        let id = self.processes[i].id;
        let guard = self.processes[i].guard;
        let rests = |side: Side| guard.is_some_and(|guard| guard.rests_on[url[side]]);
        let Some(mut knowledge) = self.processes[i].knowledge else { return };
        knowledge.signed(side);
        let ours = read
            .as_ref()
            .filter(|read| read.record.id == id && read.record.side == side && read.record.end.is_none());
        match ours.map(|read| knowledge.learn(side, read.seen())) {
            None => knowledge.doubted(side),
            Some(Ok(())) => {}
            Some(Err(_)) if self.places[url[side]].rewound => knowledge.doubted(side),
            Some(Err(_)) => {
                self.broken = Some("a record that was written again is not believed");
                knowledge.doubted(side);
            }
        }
        knowledge.acknowledge(side, rests(side) && !rests(side.other()));
        self.places[url[side]].members[i] = Some(knowledge.acknowledged(side).unwrap_or(0));
        self.processes[i].knowledge = Some(knowledge);
        let decides = knowledge.view().is_some_and(|view| view.class() == Class::New);
        let reads = self.reads(url);
        let is_lost = reads.kept(Side::Old).is_none();
        if side == Side::Old && is_lost && decides && reads.of_one_move(&names(url)).is_ok() {
            for record in reads.restored().into_iter().flatten() {
                self.write(url[record.side], &record);
            }
        }
    }
}
