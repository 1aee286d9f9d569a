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
    Ask { patience: Patience, acquisition: u32, epoch: Option<Revision> },
    Delete(Revision),
    Move { epoch: Revision },
    Find,
    Look(Revision),
}

#[derive(Debug)]
pub(super) enum Reply {
    Asked(Answer),
    Deleted(Revision),
    Moved,
    Found(Option<Revision>),
    Looked { revision: Revision, present: bool, older: usize },
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
                    let (revision, older) = (self.revision, before.len());
                    return Reply::Asked(Answer { revision, mine: Some((revision, true)), older, in_epoch });
                }
                let adopts = self.is_mistaken_for_mine;
                let mine = entry.map(|(create, by)| (create, adopts || by == acquisition));
                let own = entry.map_or(Revision::MAX, |(create, _)| create);
                let older = before.iter().filter(|create| **create < own).count();
                Reply::Asked(Answer { revision: self.revision, mine, older, in_epoch })
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
            What::Look(create) => Reply::Looked {
                revision: self.revision,
                present: self.sessions[id].entry.is_some_and(|(created, _)| created == create),
                older: creates(self).iter().filter(|other| **other < create).count(),
            },
        }
    }
}
