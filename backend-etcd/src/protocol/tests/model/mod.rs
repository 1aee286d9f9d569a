//! Processes that contend on the store through the engine.

mod quiet;
mod watching;

use ::model::{Held, Judge};

use super::super::*;
use super::mutant::Mutant;
use super::process::{NOW, Process, name, owner};
use super::store::{Entry, Reply, Request, Store, What, key};

pub(super) struct World {
    mutant: Option<Mutant>,
    store: Store,
    processes: Vec<Process>,
    delayed: Vec<Request>,
    acquisitions: u32,
    /// Holds that nobody released.
    forgotten: Vec<Revision>,
    /// Entries that were taken away by force.
    taken: Vec<Revision>,
    /// How its processes hold.
    modes: Vec<Mode>,
    judge: Judge,
    is_calm: bool,
    /// The server has no room: it refuses whatever puts.
    is_full: bool,
}

/// Worlds whose processes hold in different ways.
pub(super) const MIXES: usize = 6;

fn mix(which: usize) -> Vec<Mode> {
    let some = |weight, capacity| Mode::permits(weight, capacity).expect("permits");
    match which % MIXES {
        0 | 1 => vec![Mode::EXCLUSIVE],
        2 => vec![Mode::SHARED, Mode::EXCLUSIVE, Mode::SHARED],
        3 => vec![some(1, 2)],
        4 => vec![some(1, 2), Mode::SHARED, Mode::EXCLUSIVE],
        _ => vec![some(2, 3), some(1, 3), some(1, 2), Mode::SHARED],
    }
}

impl World {
    pub(super) fn new(mutant: Option<Mutant>, which: usize) -> Self {
        let mut world = Self {
            mutant,
            store: Store {
                revision: 1,
                is_mistaken_for_mine: mutant == Some(Mutant::AdoptsAnything),
                ..Store::default()
            },
            processes: Vec::new(),
            delayed: Vec::new(),
            acquisitions: 0,
            forgotten: Vec::new(),
            taken: Vec::new(),
            modes: mix(which),
            judge: Judge::default(),
            is_calm: false,
            is_full: false,
        };
        // It takes four to wait for two who share, and behind one who waits.
        for _ in 0..if which % MIXES < 2 { 3 } else { 4 } {
            let session = world.store.open_session();
            world.processes.push(Process::new(session));
        }
        world
    }

    /// Something happens; an error is a broken promise.
    pub(super) fn act(&mut self, choice: u16) -> Result<(), String> {
        let processes = self.processes.len();
        let who = usize::from(choice) % processes;
        let detail = choice / 64;
        match usize::from(choice) / processes % 26 {
            0..=1 => {
                let mode = self.modes[usize::from(detail / 3) % self.modes.len()];
                self.start(
                    who,
                    if detail.is_multiple_of(3) { Patience::Tries } else { Patience::Waits },
                    mode,
                );
            }
            2..=9 => self.drive(who, detail)?,
            10..=13 => self.tell(who, detail)?,
            14 => self.cut(who),
            15 => self.leave(who),
            16 => self.forget(who),
            17 if !self.delayed.is_empty() => {
                let request = self.delayed.remove(usize::from(detail) % self.delayed.len());
                self.store.apply(&request);
            }
            18 if detail.is_multiple_of(4) => self.expire(who),
            18 => self.move_epoch_aside(who),
            19 => self.take_away(usize::from(detail)),
            20 => self.read_own(who),
            21 => self.hear_of_reads(who)?,
            22 => self.stall(who),
            23 => self.give_up_a_watch(who, detail),
            24..=25 => self.check_place(who),
            _ => {}
        }
        self.check()
    }

    fn check(&mut self) -> Result<(), String> {
        if self.store.bars_others {
            return Err("a try refuses others, and does not hold".to_owned());
        }
        for process in &mut self.processes {
            let entry = self.store.sessions[process.session].entry;
            if let Some(Entry { create, .. }) = entry.filter(|_| self.store.admits(process.session)) {
                process.was_admitted = create;
            }
        }
        let held = self.held();
        if let Some(rule) = self.judge.see(held) {
            return Err(format!("{rule}: {:?}", self.judge));
        }
        for (who, process) in self.processes.iter().enumerate() {
            let gone_before = process.gone_before.max(process.told_early);
            if process.held.is_some_and(|held| held < gone_before) {
                return Err(format!("{who} has heard that its hold is gone, and is not told"));
            }
            let idle = process.contender.is_none() && process.held.is_none();
            let left = self.store.sessions[process.session].entry.map(|entry| entry.create);
            if idle && left.is_some_and(|left| !self.forgotten.contains(&left)) {
                return Err(format!("{who} wants nothing and has an entry"));
            }
        }
        Ok(())
    }

    fn held(&self) -> Vec<Held> {
        let held = self.processes.iter().enumerate().filter_map(|(actor, process)| {
            let held = process.held.filter(|_| !process.has_expired)?;
            let is_overruled = self.taken.contains(&held);
            Some(Held { actor, mode: process.mode, counter: held.unsigned_abs(), is_overruled })
        });
        held.collect()
    }

    fn start(&mut self, who: usize, patience: Patience, mode: Mode) {
        if self.processes[who].contender.is_some() || self.processes[who].held.is_some() {
            return;
        }
        if self.processes[who].has_expired {
            self.processes[who] = Process::new(self.store.open_session());
        }
        self.acquisitions += 1;
        let process = &mut self.processes[who];
        (process.acquisition, process.mode) = (self.acquisitions, mode);
        process.found = None;
        process.contender = Some(Contender::new(patience, mode, &key(process.session, mode)));
        process.told.listen();
    }

    /// Gives up waiting, or lets go.
    fn leave(&mut self, who: usize) {
        let process = &mut self.processes[who];
        if let Some(create) = process.held.take() {
            let _ = process.book.release(&name(), create, owner(process.acquisition));
            process.contender = (!process.has_expired).then(|| super::leaving(create, process.mode));
        } else if process.reply.is_some() {
            // It is found out when the answer is there.
        } else if let Some(contender) = &mut process.contender {
            // Whoever asks again for what it did not release does ask.
            let entry = self.store.sessions[process.session].entry;
            let has_forgotten = entry.is_some_and(|entry| self.forgotten.contains(&entry.create));
            if self.mutant == Some(Mutant::OwesNothing) {
                process.contender = None;
            } else if !self.is_calm && !has_forgotten {
                contender.abandon();
            }
        }
    }

    /// The hold is given up without being released, as after a revocation, and asked for again.
    fn forget(&mut self, who: usize) {
        if let Some(create) = self.processes[who].held.take() {
            self.forgotten.push(create);
            self.start(who, Patience::Waits, self.processes[who].mode);
        }
    }

    /// The deadline passes, and then the store ends the session.
    fn expire(&mut self, who: usize) {
        let process = &mut self.processes[who];
        process.has_expired = true;
        process.held = None;
        process.reply = None;
        process.book.end();
        let session = process.session;
        self.store.sessions[session].is_over = true;
        self.store.remove(session);
    }

    /// An acquisition of another name moves the epoch.
    fn move_epoch_aside(&mut self, who: usize) {
        let process = &mut self.processes[who];
        self.store.revision += 1;
        self.store.sessions[process.session].epoch = self.store.revision;
        process.epoch = self.store.revision;
        if let Some(contender) = process.contender.as_mut().filter(|_| process.reply.is_none()) {
            contender.in_epoch(self.store.revision);
        }
    }

    /// An administrator removes an entry, of a holder or of one who waits.
    fn take_away(&mut self, which: usize) {
        let entries = self.store.entries();
        if !entries.is_empty() {
            let (session, entry) = entries[which % entries.len()];
            self.taken.push(entry.create);
            self.store.remove(session);
        }
    }

    /// The process reads its own entry, as it does when the watch on its key begins.
    fn read_own(&mut self, who: usize) {
        let process = &mut self.processes[who];
        if process.reply.is_some() {
            // What it shows of an entry that is not in the book is found out once that is watched.
            return;
        }
        let session = &self.store.sessions[process.session];
        if !session.is_over {
            let gone_before = session.entry.map_or(self.store.revision + 1, |entry| entry.create);
            process.reads.push(gone_before);
        }
    }

    fn hear_of_reads(&mut self, who: usize) -> Result<(), String> {
        if self.processes[who].reply.is_some() {
            self.processes[who].reads.clear();
        }
        for gone_before in std::mem::take(&mut self.processes[who].reads) {
            self.hear_of_deletion(who, gone_before)?;
        }
        Ok(())
    }

    /// All entries of the process that were created before that revision are gone.
    fn hear_of_deletion(&mut self, who: usize, gone_before: Revision) -> Result<(), String> {
        let process = &mut self.processes[who];
        let entry = self.store.sessions[process.session].entry.map(|entry| entry.create);
        let told = match self.mutant {
            Some(Mutant::HearsOldDeletions) => Revision::MAX,
            _ => gone_before,
        };
        let heard = if process.reply.is_some() { &mut process.told_early } else { &mut process.gone_before };
        *heard = gone_before.max(*heard);
        let lost = process.book.deleted(&name(), Slot::first(process.mode), told);
        if lost.is_some() && lost == entry {
            return Err(format!("{who} is told that it lost what is there"));
        }
        process.held = process.held.filter(|held| lost != Some(*held));
        Ok(())
    }

    /// The driver does what the engine asks for; `luck` says what becomes of a request.
    fn drive(&mut self, who: usize, luck: u16) -> Result<(), String> {
        if let Some(reply) = self.processes[who].reply.take() {
            self.answered(who, reply, luck);
            return Ok(());
        }
        let process = &self.processes[who];
        let Some(contender) = &process.contender else {
            return Ok(());
        };
        let (session, epoch, acquisition) = (process.session, process.epoch, process.acquisition);
        let what = match contender.next(NOW, process.deadline(), &process.told) {
            Step::Ask { enter } => {
                let enter = match enter {
                    Enter::NoneAfter { all, .. } if self.mutant == Some(Mutant::EntersAfterOthers) => {
                        Enter::NoneAfter { revision: Revision::MAX, all }
                    }
                    enter => enter,
                };
                let epoch = (self.mutant != Some(Mutant::IgnoresTheEpoch)).then_some(epoch);
                What::Ask { enter, mode: process.mode, acquisition, epoch }
            }
            Step::Delete(create) => What::Delete(create),
            Step::Settle => What::Move { epoch },
            Step::Find => match process.found.filter(|_| self.mutant == Some(Mutant::LooksOnce)) {
                Some(found) => {
                    self.answered(who, Reply::Found(found), luck);
                    return Ok(());
                }
                None => What::Find,
            },
            Step::Look { create, all } => What::Look(create, all),
            Step::Open(target) => {
                self.open_watch(who, target, luck);
                return Ok(());
            }
            Step::Wait if process.told.is_bounded() => return Ok(()),
            Step::Wait => return Err(format!("{who} keeps whatever is told")),
            Step::End(end) => return self.end(who, end),
        };
        let request = Request { session, what };
        if matches!(request.what, What::Ask { .. } | What::Look(..)) {
            self.processes[who].told.listen();
        }
        let choice = luck;
        // Answered, at once or later; carried out without an answer; on its way; refused, carried out or not; not applied.
        let luck = match request.what {
            What::Ask { .. } | What::Move { .. } if self.is_full => 8,
            _ if self.is_calm || self.is_full => 0,
            _ => luck % 10,
        };
        match luck {
            0..=4 => {
                let watch = self.covering(who);
                let mut reply = self.store.apply(&request);
                match &mut reply {
                    Reply::Asked(EntryReply { seen, .. }, _) | Reply::Looked(Some(seen), _) => {
                        seen.watch = watch
                    }
                    Reply::Barred(stood) => *stood = watch,
                    _ => {}
                }
                if luck > 2 {
                    self.processes[who].reply = Some(reply);
                } else {
                    self.answered(who, reply, choice);
                }
            }
            5 => {
                self.store.apply(&request);
                self.failed(who, &request);
            }
            6 => {
                self.delayed.push(request.clone());
                self.failed(who, &request);
            }
            7..=8 => {
                if luck == 7 {
                    self.store.apply(&request);
                }
                self.refused(who, &request, self.mutant != Some(Mutant::TrustsARefusal));
            }
            _ => self.refused(who, &request, false),
        }
        Ok(())
    }

    fn end(&mut self, who: usize, end: End) -> Result<(), String> {
        let process = &mut self.processes[who];
        let contender = process.contender.take();
        let entry = contender.and_then(|contender| contender.place().map(|place| place.create));
        if let End::Granted(create) = end {
            let hold = process.book.grant(&name(), create, NOW, NOW);
            if hold.is_none() && self.mutant != Some(Mutant::GrantsWithoutTheBook) {
                process.book.forget(&name(), create);
                return Ok(());
            }
            let entry = self.store.sessions[process.session].entry;
            if entry.is_some_and(|entry| entry.create == create) {
                if !self.store.admits(process.session) {
                    return Err(format!("{who} holds, and those before it do not admit it"));
                }
            } else if !self.taken.contains(&create) || process.was_admitted != create {
                return Err(format!("{who} holds an entry that is not there, or never was admitted"));
            }
            process.held = Some(create);
        } else if let Some(create) = entry {
            process.book.forget(&name(), create);
        }
        if matches!(end, End::Lost(_)) {
            // Whoever wants it asks again.
            self.start(who, Patience::Waits, self.processes[who].mode);
        }
        Ok(())
    }

    fn answered(&mut self, who: usize, mut reply: Reply, choice: u16) {
        if let Reply::Barred(watch) = reply {
            let Process { session, acquisition, epoch, .. } = self.processes[who];
            let epoch = (self.mutant != Some(Mutant::IgnoresTheEpoch)).then_some(epoch);
            reply = self.store.apply(&Request { session, what: What::Show { acquisition, epoch } });
            if let Reply::Asked(EntryReply { seen, .. }, _) = &mut reply {
                seen.watch = watch;
            }
        }
        if let Reply::Asked(EntryReply { seen, .. }, false) | Reply::Looked(Some(seen), false) = &mut reply {
            *seen = self.shown(who, seen.clone(), choice);
        }
        if let Reply::Looked(Some(seen), true) = &mut reply
            && self.mutant == Some(Mutant::ListsSome)
        {
            seen.older.truncate(1);
        }
        let epoch = self.store.sessions[self.processes[who].session].epoch;
        let process = &mut self.processes[who];
        let (Some(contender), told) = (&mut process.contender, &process.told) else {
            return;
        };
        match reply {
            Reply::Asked(answer, _) => {
                contender.asked(answer, told);
                if let Some(place) = contender.place() {
                    let (slot, by) = (Slot::first(process.mode), owner(process.acquisition));
                    process.book.enter(&name(), slot, place.create, by, NOW);
                }
                process.told.wait_for(contender.awaited());
            }
            Reply::Deleted(create) => {
                contender.found(None);
                process.book.forget(&name(), create);
            }
            Reply::Moved | Reply::Barred(_) | Reply::Checked(_) => {}
            Reply::Found(create) => {
                process.found = Some(create);
                contender.found(create);
            }
            Reply::Looked(seen, _) => {
                contender.looked(seen, told);
                process.told.wait_for(contender.awaited());
            }
            // The watch on the session's key tells, too.
            Reply::NoSession => process.has_expired = true,
        }
        process.epoch = epoch;
        contender.in_epoch(epoch);
    }

    fn refused(&mut self, who: usize, request: &Request, may_be_done: bool) {
        let waits_for_room = self.mutant == Some(Mutant::WaitsForRoom);
        if let Some(contender) = &mut self.processes[who].contender {
            match request.what {
                What::Ask { .. } if may_be_done => contender.failed(None),
                What::Move { .. } if !waits_for_room => contender.failed(None),
                _ => {}
            }
        }
    }

    fn failed(&mut self, who: usize, request: &Request) {
        let Some(contender) = &mut self.processes[who].contender else {
            return;
        };
        match (self.mutant, &request.what) {
            (Some(Mutant::TrustsSilence), _) => {}
            (Some(Mutant::SettlesUnconfirmed), What::Move { .. }) => contender.in_epoch(Revision::MAX),
            (Some(Mutant::SettlesByAnOlderEpoch), What::Ask { .. }) => {
                contender.failed(Some(0));
                contender.in_epoch(1);
            }
            (Some(Mutant::DeletesUnconfirmed), What::Delete(_)) => contender.found(None),
            (_, What::Ask { epoch, .. }) => {
                contender.failed(Some(epoch.unwrap_or_default()));
            }
            (_, What::Move { .. }) => contender.failed(None),
            _ => {}
        }
    }
}
