//! A store in a few lines, and the requests to it.

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
        patience: Patience,
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
    Look(Revision),
    /// Whether our entry and another are there, created at those revisions.
    Check(Revision, Option<(Key, Revision)>),
}

#[derive(Debug)]
pub(super) enum Reply {
    Asked(Answer),
    /// The entry of one who waits was not put; what is there is read next. The watch that stood when it was asked for.
    Barred(Option<WatchId>),
    Deleted(Revision),
    Moved,
    Found(Option<Revision>),
    /// `None` if our entry was not there.
    Looked(Option<Seen>),
    Checked(bool),
    NoSession,
}

#[derive(Debug, Default)]
pub(super) struct Session {
    pub(super) is_over: bool,
    pub(super) epoch: Revision,
    /// When the entry was created, and by which acquisition.
    pub(super) entry: Option<(Revision, u32)>,
}

#[derive(Debug, Default)]
pub(super) struct Store {
    pub(super) revision: Revision,
    pub(super) sessions: Vec<Session>,
    /// When, whose key, and when that was created.
    pub(super) deletions: Vec<(Revision, usize, Revision)>,
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
        if let Some((created, _)) = self.sessions[session].entry.take() {
            self.revision += 1;
            self.deletions.push((self.revision, session, created));
        }
    }

    pub(super) fn apply(&mut self, request: &Request) -> Reply {
        let id = request.session;
        if self.sessions[id].is_over && !matches!(request.what, What::Delete(_)) {
            return Reply::NoSession;
        }
        match request.what.clone() {
            What::Ask { patience, acquisition, epoch } => {
                let entry = self.sessions[id].entry;
                let in_epoch = epoch.is_none_or(|epoch| epoch == self.sessions[id].epoch);
                let is_free = match patience {
                    Patience::Waits => entry.is_none(),
                    Patience::Tries => self.before(Revision::MAX).older.is_empty(),
                };
                if is_free && in_epoch {
                    self.revision += 1;
                    self.sessions[id].entry = Some((self.revision, acquisition));
                    let mine = Some((self.revision, true));
                    return Reply::Asked(Answer { mine, seen: self.before(self.revision), in_epoch });
                }
                match patience {
                    Patience::Waits => Reply::Barred(None),
                    Patience::Tries => Reply::Asked(self.shown(id, acquisition, in_epoch)),
                }
            }
            What::Show { acquisition, epoch } => {
                let in_epoch = epoch.is_none_or(|epoch| epoch == self.sessions[id].epoch);
                Reply::Asked(self.shown(id, acquisition, in_epoch))
            }
            What::Delete(create) => {
                if self.sessions[id].entry.is_some_and(|(created, _)| created == create) {
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
            What::Find => Reply::Found(self.sessions[id].entry.map(|(create, _)| create)),
            What::Look(create) => {
                let is_there = self.sessions[id].entry.is_some_and(|(created, _)| created == create);
                Reply::Looked(is_there.then(|| self.before(create)))
            }
            What::Check(create, witness) => {
                let has = |session: &Session, at| session.entry.is_some_and(|(created, _)| created == at);
                let stands = |(key, at): (Key, Revision)| {
                    self.sessions
                        .iter()
                        .enumerate()
                        .any(|(id, session)| self::key(id) == key && has(session, at))
                };
                Reply::Checked(has(&self.sessions[id], create) && witness.is_none_or(stands))
            }
        }
    }

    fn shown(&self, id: usize, acquisition: u32, in_epoch: bool) -> Answer {
        let (entry, adopts) = (self.sessions[id].entry, self.is_mistaken_for_mine);
        let mine = entry.map(|(create, by)| (create, adopts || by == acquisition));
        Answer { mine, seen: self.before(entry.map_or(Revision::MAX, |(create, _)| create)), in_epoch }
    }

    /// All entries that are older than one.
    fn before(&self, create: Revision) -> Seen {
        let entries = self.sessions.iter().enumerate();
        let entries = entries.filter_map(|(id, session)| Some((key(id), session.entry?.0)));
        let mut older: Vec<_> = entries.filter(|(_, created)| *created < create).collect();
        older.sort_by_key(|(_, created)| std::cmp::Reverse(*created));
        Seen { revision: self.revision, older, all: true, is_far: false, watch: None }
    }
}

/// The key of a session's entry.
pub(super) fn key(session: usize) -> Key {
    session.to_be_bytes().into()
}
