//! A store in a few lines, and the requests to it.

use leasehold_core::backend::Load;

use super::super::*;

/// A request as it travels; a copy may arrive at any time.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) session: usize,
    pub(super) what: What,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    Ask {
        enter: Enter,
        mode: Mode,
        acquisition: u32,
        epoch: Option<Revision>,
    },
    /// What the queue shows to whoever has an entry in it, or would have.
    Show {
        acquisition: u32,
        epoch: Option<Revision>,
    },
    Delete(Revision),
    Move {
        epoch: Revision,
    },
    Find,
    /// Of the entry created at that revision; all that is older, or some.
    Look(Revision, bool),
    /// Whether our entry and others are there, created at those revisions.
    Check(Revision, Vec<Rival>),
}

#[derive(Debug)]
pub(super) enum Reply {
    /// Whether all was asked for.
    Asked(EntryReply, bool),
    /// The entry of one who waits was not put; what is there is read next. The watch that stood when it was asked for.
    Barred(Option<WatchId>),
    Deleted(Revision),
    Moved,
    Found(Option<Revision>),
    /// `None` if our entry was not there; whether all was asked for.
    Looked(Option<QueueSnapshot>, bool),
    Checked(bool),
    NoSession,
}

#[derive(Debug, Default)]
pub(super) struct Session {
    pub(super) is_over: bool,
    pub(super) epoch: Revision,
    pub(super) entry: Option<Entry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) create: Revision,
    /// Which acquisition created it.
    by: u32,
    pub(super) mode: Mode,
}

#[derive(Debug, Default)]
pub(super) struct Store {
    pub(super) revision: Revision,
    pub(super) sessions: Vec<Session>,
    /// When, and which key.
    pub(super) deletions: Vec<(Revision, Key)>,
    /// An entry was put where it does not hold, by a try that was to be put only where it does.
    pub(super) bars_others: bool,
    /// It says that every entry is that of whoever asks.
    pub(super) is_mistaken_for_mine: bool,
}

impl Store {
    pub(super) fn open_session(&mut self) -> (usize, Revision) {
        self.revision += 1;
        self.sessions.push(Session { is_over: false, epoch: self.revision, entry: None });
        (self.sessions.len() - 1, self.revision)
    }

    pub(super) fn remove(&mut self, session: usize) {
        if let Some(Entry { mode, .. }) = self.sessions[session].entry.take() {
            self.revision += 1;
            self.deletions.push((self.revision, key(session, mode)));
        }
    }

    /// The entries of the queue, the oldest first.
    pub(super) fn entries(&self) -> Vec<(usize, Entry)> {
        let entries = self.sessions.iter().enumerate();
        let mut entries: Vec<_> = entries.filter_map(|(id, session)| Some((id, session.entry?))).collect();
        entries.sort_by_key(|(_, entry)| entry.create);
        entries
    }

    /// Whether the rule admits an entry of a session: those before it, and it, fit together.
    pub(super) fn admits(&self, session: usize) -> bool {
        let entries = self.entries();
        let mut before = entries.iter().take_while(|(id, _)| *id != session).map(|(_, entry)| entry.mode);
        let mode = self.sessions[session].entry.map(|entry| entry.mode);
        mode.is_some_and(|mode| before.by_ref().collect::<Load>().admits(mode))
    }

    pub(super) fn apply(&mut self, request: &Request) -> Reply {
        let id = request.session;
        if self.sessions[id].is_over && !matches!(request.what, What::Delete(_)) {
            return Reply::NoSession;
        }
        let entry = self.sessions[id].entry;
        match request.what.clone() {
            What::Ask { enter, mode, acquisition, epoch } => {
                let all = matches!(enter, Enter::NoneAfter { all: true, .. });
                let in_epoch = epoch.is_none_or(|epoch| epoch == self.sessions[id].epoch);
                let is_free = entry.is_none()
                    && self.entries().iter().all(|(_, other)| match enter {
                        Enter::Always => true,
                        Enter::AmongReaders => other.mode == mode,
                        Enter::NoneAfter { revision, .. } => other.create <= revision,
                    });
                if is_free && in_epoch {
                    self.revision += 1;
                    self.sessions[id].entry = Some(Entry { create: self.revision, by: acquisition, mode });
                    self.bars_others |= enter != Enter::Always && !self.admits(id);
                    let mine = Some((self.revision, true));
                    let answer = EntryReply { mine, seen: self.before(self.revision), in_epoch };
                    return Reply::Asked(answer, all);
                }
                match enter {
                    Enter::Always => Reply::Barred(None),
                    _ => Reply::Asked(self.shown(id, acquisition, in_epoch), all),
                }
            }
            What::Show { acquisition, epoch } => {
                let in_epoch = epoch.is_none_or(|epoch| epoch == self.sessions[id].epoch);
                Reply::Asked(self.shown(id, acquisition, in_epoch), false)
            }
            What::Delete(create) => {
                if entry.is_some_and(|entry| entry.create == create) {
                    self.remove(id);
                }
                Reply::Deleted(create)
            }
            What::Move { epoch } => {
                if self.sessions[id].epoch == epoch {
                    self.revision += 1;
                    self.sessions[id].epoch = self.revision;
                }
                Reply::Moved
            }
            What::Find => Reply::Found(entry.map(|entry| entry.create)),
            What::Look(create, all) => {
                let is_there = entry.is_some_and(|entry| entry.create == create);
                Reply::Looked(is_there.then(|| self.before(create)), all)
            }
            What::Check(create, others) => {
                let is_there = |(id, entry): &(usize, Entry), key: &Key, at| {
                    self::key(*id, entry.mode) == *key && entry.create == at
                };
                let entries = self.entries();
                let stand = others
                    .iter()
                    .all(|other| entries.iter().any(|entry| is_there(entry, &other.key, other.create)));
                Reply::Checked(entry.is_some_and(|entry| entry.create == create) && stand)
            }
        }
    }

    fn shown(&self, id: usize, acquisition: u32, in_epoch: bool) -> EntryReply {
        let (entry, adopts) = (self.sessions[id].entry, self.is_mistaken_for_mine);
        let mine = entry.map(|entry| (entry.create, adopts || entry.by == acquisition));
        EntryReply { mine, seen: self.before(entry.map_or(Revision::MAX, |entry| entry.create)), in_epoch }
    }

    /// All entries that are older than one.
    fn before(&self, create: Revision) -> QueueSnapshot {
        let older = self.entries().into_iter().rev().filter(|(_, entry)| entry.create < create);
        let rival = |(id, entry): (usize, Entry)| Rival {
            key: key(id, entry.mode),
            create: entry.create,
            mode: entry.mode,
        };
        let (revision, older) = (self.revision, older.map(rival).collect());
        QueueSnapshot { revision, older, beyond: Beyond::Nobody, is_far: false, watch: None }
    }
}

/// The key of a session's entry.
pub(super) fn key(session: usize, mode: Mode) -> Key {
    format!("{session}/{mode}").into_bytes().into()
}
