//! Files that mean something by their existence: that a manager lives, or waits. They have no contents that could be torn.
//!
//! Not promised: that they survive a power loss, which ends all processes, too.

use std::path::PathBuf;
use std::sync::Arc;

use leasehold_core::{Env, ErrorKind, Result};
use rustix::io::Errno;

use super::folder::Folder;
use super::{Directory, Locked, Opened, Request};
use crate::error;
use crate::keys::Key;
use crate::record::SessionId;

/// An empty file, removed when dropped.
#[derive(Debug)]
pub(crate) struct Trace {
    folder: Arc<Folder>,
    name: String,
}

/// A session that lives as long as this.
#[derive(Debug)]
pub(crate) struct Presence {
    pub(crate) id: SessionId,
    // Dropped in this order: a session without a file is not alive.
    _file: Trace,
    _locked: Locked,
}

impl Trace {
    pub(super) fn path(&self) -> PathBuf {
        self.folder.at(&self.name)
    }

    /// Gives the file another name, in `folder`.
    pub(super) fn link(&self, folder: &Folder, name: &str) -> Result<(), Errno> {
        self.folder.link(&self.name, folder, name)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // It may be gone already; a sweep removes it otherwise.
        let _ = self.folder.remove(&self.name);
    }
}

impl Directory {
    /// Creates an empty file that is removed with the trace, and opens it; `None` if there is one.
    pub(super) fn leave(&self, folder: &Arc<Folder>, name: String) -> Result<Option<(Trace, Opened)>> {
        let made = folder.make(&name, self.mode)?;
        Ok(made.map(|file| (Trace { folder: Arc::clone(folder), name }, file)))
    }

    /// Begins a session: from here on its id is alive.
    pub(crate) fn begin_session(&self, env: &Env) -> Result<Presence> {
        for _ in 0..TRIES {
            let id = random_id(env);
            if let Some((trace, file)) = self.leave(&self.parts.sessions, id.to_hex())?
                && let Some(presence) = self.settle(id, trace, file)?
            {
                return Ok(presence);
            }
        }
        let why = "cannot create a session file: every new file in the directory disappears";
        Err(error::refused(why, self.parts.sessions.path()))
    }

    /// Locks the file of a new session.
    pub(super) fn settle(&self, id: SessionId, trace: Trace, file: Opened) -> Result<Option<Presence>> {
        // RACE: a sweep may have this one locked for a moment, or have removed it, before it was locked by us. No other
        // process knows its id yet.
        let Ok(locked) = Locked::try_lock(file, &trace.path())? else {
            return Ok(None);
        };
        let stays = self.parts.sessions.inode_of(&trace.name)? == Some(locked.inode());
        Ok(stays.then_some(Presence { id, _file: trace, _locked: locked }))
    }

    /// Whether the session lives; one whose process died does not. Only the session itself locks its file exclusively, so
    /// checking disturbs no other.
    pub(crate) fn is_alive(&self, session: SessionId) -> Result<bool> {
        let sessions = &self.parts.sessions;
        // A file of another kind is not a session's.
        match regular(sessions.read(&session.to_hex()))? {
            Some(opened) => Ok(opened.try_share(&sessions.at(&session.to_hex()))?.is_none()),
            None => Ok(false),
        }
    }

    /// How many sessions live, without `own`.
    pub(crate) fn sessions_beside(&self, own: SessionId) -> Result<usize> {
        let mut others = 0;
        for file in self.parts.sessions.entries()? {
            if let Some(session) = SessionId::from_hex(&file).filter(|session| *session != own) {
                others += usize::from(self.is_alive(session)?);
            }
        }
        Ok(others)
    }

    /// Shows other processes that `session` waits for `key`.
    pub(crate) fn show_waiting(&self, key: &Key, session: SessionId) -> Result<Trace> {
        let name = format!("{}.{}", key.as_str(), session.to_hex());
        match self.leave(&self.parts.waiting, name.clone())? {
            Some((trace, _)) => Ok(trace),
            // An earlier one of this process that could not be removed.
            None => Ok(Trace { folder: Arc::clone(&self.parts.waiting), name }),
        }
    }

    /// The key of every living waiter, once per waiter.
    pub(crate) fn waiting(&self) -> Result<Vec<Key>> {
        let mut keys = Vec::new();
        for file in self.parts.waiting.entries()? {
            if let Some((key, session)) = contender(&file)
                && self.is_alive(session)?
            {
                keys.push(key);
            }
        }
        Ok(keys)
    }

    /// Removes the traces of sessions that have ended: only regular files with a name of our form (file.directory-4).
    pub(super) fn sweep_traces(&self) -> Result<()> {
        // RACE: each file is kept locked until it is removed. So its creator, which locks it later, finds that it is gone,
        // and one that was locked before stays.
        for part in [&self.parts.sessions, &self.parts.new] {
            for name in part.entries()?.into_iter().filter(|name| is_id(name)) {
                let idle = regular(part.read(&name))?.map(|opened| opened.try_share(&part.at(&name)));
                if let Some(locked) = idle.transpose()?.flatten() {
                    drop((Trace { folder: Arc::clone(part), name }, locked));
                }
            }
        }
        for (part, session_of) in [
            (&self.parts.waiting, (|name| Some(contender(name)?.1)) as fn(&str) -> Option<SessionId>),
            (&self.parts.revoke, |name| Some(Request::parse(name)?.session)),
        ] {
            for name in part.entries()? {
                if let Some(session) = session_of(&name)
                    && !self.is_alive(session)?
                    && regular(part.read(&name))?.is_some()
                {
                    drop(Trace { folder: Arc::clone(part), name });
                }
            }
        }
        Ok(())
    }

    /// The paths of foreign files in our own directories.
    pub(crate) fn foreign_files(&self) -> Result<Vec<PathBuf>> {
        let mut foreign_files = Vec::new();
        let mut look = |part: &Folder, is_ours: fn(&str) -> bool| -> Result<()> {
            for name in part.entries()? {
                if !is_ours(&name) || part.look(&name)?.is_some_and(|found| !found.is_file) {
                    foreign_files.push(part.at(&name));
                }
            }
            Ok(())
        };
        look(&self.parts.sessions, is_id)?;
        look(&self.parts.waiting, |name| contender(name).is_some())?;
        look(&self.parts.revoke, |name| Request::parse(name).is_some())?;
        look(&self.parts.new, is_id)?;
        look(&self.parts.out, |name| Key::parse(name).is_some())?;
        Ok(foreign_files)
    }
}

/// `None` for a file of another kind.
fn regular(opened: Result<Option<Opened>>) -> Result<Option<Opened>> {
    match opened {
        Err(error) if *error.kind() == ErrorKind::Protocol => Ok(None),
        opened => opened,
    }
}

/// Whether it is the name of a session's file, or of a new one.
fn is_id(name: &str) -> bool {
    SessionId::from_hex(name).is_some()
}

fn contender(file: &str) -> Option<(Key, SessionId)> {
    let (key, session) = file.rsplit_once('.')?;
    Some((Key::parse(key)?, SessionId::from_hex(session)?))
}

pub(super) fn random_id(env: &Env) -> SessionId {
    let mut bits = [0; 8];
    env.random(&mut bits);
    SessionId(u64::from_be_bytes(bits))
}

/// If a random name is taken so often, or a new file disturbed, something is wrong.
pub(super) const TRIES: u32 = 64;
