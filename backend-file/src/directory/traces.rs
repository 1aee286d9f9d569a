//! Files that say something by being there: that a manager lives, that somebody waits, that a holder
//! is asked to let go. Nothing is written into them, so nothing of them can be torn.
//!
//! Not promised: that they survive a power loss; nobody they speak of does.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use lockcore::{Env, Result};

use super::{Directory, Locked, NEW, Opened, REVOKE, SESSIONS, WAITING, entries, inode_at, open};
use crate::error;
use crate::keys::Key;
use crate::record::{Record, SessionId};

/// An empty file, removed when dropped.
#[derive(Debug)]
pub(crate) struct Trace {
    path: PathBuf,
}

/// A session that lives as long as this.
#[derive(Debug)]
pub(crate) struct Presence {
    id: SessionId,
    // Dropped in this order: what is gone is not alive.
    _file: Trace,
    _locked: Locked,
}

/// Somebody asks a session to give up one of its grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) key: Key,
    pub(crate) counter: u64,
    pub(crate) session: SessionId,
}

impl Trace {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // It may be gone already; one that cannot be removed is left to a sweep.
        let _ = fs::remove_file(&self.path);
    }
}

impl Presence {
    pub(crate) fn id(&self) -> SessionId {
        self.id
    }
}

impl Request {
    /// Asks whoever holds by `record`.
    pub(crate) fn to_holder(key: Key, record: &Record) -> Self {
        Self { key, counter: record.counter, session: record.session }
    }

    fn file_name(&self) -> String {
        format!("{}.{:x}.{}", self.key.as_str(), self.counter, self.session.to_hex())
    }

    fn parse(file: &str) -> Option<Self> {
        let (rest, session) = file.rsplit_once('.')?;
        let (key, counter) = rest.rsplit_once('.')?;
        let counter = u64::from_str_radix(counter, 16).ok()?;
        Some(Self { key: Key::parse(key)?, counter, session: SessionId::from_hex(session)? })
    }
}

impl Directory {
    /// Makes an empty file that goes when the trace is dropped, and gives it open; `None` when there
    /// is one.
    pub(super) fn leave(&self, path: PathBuf) -> Result<Option<(Trace, File)>> {
        match OpenOptions::new().read(true).write(true).create_new(true).mode(self.mode).open(&path) {
            Ok(file) => Ok(Some((Trace { path }, file))),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            Err(e) => Err(error::of_system(e, "make a file in the lock directory", &path)),
        }
    }

    /// Begins a session: from here on its id means somebody who lives.
    pub(crate) fn begin_session(&self, env: &Env) -> Result<Presence> {
        for _ in 0..TRIES {
            let id = SessionId(random(env));
            let Some((trace, file)) = self.leave(self.session_path(id))? else {
                continue;
            };
            // RACE: whoever looks for sessions that ended may have this one locked for a moment, or
            // have removed it, before it was locked by us. Nobody knows its id yet.
            if let Ok(locked) = Locked::try_lock(Opened::new(file, trace.path())?, trace.path())?
                && inode_at(trace.path())? == Some(locked.inode())
            {
                return Ok(Presence { id, _file: trace, _locked: locked });
            }
        }
        Err(error::refused("no file in it stays where it is put", &self.own(SESSIONS)))
    }

    /// Whether the session goes on; one whose process died does not. Only the session itself ever
    /// locks its file for itself, so that looking disturbs nobody.
    pub(crate) fn is_alive(&self, session: SessionId) -> Result<bool> {
        let path = self.session_path(session);
        let Some(opened) = open(OpenOptions::new().read(true), &path)? else {
            return Ok(false);
        };
        match opened.file().try_lock_shared() {
            Ok(()) => {
                drop(Locked::got(opened));
                Ok(false)
            }
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(e)) => Err(error::of_system(e, "look for a session", &path)),
        }
    }

    /// Shows everybody that `session` waits for `key`.
    pub(crate) fn show_waiting(&self, key: &Key, session: SessionId) -> Result<Trace> {
        let path = self.own(WAITING).join(format!("{}.{}", key.as_str(), session.to_hex()));
        match self.leave(path.clone())? {
            Some((trace, _)) => Ok(trace),
            // One of ours that could not be removed.
            None => Ok(Trace { path }),
        }
    }

    /// The key of every living contender, once per contender.
    pub(crate) fn waiting(&self) -> Result<Vec<Key>> {
        let mut keys = Vec::new();
        for file in entries(&self.own(WAITING))? {
            if let Some((key, session)) = contender(&file)
                && self.is_alive(session)?
            {
                keys.push(key);
            }
        }
        Ok(keys)
    }

    /// Puts a request where its session finds it, if it is not there.
    pub(crate) fn post(&self, request: &Request) -> Result<()> {
        let path = self.request_path(request);
        let mut options = OpenOptions::new();
        let posted = options.write(true).create(true).truncate(false).mode(self.mode).open(&path);
        posted.map(drop).map_err(|e| error::of_system(e, "ask the holder", &path))
    }

    /// Takes a request back, if it is still there.
    pub(crate) fn withdraw(&self, request: &Request) {
        drop(Trace { path: self.request_path(request) });
    }

    /// The requests to `session`, which are taken.
    pub(crate) fn take_requests(&self, session: SessionId) -> Result<Vec<Request>> {
        let mut requests = Vec::new();
        for file in entries(&self.own(REVOKE))? {
            if let Some(request) = Request::parse(&file).filter(|request| request.session == session) {
                self.withdraw(&request);
                requests.push(request);
            }
        }
        Ok(requests)
    }

    /// Removes the traces of sessions that have ended.
    pub(super) fn sweep_traces(&self) -> Result<()> {
        for (part, session_of) in [
            (SESSIONS, SessionId::from_hex as fn(&str) -> Option<SessionId>),
            (WAITING, |file| contender(file).map(|(_, session)| session)),
            (REVOKE, |file| Request::parse(file).map(|request| request.session)),
        ] {
            let part = self.own(part);
            for file in entries(&part)? {
                if let Some(session) = session_of(&file)
                    && !self.is_alive(session)?
                {
                    drop(Trace { path: part.join(file) });
                }
            }
        }
        let new = self.own(NEW);
        for path in entries(&new)?.iter().map(|file| new.join(file)) {
            // A file that is being made is locked.
            if let Some(opened) = open(OpenOptions::new().read(true), &path)?
                && opened.file().try_lock_shared().is_ok()
            {
                drop((Trace { path }, Locked::got(opened)));
            }
        }
        Ok(())
    }

    fn session_path(&self, session: SessionId) -> PathBuf {
        self.own(SESSIONS).join(session.to_hex())
    }

    fn request_path(&self, request: &Request) -> PathBuf {
        self.own(REVOKE).join(request.file_name())
    }
}

fn contender(file: &str) -> Option<(Key, SessionId)> {
    let (key, session) = file.rsplit_once('.')?;
    Some((Key::parse(key)?, SessionId::from_hex(session)?))
}

pub(super) fn random(env: &Env) -> u64 {
    let mut bits = [0; 8];
    env.random(&mut bits);
    u64::from_be_bytes(bits)
}

/// How often a random name may be taken, or a new file disturbed, before something is wrong.
pub(super) const TRIES: u32 = 64;
