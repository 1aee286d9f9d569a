//! Processes that contend for one name on the server: what they do, and what the server does with their requests.

use ::model::Held;
use leasehold_core::clock::{Deadline, Moment};
use leasehold_core::{LockName, Mode, OwnerId};

use super::super::*;
use super::processes::{Choice, Process, Renewing, Reply, Request, What};
use super::server::{Row, Server, SessionRow, holders};
use super::{Mutant, NOW};

/// An entry stays although nobody waits or holds by it.
pub(super) const STUCK: &str = "an entry that nobody knows is kept alive";
/// A removal by force that was answered does not last.
pub(super) const UNDONE: &str = "a removed entry is there again";
/// A process holds by an entry although it was told of its removal.
pub(super) const REVIVED: &str = "an entry is held after its removal was told";
/// A process goes on holding, and no renewal will tell it of the removal.
pub(super) const UNHEARD: &str = "a renewal does not tell of a removal";

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) mutant: Option<Mutant>,
    /// The clients are behind a pooler: no message arrives, and a crash breaks no idle connection.
    pub(super) is_pooled: bool,
    pub(super) server: Server,
    pub(super) processes: Vec<Process>,
    /// Who has the lock of the name.
    pub(super) locked_by: Option<usize>,
    /// Requests of connections that broke, which the server may still carry out.
    pub(super) orphans: Vec<(usize, Request)>,
    pub(super) messages: Vec<(usize, Notice)>,
    /// So many things may still go wrong, at every fifth step only: else most walks would end before somebody holds.
    pub(super) faults: u8,
    pub(super) age: u8,
    pub(super) crashes: u8,
    pub(super) cuts: u8,
    pub(super) promotions: u8,
    pub(super) revocations: u8,
    pub(super) fences: u8,
    pub(super) broken: Option<&'static str>,
}

impl World {
    pub(super) fn new(mutant: Option<Mutant>, is_pooled: bool) -> Self {
        let process = |mode| Process {
            book: SessionBook::new(Deadline::Never, 1, 1 << 32),
            contender: None,
            mode,
            owner: 0,
            wants: 2,
            held: None,
            releasing: None,
            on: 1,
            past: 1 << 32,
            gone: Vec::new(),
            request: None,
            reply: None,
            trusts: Some(1),
            renewal: None,
            renewals: 1,
        };
        let modes = [Mode::EXCLUSIVE, Mode::EXCLUSIVE, Mode::SHARED];
        Self {
            mutant,
            is_pooled,
            server: Server::new(modes.len()),
            processes: modes.map(process).into(),
            locked_by: None,
            orphans: Vec::new(),
            messages: Vec::new(),
            faults: 3,
            age: 0,
            crashes: 2,
            cuts: 1,
            promotions: 2,
            revocations: 1,
            fences: 1,
            broken: None,
        }
    }

    pub(super) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// What the engine does next, as a request.
    pub(super) fn drives(&mut self, who: usize) {
        let process = &mut self.processes[who];
        let deadline =
            if process.trusts.is_some() { Deadline::Never } else { Deadline::At(Moment::from_nanos(0)) };
        let Some(epoch) = process.book.epoch_on(process.on) else {
            process.book.moves_to(process.on);
            process.request = Some(Request { what: What::Mine, on: process.on, seen: None });
            return;
        };
        if let Some(seq) = process.releasing {
            let what = What::Release(seq, process.book.low(&name()));
            process.request = Some(Request { what, on: process.on, seen: None });
            return;
        }
        let Some(contender) = &mut process.contender else {
            return;
        };
        let told = contender.seq().map_or(EntryNews::Nothing, |seq| process.book.told(seq));
        let step = match contender.next(NOW, deadline, process.book.generation(), told) {
            // Looks are due at any time.
            Step::Wait => {
                contender.doubt();
                Step::Ask
            }
            step => step,
        };
        let what = match step {
            Step::Ask => {
                process.book.asks();
                What::Acquire { epoch, owner: process.owner, low: process.book.low(&name()) }
            }
            Step::Flush if self.mutant == Some(Mutant::HoldsUnflushed) => {
                contender.flushed(process.on);
                return;
            }
            Step::Flush => What::Flush,
            Step::Release(seq) => What::Release(seq, process.book.low(&name())),
            Step::Abandon => What::Abandon(process.owner),
            Step::Wait => return,
            Step::AcquireEnd(end) => {
                process.contender = None;
                if let AcquireEnd::Granted(seq) = end
                    && process.book.grant(seq, NOW).is_some()
                {
                    let counter = seq.unsigned_abs();
                    let is_lost = self.server.lost.contains(&seq) && !self.server.has(seq);
                    let is_overruled = is_lost || self.server.now.revoked.contains(&seq);
                    let is_revived = process.gone.contains(&seq);
                    self.broken = self.broken.or_else(|| is_revived.then_some(REVIVED));
                    process.held = Some(Held { actor: who, mode: process.mode, counter, is_overruled });
                }
                return;
            }
        };
        process.request = Some(Request { what, on: process.on, seen: None });
    }

    /// A request gets its lock, and its snapshot.
    pub(super) fn starts(&mut self, who: usize) {
        let locks = !self.is(Mutant::TakesNoLock);
        self.server.begin(self.mutant);
        let now = self.server.now.clone();
        let is_early = self.is(Mutant::LocksWithinAStatement) || self.is(Mutant::ReadsRepeatably);
        let Some(request) = &mut self.processes[who].request else {
            return;
        };
        if request.seen.is_none() && is_early && self.locked_by.is_some() {
            request.seen = Some(now);
            return;
        }
        request.seen.get_or_insert(now);
        if locks {
            self.locked_by = Some(who);
        }
    }

    pub(super) fn may_start(&self, who: usize, request: &Request) -> bool {
        matches!(request.what, What::Acquire { .. })
            && (self.locked_by.is_none() || self.is(Mutant::TakesNoLock) || {
                let is_early = self.is(Mutant::LocksWithinAStatement) || self.is(Mutant::ReadsRepeatably);
                is_early && request.seen.is_none()
            })
            && (request.seen.is_none() || self.locked_by != Some(who))
    }

    pub(super) fn may_commit(&self, who: usize, request: &Request) -> bool {
        match request.what {
            What::Acquire { .. } => {
                request.seen.is_some() && (self.locked_by == Some(who) || self.is(Mutant::TakesNoLock))
            }
            // They take the lock of the name for a moment.
            What::Release(..) | What::Abandon(_) => self.locked_by.is_none() || self.is(Mutant::TakesNoLock),
            // It waits for an `acquire` of its session under way.
            What::Mine if self.is(Mutant::MineTakesNoLockAndOwnersChange) => true,
            What::Mine => {
                let is_acquiring = |(whose, orphan): &(usize, Request)| {
                    *whose == who && orphan.seen.is_some() && matches!(orphan.what, What::Acquire { .. })
                };
                !self.orphans.iter().any(is_acquiring)
            }
            What::Flush => true,
        }
    }

    /// The server carries out a request, and answers.
    pub(super) fn carries_out(&mut self, who: usize, request: &Request) -> Reply {
        let mutant = self.mutant;
        self.server.begin(mutant);
        let session = self.server.now.sessions[who];
        match request.what {
            What::Acquire { epoch, owner, low } => {
                let low = self.server.bound(low, mutant);
                self.locked_by = self.locked_by.filter(|by| *by != who);
                let mut seen = request.seen.clone().unwrap_or_else(|| self.server.now.clone());
                if session.is_over || session.is_late {
                    return Reply::SessionIsOver;
                }
                if seen.sessions[who].epoch != epoch {
                    return Reply::Refused;
                }
                let is_ending = |session: &SessionRow| session.is_late || session.is_over;
                if seen.rows.iter().any(|row| row.is_gone || is_ending(&seen.sessions[row.session])) {
                    let told = self.server.settle(low, None, mutant);
                    self.tell(&told);
                    seen = self.server.now.clone();
                }
                let own = (who, owner, self.processes[who].mode);
                Reply::Acquired(self.server.acquire(&seen, own, low, mutant), owner, request.on)
            }
            What::Flush => {
                self.server.flush();
                Reply::Flushed(request.on)
            }
            What::Release(seq, low) => {
                self.removes(seq, self.server.bound(low, mutant));
                Reply::Released(seq)
            }
            What::Abandon(owner) => {
                let own = self
                    .server
                    .now
                    .rows
                    .iter()
                    .find(|row| (row.session, row.owner, row.is_gone) == (who, owner, false));
                if let Some(seq) = own.map(|row| row.seq) {
                    self.removes(seq, 0);
                }
                Reply::Abandoned
            }
            What::Mine => {
                if session.is_over || session.is_late {
                    return Reply::SessionIsOver;
                }
                let row = &mut self.server.now.sessions[who];
                row.epoch += 1;
                let epoch = row.epoch;
                self.server.commit(true);
                Reply::Mine(epoch, self.past(), self.standing(who), request.on)
            }
        }
    }

    /// `release`, which commits without waiting for the disk.
    pub(super) fn removes(&mut self, seq: Seq, low: Seq) {
        let told = self.server.settle(low, Some(seq), self.mutant);
        self.server.commit(false);
        self.tell(&told);
    }

    pub(super) fn tell(&mut self, told: &[(usize, Seq, EntryNews)]) {
        let messages = told.iter().map(|(who, seq, told)| (*who, Notice::Told(*seq, *told)));
        self.messages.extend(messages.filter(|_| !self.is_pooled));
    }

    /// What renewals and `mine` tell of the era and of crashes.
    pub(super) fn past(&self) -> i64 {
        let crashes = if self.mutant == Some(Mutant::TellsNoCrash) { 0 } else { self.server.now.crashes };
        self.server.now.era << 32 | crashes
    }

    /// The entries of a session.
    fn standing(&self, who: usize) -> Vec<Seq> {
        let own = self.server.now.rows.iter().filter(|row| row.session == who && !row.is_gone);
        own.map(|row| row.seq).collect()
    }

    /// A process learns that its entry was removed by force.
    pub(super) fn takes_away(&mut self, who: usize, seq: Seq) {
        let process = &mut self.processes[who];
        process.gone.push(seq);
        if process.book.taken(seq).is_some() {
            process.held = None;
        }
    }

    /// `fence` in a transaction of a user, which stays open.
    pub(super) fn fences(&mut self, who: usize) -> Option<()> {
        self.server.begin(self.mutant);
        let held = self.processes[who].held?;
        let session = self.server.now.sessions[who];
        let holds = holders(&self.server.now.rows, 0).contains(&(who, held.counter.cast_signed()));
        let is_gone = |row: &Row| row.is_gone && row.seq.unsigned_abs() == held.counter;
        if holds && !session.is_over && !session.is_late && !self.server.now.rows.iter().any(is_gone) {
            self.fences -= 1;
            self.server.fenced.push(Held { is_overruled: false, ..held });
        }
        Some(())
    }

    pub(super) fn hears(&mut self, who: usize) {
        let reconciles = !self.is(Mutant::ReconcilesNothing);
        let process = &mut self.processes[who];
        let Some(reply) = process.reply.take() else {
            return;
        };
        let name = name();
        match reply {
            Reply::Acquired(grant, owner, on) => {
                let by = OwnerId::from_random([owner; 16]);
                let before = process.contender.as_ref().and_then(Contender::seq);
                let counts = process.book.enter(&name, grant.seq, by, on);
                process.book.learn(&name, grant.first, on);
                process.book.asked();
                if let Some(before) = before.filter(|before| *before != grant.seq) {
                    process.book.forget(before);
                }
                if let Some(contender) = &mut process.contender {
                    match counts {
                        true => {
                            contender.asked(AcquireReply { granted: grant.granted, seq: Some(grant.seq), on })
                        }
                        false => contender.failed(),
                    }
                }
            }
            Reply::Refused => process.book.asked(),
            Reply::Flushed(on) => {
                if let Some(contender) = &mut process.contender {
                    contender.flushed(on);
                }
            }
            Reply::Released(seq) => {
                process.book.forget(seq);
                match process.releasing.take() {
                    Some(_) => {}
                    None => process.contender.iter_mut().for_each(Contender::removed),
                }
            }
            Reply::Abandoned => {
                if let Some(contender) = &mut process.contender {
                    contender.seq().into_iter().for_each(|seq| process.book.forget(seq));
                    contender.removed();
                }
            }
            Reply::Mine(epoch, past, there, on) => {
                let found = process.book.compare(&there);
                process.book.in_epoch(on, epoch, past);
                process.past = past;
                for (_, seq) in found.lost {
                    process.book.forget(seq);
                    process.held = None;
                }
                for seq in found.unknown.into_iter().filter(|_| reconciles) {
                    self.removes(seq, 0);
                }
            }
            Reply::SessionIsOver => self.gives_up(who),
        }
    }

    /// Its deadline passes: it holds nothing and asks for nothing any more.
    pub(super) fn gives_up(&mut self, who: usize) {
        let process = &mut self.processes[who];
        process.book.end();
        (process.trusts, process.held, process.contender, process.wants) = (None, None, None, 0);
        (process.releasing, process.request, process.reply, process.renewal) = (None, None, None, None);
        self.server.renewing.retain(|other| *other != who);
        self.locked_by = self.locked_by.filter(|by| *by != who);
    }

    /// The connections of a process break; its request may be carried out later, or never.
    pub(super) fn cuts(&mut self, who: usize, is_sent: bool) {
        let process = &mut self.processes[who];
        process.on += 1;
        let was_answered = process.reply.take();
        let request = process.request.take();
        let is_asking = matches!(request.as_ref().map(|request| request.what), Some(What::Acquire { .. }))
            || matches!(was_answered, Some(Reply::Acquired(..) | Reply::Refused));
        if is_asking {
            process.book.asked();
            process.contender.iter_mut().for_each(Contender::failed);
            if self.mutant == Some(Mutant::MineTakesNoLockAndOwnersChange) {
                process.owner += 1;
            }
        }
        self.messages.retain(|(to, _)| *to != who);
        match request.filter(|_| is_sent) {
            Some(request) => self.orphans.push((who, request)),
            None => self.locked_by = self.locked_by.filter(|by| *by != who),
        }
    }

    /// Another server takes over. It is not promised that it has what was granted, nor that it has removed what was.
    pub(super) fn is_replaced(&mut self, by: Choice) {
        match by {
            Choice::Promotes => self.server.promote(),
            Choice::Upgrades => self.server.upgrade(),
            _ => self.server.come_back(),
        }
        let server = &self.server;
        for process in &mut self.processes {
            process.gone.retain(|seq| !server.has(*seq));
            if let Some(held) = &mut process.held {
                held.is_overruled |= !server.has(held.counter.cast_signed());
            }
        }
        self.breaks_connections();
    }

    /// A crash has happened.
    pub(super) fn breaks_connections(&mut self) {
        (self.locked_by, self.orphans) = (None, Vec::new());
        for who in 0..self.processes.len() {
            let is_waiting = |renewal: &Renewing| matches!(renewal, Renewing::Begun | Renewing::Asks { .. });
            let process = &mut self.processes[who];
            let is_idle = process.request.is_none() && !process.renewal.as_ref().is_some_and(is_waiting);
            if !self.is_pooled || !is_idle {
                process.renewal = None;
                self.cuts(who, false);
            }
        }
    }

    pub(super) fn renews(&mut self, who: usize) {
        self.server.begin(self.mutant);
        let session = self.server.now.sessions[who];
        let process = &mut self.processes[who];
        match process.renewal.take() {
            None if !session.is_late && !session.is_over => {
                self.server.renewing.push(who);
                process.renewal = Some(Renewing::Begun);
                process.renewals -= 1;
            }
            None => {}
            Some(Renewing::Begun) => {
                self.server.renewing.retain(|other| *other != who);
                let row = &mut self.server.now.sessions[who];
                (row.lease, row.is_late, row.is_misdated) = (row.lease + 1, false, false);
                self.server.commit(true);
                let (row, past) = (self.server.now.sessions[who], self.past());
                self.processes[who].renewal = Some(Renewing::Done { row, past });
            }
            Some(Renewing::Done { row, past }) => {
                process.trusts = process.trusts.map(|_| row.lease);
                process.past = past;
                if process.book.is_other_past(process.on, past) && self.mutant != Some(Mutant::HearsNoEra) {
                    self.cuts(who, true);
                } else if self.mutant == Some(Mutant::HearsNoRemoval) {
                    process.book.knows(row.taken);
                } else if process.book.misses(row.taken) {
                    let (known, are_all) = process.book.known();
                    process.renewal = Some(Renewing::Asks { taken: row.taken, known, are_all });
                }
            }
            Some(Renewing::Asks { taken, mut known, are_all }) => {
                let there = self.standing(who);
                known.retain(|seq| !there.contains(seq));
                self.processes[who].renewal = Some(Renewing::Shows { taken, gone: known, are_all });
            }
            Some(Renewing::Shows { taken, gone, are_all }) => {
                gone.into_iter().for_each(|seq| self.takes_away(who, seq));
                if are_all {
                    self.processes[who].book.knows(taken);
                }
            }
        }
    }

    /// Whether a process holds what was removed, although it knows of every removal.
    pub(super) fn is_unheard(&self, who: usize) -> bool {
        let is_removed = |held: Held| self.server.now.revoked.contains(&held.counter.cast_signed());
        let process = &self.processes[who];
        process.held.is_some_and(is_removed) && !process.book.misses(self.server.now.sessions[who].taken)
    }

    /// Whether the server may find now that the lease of a session has ended.
    pub(super) fn may_expire(&self, who: usize) -> bool {
        let (session, process) = (self.server.now.sessions[who], &self.processes[who]);
        let is_trusted = process.trusts.is_some_and(|trusts| session.lease >= trusts);
        !session.is_late
            && (!is_trusted
                || session.is_misdated
                || process.renewal == Some(Renewing::Begun) && self.is(Mutant::EndsByReading))
    }
}

fn name() -> LockName {
    LockName::new("a").unwrap()
}
