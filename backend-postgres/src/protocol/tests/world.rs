//! Processes that contend for one name on the server, each with one request under way, and what may go wrong.

use ::model::Held;
use leasehold_core::clock::{Deadline, Moment};
use leasehold_core::{LockName, Mode, OwnerId};

use super::super::*;
use super::server::{Grant, Server, Tables};
use super::{Mutant, NOW};

/// An entry stays although nobody waits or holds by it.
pub(super) const STUCK: &str = "an entry that nobody knows is kept alive";
/// A removal by force that was answered does not last.
pub(super) const UNDONE: &str = "a removed entry is there again";

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) mutant: Option<Mutant>,
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
    pub(super) broken: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) book: SessionBook,
    pub(super) contender: Option<Contender>,
    pub(super) mode: Mode,
    pub(super) owner: u8,
    pub(super) wants: u8,
    pub(super) held: Option<Held>,
    /// The number, and the owner, of a hold that is being released.
    pub(super) releasing: Option<Seq>,
    pub(super) on: Generation,
    pub(super) request: Option<Request>,
    pub(super) reply: Option<Reply>,
    /// The lease that it trusts; `None` once its deadline has passed.
    pub(super) trusts: Option<u8>,
    pub(super) renewal: Option<Renewing>,
    pub(super) renewals: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Renewing {
    /// The server has locked the row.
    Begun,
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Request {
    pub(super) what: What,
    pub(super) on: Generation,
    /// The tables as its snapshot shows them, once it has one.
    pub(super) seen: Option<Tables>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum What {
    Acquire { epoch: i32, owner: u8 },
    Flush,
    Release(Seq),
    Abandon(u8),
    Mine,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reply {
    Acquired(Grant, u8, Generation),
    Refused,
    Flushed(Generation),
    Released(Seq),
    Abandoned,
    Mine(i32, Vec<Seq>, Generation),
    SessionIsOver,
}

/// Who does what.
#[derive(Clone, Copy, Debug)]
pub(super) enum Choice {
    Begins(usize),
    Drives(usize),
    Leaves(usize),
    Releases(usize),
    Starts(usize),
    Commits(usize),
    Hears(usize),
    Renews(usize),
    GivesUp(usize),
    Delivers(usize),
    Loses(usize),
    CarriesOutAnOrphan,
    Cuts(usize),
    Expires(usize),
    Crashes(usize),
    Promotes(Seq),
    Revokes,
    Forges(usize),
}

impl World {
    pub(super) fn new(mutant: Option<Mutant>) -> Self {
        let process = |mode| Process {
            book: SessionBook::new(Deadline::Never, 1),
            contender: None,
            mode,
            owner: 0,
            wants: 2,
            held: None,
            releasing: None,
            on: 1,
            request: None,
            reply: None,
            trusts: Some(1),
            renewal: None,
            renewals: 1,
        };
        let modes = [Mode::EXCLUSIVE, Mode::EXCLUSIVE, Mode::SHARED];
        Self {
            mutant,
            server: Server::new(modes.len()),
            processes: modes.map(process).into(),
            locked_by: None,
            orphans: Vec::new(),
            messages: Vec::new(),
            faults: 3,
            age: 0,
            crashes: 1,
            cuts: 1,
            promotions: 2,
            revocations: 1,
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
            process.request = Some(Request { what: What::Release(seq), on: process.on, seen: None });
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
                What::Acquire { epoch, owner: process.owner }
            }
            Step::Flush => What::Flush,
            Step::Release(seq) => What::Release(seq),
            Step::Abandon => What::Abandon(process.owner),
            Step::Wait => return,
            Step::AcquireEnd(end) => {
                process.contender = None;
                if let AcquireEnd::Granted(seq) = end
                    && process.book.grant(seq, NOW).is_some()
                {
                    let counter = seq.unsigned_abs();
                    let is_overruled = self.server.now.revoked.contains(&seq);
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
            What::Release(_) | What::Abandon(_) => self.locked_by.is_none() || self.is(Mutant::TakesNoLock),
            // It waits for an `acquire` of its session under way.
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
        let session = self.server.now.sessions[who];
        match request.what {
            What::Acquire { epoch, owner } => {
                self.locked_by = self.locked_by.filter(|by| *by != who);
                let seen = request.seen.clone().unwrap_or_else(|| self.server.now.clone());
                if session.is_over || session.is_late {
                    return Reply::SessionIsOver;
                }
                if session.epoch != epoch {
                    return Reply::Refused;
                }
                let mut seen = seen;
                if seen.sessions.iter().any(|session| session.is_late) {
                    let told = self.server.settle(None, mutant);
                    self.tell(&told);
                    seen = self.server.now.clone();
                }
                let mode = self.processes[who].mode;
                Reply::Acquired(self.server.acquire(&seen, (who, owner, mode)), owner, request.on)
            }
            What::Flush => {
                self.server.flush();
                Reply::Flushed(request.on)
            }
            What::Release(seq) => {
                self.removes(seq);
                Reply::Released(seq)
            }
            What::Abandon(owner) => {
                let own = self.server.now.rows.iter().find(|row| (row.session, row.owner) == (who, owner));
                if let Some(seq) = own.map(|row| row.seq) {
                    self.removes(seq);
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
                let own = self.server.now.rows.iter().filter(|row| row.session == who);
                Reply::Mine(epoch, own.map(|row| row.seq).collect(), request.on)
            }
        }
    }

    /// `release`, which commits without waiting for the disk.
    pub(super) fn removes(&mut self, seq: Seq) {
        let told = self.server.settle(Some(seq), self.mutant);
        self.server.commit(false);
        self.tell(&told);
    }

    pub(super) fn tell(&mut self, holders: &[(usize, Seq)]) {
        let messages = holders.iter().map(|(who, seq)| (*who, Notice::Told(*seq, EntryNews::Holds)));
        self.messages.extend(messages);
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
                let counts = grant.seq.is_none_or(|seq| process.book.enter(&name, seq, by, on));
                process.book.asked();
                if let Some(before) = before.filter(|before| Some(*before) != grant.seq) {
                    process.book.forget(before);
                }
                if let Some(contender) = &mut process.contender {
                    match counts {
                        true => contender.asked(AcquireReply { granted: grant.granted, seq: grant.seq, on }),
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
            Reply::Abandoned => process.contender.iter_mut().for_each(Contender::removed),
            Reply::Mine(epoch, there, on) => {
                let found = process.book.compare(&there);
                process.book.in_epoch(on, epoch);
                for (_, seq) in found.lost {
                    process.book.forget(seq);
                    process.held = None;
                }
                for seq in found.unknown.into_iter().filter(|_| reconciles) {
                    self.removes(seq);
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
        (process.releasing, process.request, process.reply) = (None, None, None);
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
        }
        self.messages.retain(|(to, _)| *to != who);
        match request.filter(|_| is_sent) {
            Some(request) => self.orphans.push((who, request)),
            None => self.locked_by = self.locked_by.filter(|by| *by != who),
        }
    }

    pub(super) fn crash(&mut self, kept: usize) {
        self.server.crash(kept);
        (self.locked_by, self.orphans) = (None, Vec::new());
        for who in 0..self.processes.len() {
            self.processes[who].renewal = None;
            self.cuts(who, false);
        }
        let is_back = |seq: &Seq| self.server.now.rows.iter().any(|row| row.seq == *seq);
        let answered = &self.server.now.revoked;
        if self.revocations == 0 && answered.is_empty() || answered.iter().any(is_back) {
            self.broken = Some(UNDONE);
        }
    }

    pub(super) fn renews(&mut self, who: usize) {
        let session = self.server.now.sessions[who];
        match self.processes[who].renewal {
            None if !session.is_late && !session.is_over => {
                self.server.renewing.push(who);
                self.processes[who].renewal = Some(Renewing::Begun);
                self.processes[who].renewals -= 1;
            }
            None => {}
            Some(Renewing::Begun) => {
                self.server.renewing.retain(|other| *other != who);
                let row = &mut self.server.now.sessions[who];
                (row.lease, row.is_late) = (row.lease + 1, false);
                self.server.commit(true);
                self.processes[who].renewal = Some(Renewing::Done);
            }
            Some(Renewing::Done) => {
                self.processes[who].renewal = None;
                let lease = self.server.now.sessions[who].lease;
                if let Some(trusts) = &mut self.processes[who].trusts {
                    *trusts = lease;
                }
            }
        }
    }

    /// Whether the server may find now that the lease of a session has ended.
    pub(super) fn may_expire(&self, who: usize) -> bool {
        let (session, process) = (self.server.now.sessions[who], &self.processes[who]);
        let is_renewed = process.renewal.is_some();
        let is_trusted = process.trusts.is_some_and(|trusts| session.lease >= trusts);
        !session.is_late
            && (!is_trusted
                || is_renewed && self.is(Mutant::EndsByReading) && process.renewal == Some(Renewing::Begun))
    }
}

fn name() -> LockName {
    LockName::new("a").unwrap()
}
