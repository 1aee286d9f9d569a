//! A store in a few lines, and processes that contend on it through the engine.

use lockcore::clock::{Deadline, Moment};

use super::super::*;
use super::mutant::Mutant;

/// A request as it travels; a copy may arrive at any time.
#[derive(Clone, Debug)]
struct Request {
    session: usize,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Ask { patience: Patience, acquisition: u32, epoch: Option<Revision> },
    Delete(Revision),
    Move { epoch: Revision },
    Find,
    Look(Revision),
}

#[derive(Debug)]
enum Reply {
    Asked(Answer),
    Deleted,
    Moved,
    Found(Option<Revision>),
    Looked { revision: Revision, present: bool, older: usize },
    NoSession,
}

#[derive(Debug, Default)]
struct Session {
    is_over: bool,
    epoch: Revision,
    /// When the entry was created, and by which acquisition.
    entry: Option<(Revision, u32)>,
}

#[derive(Debug)]
struct Process {
    session: usize,
    /// What it knows of its session.
    epoch: Revision,
    has_expired: bool,
    acquisition: u32,
    contender: Option<Contender>,
    held: Option<Revision>,
    watch: Option<Stream>,
}

#[derive(Clone, Debug)]
struct Stream {
    since: Revision,
    /// The last revision that was told.
    told: Revision,
}

pub(super) struct World {
    mutant: Option<Mutant>,
    revision: Revision,
    sessions: Vec<Session>,
    /// When, whose key, and when that was created.
    deletions: Vec<(Revision, usize, Revision)>,
    processes: Vec<Process>,
    delayed: Vec<Request>,
    acquisitions: u32,
    /// Holds that nobody released.
    forgotten: Vec<Revision>,
    /// The largest create revision that was granted.
    last_token: Revision,
    is_calm: bool,
}

const PROCESSES: usize = 3;
const NOW: Moment = Moment::from_nanos(1);

impl World {
    pub(super) fn new(mutant: Option<Mutant>) -> Self {
        let mut world = Self {
            mutant,
            revision: 1,
            sessions: Vec::new(),
            deletions: Vec::new(),
            processes: Vec::new(),
            delayed: Vec::new(),
            acquisitions: 0,
            forgotten: Vec::new(),
            last_token: 0,
            is_calm: false,
        };
        for _ in 0..PROCESSES {
            let (session, epoch) = world.open_session();
            world.processes.push(Process {
                session,
                epoch,
                has_expired: false,
                acquisition: 0,
                contender: None,
                held: None,
                watch: None,
            });
        }
        world
    }

    /// Something happens; an error is a broken promise.
    pub(super) fn act(&mut self, choice: u16) -> Result<(), String> {
        let who = usize::from(choice) % PROCESSES;
        let detail = choice / 64;
        match choice / 3 % 20 {
            0..=1 => {
                self.start(who, if detail.is_multiple_of(3) { Patience::Tries } else { Patience::Waits })
            }
            2..=9 => self.drive(who, detail)?,
            10..=13 => self.tell(who, detail),
            14 => self.cut(who),
            15 => self.leave(who),
            16 => self.forget(who),
            17 if !self.delayed.is_empty() => {
                let request = self.delayed.remove(usize::from(detail) % self.delayed.len());
                self.apply(&request);
            }
            18 if detail.is_multiple_of(4) => self.expire(who),
            18 => self.move_epoch_aside(who),
            19 => self.delete_a_waiter(usize::from(detail)),
            _ => {}
        }
        self.check()
    }

    /// No more faults: everybody who waits must hold in the end, and nothing must be left.
    pub(super) fn calm_down(&mut self) -> Result<(), String> {
        self.is_calm = true;
        for _ in 0..200 {
            for who in 0..PROCESSES {
                self.tell(who, 0);
                self.drive(who, 0)?;
                self.check()?;
                if self.processes[who].held.is_some() {
                    self.leave(who);
                }
            }
            for request in std::mem::take(&mut self.delayed) {
                self.apply(&request);
                self.check()?;
            }
        }
        match self.processes.iter().position(|process| process.contender.is_some()) {
            Some(stuck) => Err(format!("{stuck} waits for ever: {:?}", self.processes[stuck])),
            None => Ok(()),
        }
    }

    fn check(&self) -> Result<(), String> {
        let holders: Vec<_> = (0..PROCESSES)
            .filter(|who| self.processes[*who].held.is_some() && !self.processes[*who].has_expired)
            .collect();
        if holders.len() > 1 {
            return Err(format!("{holders:?} hold at once"));
        }
        for (who, process) in self.processes.iter().enumerate() {
            let idle = process.contender.is_none() && process.held.is_none();
            let left = self.sessions[process.session].entry.map(|(create, _)| create);
            if idle && left.is_some_and(|left| !self.forgotten.contains(&left)) {
                return Err(format!("{who} wants nothing and has an entry"));
            }
        }
        Ok(())
    }

    fn open_session(&mut self) -> (usize, Revision) {
        self.revision += 1;
        self.sessions.push(Session { is_over: false, epoch: self.revision, entry: None });
        (self.sessions.len() - 1, self.revision)
    }

    fn start(&mut self, who: usize, patience: Patience) {
        if self.processes[who].contender.is_some() || self.processes[who].held.is_some() {
            return;
        }
        if self.processes[who].has_expired {
            let (session, epoch) = self.open_session();
            let process = &mut self.processes[who];
            (process.session, process.epoch, process.has_expired) = (session, epoch, false);
            process.watch = None;
        }
        self.acquisitions += 1;
        let process = &mut self.processes[who];
        process.acquisition = self.acquisitions;
        process.contender = Some(Contender::new(patience));
    }

    /// Gives up waiting, or lets go.
    fn leave(&mut self, who: usize) {
        let process = &mut self.processes[who];
        if let Some(create) = process.held.take() {
            process.contender = (!process.has_expired).then(|| Contender::leaving(create));
        } else if let Some(contender) = &mut process.contender {
            // Whoever asks again for what it did not release does ask.
            let entry = self.sessions[process.session].entry;
            let has_forgotten = entry.is_some_and(|(create, _)| self.forgotten.contains(&create));
            if !self.is_calm && !has_forgotten {
                contender.abandon();
            }
        }
    }

    /// The hold is given up without being released, as after a revocation, and asked for again.
    fn forget(&mut self, who: usize) {
        if let Some(create) = self.processes[who].held.take() {
            self.forgotten.push(create);
            self.start(who, Patience::Waits);
        }
    }

    /// The deadline passes, and then the store ends the session.
    fn expire(&mut self, who: usize) {
        let process = &mut self.processes[who];
        process.has_expired = true;
        process.held = None;
        let session = process.session;
        self.sessions[session].is_over = true;
        self.remove(session);
    }

    /// An acquisition of another name moves the epoch.
    fn move_epoch_aside(&mut self, who: usize) {
        let process = &mut self.processes[who];
        self.revision += 1;
        self.sessions[process.session].epoch = self.revision;
        process.epoch = self.revision;
        if let Some(contender) = &mut process.contender {
            contender.in_epoch(self.revision);
        }
    }

    /// An administrator removes an entry that does not hold.
    fn delete_a_waiter(&mut self, which: usize) {
        let mut entries: Vec<_> = (0..self.sessions.len())
            .filter_map(|session| Some((self.sessions[session].entry?.0, session)))
            .collect();
        entries.sort_unstable();
        if entries.len() > 1 {
            self.remove(entries[1 + which % (entries.len() - 1)].1);
        }
    }

    fn remove(&mut self, session: usize) {
        if let Some((created, _)) = self.sessions[session].entry.take() {
            self.revision += 1;
            self.deletions.push((self.revision, session, created));
        }
    }

    /// The driver does what the engine asks for; `luck` says what becomes of a request.
    fn drive(&mut self, who: usize, luck: u16) -> Result<(), String> {
        let process = &self.processes[who];
        let Some(contender) = &process.contender else {
            return Ok(());
        };
        let deadline = Deadline::At(Moment::from_nanos(if process.has_expired { 0 } else { 2 }));
        let (session, epoch, acquisition) = (process.session, process.epoch, process.acquisition);
        let what = match contender.next(NOW, deadline) {
            Step::Ask => {
                let epoch = (self.mutant != Some(Mutant::IgnoresTheEpoch)).then_some(epoch);
                What::Ask { patience: contender.patience, acquisition, epoch }
            }
            Step::Delete(create) => What::Delete(create),
            Step::Settle => What::Move { epoch },
            Step::Find => What::Find,
            Step::Look(create) => What::Look(create),
            Step::Wait => {
                if process.watch.is_none() {
                    self.open_watch(who, luck);
                }
                return Ok(());
            }
            Step::End(end) => return self.end(who, end),
        };
        let request = Request { session, what };
        // Answered; carried out without an answer; on its way; refused, carried out or not; not applied.
        let luck = if self.is_calm { 0 } else { luck % 10 };
        match luck {
            0..=4 => {
                let reply = self.apply(&request);
                self.answered(who, reply);
            }
            5 => {
                self.apply(&request);
                self.failed(who, &request);
            }
            6 => {
                self.delayed.push(request.clone());
                self.failed(who, &request);
            }
            7..=8 => {
                if luck == 7 {
                    self.apply(&request);
                }
                let trusts = self.mutant == Some(Mutant::TrustsARefusal);
                self.refused(who, &request, if trusts { Failure::NotApplied } else { Failure::Refused });
            }
            _ => self.refused(who, &request, Failure::NotApplied),
        }
        Ok(())
    }

    fn end(&mut self, who: usize, end: End) -> Result<(), String> {
        let process = &mut self.processes[who];
        process.contender = None;
        if let End::Granted(create) = end {
            let session = &self.sessions[process.session];
            if session.entry.map(|(created, _)| created) != Some(create) {
                return Err(format!("{who} holds an entry that is not there"));
            }
            let older =
                self.sessions.iter().filter_map(|other| other.entry).filter(|(other, _)| *other < create);
            if older.count() > 0 {
                return Err(format!("{who} holds before others"));
            }
            if create <= self.last_token {
                return Err(format!("{who} holds with token {create} after {}", self.last_token));
            }
            self.last_token = create;
            process.held = Some(create);
        }
        Ok(())
    }

    fn answered(&mut self, who: usize, reply: Reply) {
        let epoch = self.sessions[self.processes[who].session].epoch;
        let process = &mut self.processes[who];
        let Some(contender) = &mut process.contender else {
            return;
        };
        match reply {
            Reply::Asked(answer) => {
                let since = process.watch.as_ref().map(|watch| watch.since);
                contender.asked(&answer, since);
            }
            Reply::Deleted => contender.deleted(),
            Reply::Moved => {}
            Reply::Found(create) => contender.found(create),
            Reply::Looked { revision, present, older } => contender.looked(revision, present, older),
            // The watch on the session's key tells, too.
            Reply::NoSession => process.has_expired = true,
        }
        process.epoch = epoch;
        contender.in_epoch(epoch);
    }

    fn refused(&mut self, who: usize, request: &Request, failure: Failure) {
        if let Some(contender) = &mut self.processes[who].contender
            && let What::Ask { epoch, .. } = request.what
        {
            contender.failed(failure, epoch.unwrap_or_default());
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
                contender.failed(Failure::Unanswered, 0);
                contender.in_epoch(1);
            }
            (Some(Mutant::DeletesUnconfirmed), What::Delete(_)) => contender.deleted(),
            (_, What::Ask { epoch, .. }) => {
                contender.failed(Failure::Unanswered, epoch.unwrap_or_default());
            }
            _ => {}
        }
    }

    fn apply(&mut self, request: &Request) -> Reply {
        let id = request.session;
        if self.sessions[id].is_over && !matches!(request.what, What::Delete(_)) {
            return Reply::NoSession;
        }
        let creates = |world: &Self| -> Vec<Revision> {
            world.sessions.iter().filter_map(|session| session.entry).map(|(create, _)| create).collect()
        };
        match request.what {
            What::Ask { patience, acquisition, epoch } => {
                let before = creates(self);
                let entry = self.sessions[id].entry;
                let in_epoch = epoch.is_none_or(|epoch| epoch == self.sessions[id].epoch);
                let is_free = match patience {
                    Patience::Waits => entry.is_none(),
                    Patience::Tries => before.is_empty(),
                };
                if is_free && in_epoch {
                    self.revision += 1;
                    self.sessions[id].entry = Some((self.revision, acquisition));
                    return Reply::Asked(Answer::Entered { revision: self.revision, older: before.len() });
                }
                let adopts = self.mutant == Some(Mutant::AdoptsAnything);
                let mine = entry.map(|(create, by)| (create, adopts || by == acquisition));
                let own = entry.map_or(Revision::MAX, |(create, _)| create);
                let older = before.iter().filter(|create| **create < own).count();
                Reply::Asked(Answer::NotEntered { revision: self.revision, mine, older, in_epoch })
            }
            What::Delete(create) => {
                if self.sessions[id].entry.is_some_and(|(created, _)| created == create) {
                    self.remove(id);
                }
                Reply::Deleted
            }
            What::Move { epoch } => {
                if self.sessions[id].epoch == epoch {
                    self.revision += 1;
                    self.sessions[id].epoch = self.revision;
                }
                Reply::Moved
            }
            What::Find => Reply::Found(self.sessions[id].entry.map(|(create, _)| create)),
            What::Look(create) => Reply::Looked {
                revision: self.revision,
                present: self.sessions[id].entry.is_some_and(|(created, _)| created == create),
                older: creates(self).iter().filter(|other| **other < create).count(),
            },
        }
    }

    /// Opens the watch, perhaps at a member that lags behind.
    fn open_watch(&mut self, who: usize, luck: u16) {
        let since = self.revision - Revision::from(luck % 3);
        let process = &mut self.processes[who];
        let since = match self.mutant {
            Some(Mutant::BackdatesTheWatch) => 0,
            _ => since,
        };
        process.watch = Some(Stream { since, told: since.max(self.revision - 2) });
        if let Some(contender) = &mut process.contender {
            contender.watched(Some(since));
        }
    }

    /// The watch tells everything of the next revision; or the last again, or without its past.
    fn tell(&mut self, who: usize, luck: u16) {
        let process = &mut self.processes[who];
        let Some(watch) = &mut process.watch else {
            return;
        };
        let again = !self.is_calm && luck % 5 == 1;
        let after = if again { watch.told - 1 } else { watch.told }.max(watch.since);
        let Some(revision) = self.deletions.iter().map(|(at, ..)| *at).filter(|at| *at > after).min() else {
            return;
        };
        watch.told = watch.told.max(revision);
        let forgets = !self.is_calm && luck % 7 == 2;
        let counts_everything = self.mutant == Some(Mutant::CountsEverything);
        let deletes: Vec<_> = self
            .deletions
            .iter()
            .filter(|(at, ..)| *at == revision)
            .map(|(_, session, created)| Delete {
                revision,
                key: [u8::try_from(session % 256).unwrap()].into(),
                created: if counts_everything { Some(0) } else { (!forgets).then_some(*created) },
                mine: *session == process.session,
            })
            .collect();
        if let Some(contender) = &mut process.contender {
            contender.saw(&deletes);
        }
    }

    fn cut(&mut self, who: usize) {
        let process = &mut self.processes[who];
        if self.mutant == Some(Mutant::MissesTheGap) {
            if let Some(watch) = &mut process.watch {
                watch.told = self.revision;
            }
            return;
        }
        process.watch = None;
        if let Some(contender) = &mut process.contender {
            contender.watched(None);
        }
    }
}
