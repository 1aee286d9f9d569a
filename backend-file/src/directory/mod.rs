//! A directory of locks on the disk: its files, and how each is created, opened, read and removed.
//!
//! ```text
//! invoice%2f42.lock    one per name: locked by its holder, with the record of its newest grant
//! .leasehold/floor     the counter above which new lock files begin
//! .leasehold/sessions  a file per manager, locked while it lives
//! .leasehold/waiting   a file per contender
//! .leasehold/revoke    a file per request to a holder
//! .leasehold/new       files before they are visible
//! .leasehold/out       lock files taken from their holders by force
//! .leasehold/gate      locked by processes that wait for the floor
//! ```
//!
//! # Invariants
//! - **file.directory-1** The lock is on the inode. After a file is locked its path must still name that inode, and again
//!   after the record is durable (G1).
//! - **file.directory-2** A lock file is complete and locked before it is visible, and its counter begins above a floor that
//!   is not raised in between (G3).
//! - **file.directory-3** A lock file leaves its path only while the floor's lock is held, and is deleted only once its
//!   counter is in the floor, durably (G3).
//! - **file.directory-4** No foreign file is changed or removed: every file is named below the handle of an opened directory,
//!   never through a link, and a removed file has a name of the library's form.
//! - **file.directory-5** Nothing is granted in a directory that its path does not lead to any more (G1).

mod file_system;
mod floor;
mod folder;
mod inode;
mod locked;
pub(crate) mod mount;
mod requests;
mod sweep;
#[cfg(test)]
mod tests;
mod traces;
mod trust;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use leasehold_core::{Env, Error, ErrorKind, LockName, Result};
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, pread};

use crate::config::FileConfig;
use crate::error;
use crate::keys::Key;
use crate::protocol::{self, Seen, Step};
use crate::record::{Ending, FILE, FileRecord, Unreadable, Value};
pub(crate) use file_system::{FileSystem, Scope};
pub(crate) use floor::Access;
use folder::{Folder, inode_at};
pub(crate) use inode::Inode;
use inode::Node;
pub(crate) use locked::{Locked, Opened};
pub(crate) use requests::Request;
pub(crate) use traces::Presence;
pub use trust::untrusted_path;
use trust::{Trust, Way};

#[derive(Debug)]
pub(crate) struct Directory {
    folder: Folder,
    parts: Parts,
    mode: u32,
    trust: Trust,
    pub(crate) file_system: FileSystem,
    pub(crate) token_base: u64,
}

/// Our own directories in it.
#[derive(Debug)]
struct Parts {
    own: Folder,
    sessions: Arc<Folder>,
    waiting: Arc<Folder>,
    revoke: Arc<Folder>,
    new: Arc<Folder>,
    out: Arc<Folder>,
}

impl Directory {
    /// Opens a directory, and creates it if there is none.
    pub(crate) fn open(config: &FileConfig, env: &Env) -> Result<Self> {
        let path = config.absolute_path()?;
        let mode = config.mode;
        let trust = Trust::of_process(mode);
        let way = Way::to(&path)?;
        admit(config, &path, trust.objection_to(&way))?;
        way.make(mode)?;
        let folder = Folder::open(path)?;
        admit(config, folder.path(), trust.objection(&folder, [])?)?;
        let file_system = FileSystem::of(&folder.handle, folder.path())?;
        file_system.admit(config, folder.path())?;
        let parts = Parts::enter(&folder, mode)?;
        let mut directory = Self { folder, parts, mode, trust, file_system, token_base: 0 };
        admit(config, directory.path(), directory.objection()?)?;
        directory.token_base = directory.first_floor(env)?.token_base;
        Ok(directory)
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Why the directory cannot be trusted.
    pub(crate) fn objection(&self) -> Result<Option<String>> {
        self.trust.objection(&self.folder, self.parts.all())
    }

    /// Whether the path still leads here.
    pub(crate) fn is_in_place(&self) -> bool {
        [&self.folder, &self.parts.own].into_iter().all(|folder| {
            Node::behind(folder.path()).is_ok_and(|found| folder.inode().is_ok_and(|it| it == found.inode))
        })
    }

    /// Refuses a directory that other processes do not find any more (file.directory-5).
    pub(crate) fn require_in_place(&self) -> Result<()> {
        if self.is_in_place() {
            return Ok(());
        }
        Err(error::of_system(Errno::NOENT.into(), "lock in the directory", self.path()))
    }

    pub(crate) fn lock_path(&self, key: &Key) -> PathBuf {
        self.folder.at(&key.lock_file())
    }

    pub(crate) fn open_lock(&self, key: &Key) -> Result<Option<Opened>> {
        self.folder.write(&key.lock_file())
    }

    /// Whether the lock file of `key` is locked, with or without a record.
    pub(crate) fn is_locked(&self, key: &Key) -> Result<bool> {
        match self.folder.read(&key.lock_file())? {
            Some(opened) => Ok(opened.try_share(&self.lock_path(key))?.is_none()),
            None => Ok(false),
        }
    }

    /// The grant of `name` that is in effect, read without its lock, so that no try is disturbed.
    pub(crate) fn live(&self, name: &LockName) -> Result<Option<FileRecord>> {
        match self.folder.read(&Key::of(name).lock_file())? {
            Some(opened) => self.live_in(opened.file(), name),
            None => Ok(None),
        }
    }

    /// The grant in effect in an open lock file.
    pub(crate) fn live_in(&self, file: &File, name: &LockName) -> Result<Option<FileRecord>> {
        let seen = self.see(file, name)?;
        let lives = !seen.is_over() && self.is_alive(seen.record().session)?;
        Ok(lives.then_some(seen.newest.value))
    }

    pub(crate) fn see(&self, file: &File, name: &LockName) -> Result<Seen> {
        let path = self.lock_path(&Key::of(name));
        let seen = see(file, &path)?;
        if seen.record().name == *name {
            return Ok(seen);
        }
        let other = &seen.record().name;
        Err(error::refused(
            format!("the file belongs to the lock {other:?}: if it was copied here, remove it"),
            &path,
        ))
    }

    /// Whether the path of `key` names `inode` (file.directory-1).
    pub(crate) fn is_at(&self, key: &Key, inode: Inode) -> Result<bool> {
        Ok(inode_at(&self.lock_path(key))? == Some(inode))
    }

    /// Creates the lock file of a name that has none, held from the beginning (file.directory-2); `record` makes its
    /// record from the floor's counter. `None` if another process was faster.
    ///
    /// # Cancel safety
    ///
    /// Nothing is created before the last wait.
    pub(crate) async fn create(
        &self,
        env: &Env,
        key: &Key,
        record: impl FnOnce(u64) -> Result<FileRecord> + Send,
    ) -> Result<Option<(Locked, u64)>> {
        if self.is_set_aside(key)? {
            let mut floor = self.floor(env, Access::Raise).await?;
            self.finish_taking_away(key, &mut floor)?;
        }
        let floor = self.floor(env, Access::Read).await?;
        // RACE: checked again, under the floor's lock: no file is removed by force from here on.
        if self.is_set_aside(key)? {
            return Ok(None);
        }
        self.require_in_place()?;
        let record = record(floor.counter())?;
        let counter = record.counter;
        let Some(locked) = self.bear(env, record, &self.folder, &key.lock_file())? else {
            return Ok(None);
        };
        // INVARIANT(file.directory-1): the directory may have been replaced, and the file with it.
        if !self.is_at(key, locked.inode())? {
            note(locked.file(), Ending { counter, seq: protocol::FIRST, durable: true });
            return Ok(None);
        }
        Ok(Some((locked, counter)))
    }

    pub(crate) fn carry_out(&self, file: &File, steps: &[Step], path: &Path) -> Result<()> {
        steps
            .iter()
            .try_for_each(|step| carry_out(file, step))
            .map_err(|e| error::of_system(e, "write the file", path))
    }

    pub(crate) fn permissions(&self) -> Result<u32> {
        let node = Node::of(&self.folder.handle);
        let node = node.map_err(|e| error::of_system(e, "inspect the directory", self.path()))?;
        Ok(node.mode & 0o7777)
    }

    pub(crate) fn permissions_of(&self, key: &Key) -> Result<u32> {
        let file = self.folder.look(&key.lock_file())?.filter(|node| node.is_file);
        Ok(file.map_or(0, |node| node.mode))
    }

    /// Every lock file there is, by key.
    pub(crate) fn keys(&self) -> Result<Vec<Key>> {
        let files = self.folder.entries()?;
        Ok(files.iter().filter_map(|file| Key::of_lock_file(file)).collect())
    }

    /// The newest grant of a lock file, and whether it is in effect; `None` for a deleted or foreign file (file.directory-4).
    pub(crate) fn newest(&self, key: &Key) -> Result<Option<(FileRecord, bool)>> {
        let path = self.lock_path(key);
        let opened = self.folder.read(&key.lock_file());
        let seen = opened.and_then(|opened| opened.map(|it| see(it.file(), &path)).transpose());
        let seen = match seen {
            Err(error) if *error.kind() == ErrorKind::Protocol => return Ok(None),
            seen => seen?,
        };
        let Some(seen) = seen.filter(|seen| Key::of(&seen.record().name) == *key) else {
            return Ok(None);
        };
        let lives = !seen.is_over() && self.is_alive(seen.record().session)?;
        Ok(Some((seen.newest.value, lives)))
    }

    /// Creates a file complete and locked, then visible as `name` in `folder`; `None` if there is one already, or it has to
    /// be tried again.
    fn bear<T: Value>(&self, env: &Env, value: T, folder: &Folder, name: &str) -> Result<Option<Locked>> {
        let steps = protocol::birth(value).ok_or_else(too_long)?;
        let fill = |new: &File, path: &Path| self.carry_out(new, &steps, path);
        let Some(locked) = self.bring(env, folder, name, fill)? else {
            return Ok(None);
        };
        if let Err(error) = folder.sync() {
            // Nothing was granted on it, and no other process can have it locked.
            folder.remove(name)?;
            return Err(error);
        }
        Ok(Some(locked))
    }

    /// Creates a file, locked so that no sweep removes it, and makes it visible as `name` in `folder` once `fill` has written
    /// it; `None` if there is one already, or it has to be tried again.
    fn bring(
        &self,
        env: &Env,
        folder: &Folder,
        name: &str,
        fill: impl FnOnce(&File, &Path) -> Result<()>,
    ) -> Result<Option<Locked>> {
        let Some((new, file)) = self.leave(&self.parts.new, traces::random_id(env).to_hex())? else {
            return Ok(None);
        };
        let Ok(locked) = Locked::try_lock(file, &new.path())? else {
            return Ok(None);
        };
        fill(locked.file(), &new.path())?;
        match new.link(folder, name) {
            Ok(()) => Ok(Some(locked)),
            // RACE: a sweep may remove it before we have locked it.
            Err(Errno::EXIST | Errno::NOENT) => Ok(None),
            // The error of a file system without hard links; the file is our own.
            Err(Errno::PERM) => {
                Err(error::of_system(Errno::NOTSUP.into(), "link the new file", &folder.at(name)))
            }
            Err(e) => Err(error::of_system(e.into(), "link the new file", &folder.at(name))),
        }
    }
}

impl Parts {
    fn enter(folder: &Folder, mode: u32) -> Result<Self> {
        let own = folder.enter(OWN, mode)?;
        let part = |name| own.enter(name, mode).map(Arc::new);
        let (sessions, waiting, revoke) = (part("sessions")?, part("waiting")?, part("revoke")?);
        let (new, out) = (part("new")?, part("out")?);
        Ok(Self { sessions, waiting, revoke, new, out, own })
    }

    fn all(&self) -> [&Folder; 6] {
        [&self.own, &self.sessions, &self.waiting, &self.revoke, &self.new, &self.out]
    }
}

/// Refuses a directory that cannot be trusted, unless the configuration allows it.
fn admit(config: &FileConfig, path: &Path, objection: Option<String>) -> Result<()> {
    let Some(objection) = objection.filter(|_| !config.allow_untrusted_path) else {
        return Ok(());
    };
    let message = format!(
        "cannot trust the lock directory: {objection}; use a directory that only this user or root can \
         change, or set `allow_untrusted_path` if that is intended"
    );
    Err(Error::not_applied(ErrorKind::Denied, message).with_context("path", path.display()))
}

/// The contents of a lock file of any name.
fn see(file: &File, path: &Path) -> Result<Seen> {
    read(file, path, Seen::read)
}

/// Reads a file. Without its lock a write may be seen half done; then it is read again.
fn read<T>(file: &File, path: &Path, meaning: impl Fn(&[u8]) -> Result<T, Unreadable>) -> Result<T> {
    let mut again = 0..READS;
    loop {
        match meaning(&image(file, path)?) {
            Err(Unreadable::Damaged) if again.next().is_some() => {}
            meant => return meant.map_err(|unreadable| error::of_bytes(unreadable, path)),
        }
    }
}

pub(crate) fn carry_out(file: &File, step: &Step) -> io::Result<()> {
    match step {
        Step::Write { at, bytes } => file.write_all_at(bytes, *at),
        Step::Sync => file.sync_data(),
    }
}

/// Notes the end of a hold. Exclusion does not depend on it: without the note, the hold looks alive to `inspect` until the next
/// grant or the end of its session.
pub(crate) fn note(file: &File, ending: Ending) {
    let _ = carry_out(file, &protocol::end(ending));
}

/// The error of a record that does not fit.
pub(crate) fn too_long() -> Error {
    Error::invalid_option("label and metadata of a lock are too long: at most 3 KiB together")
}

fn image(file: &File, path: &Path) -> Result<Vec<u8>> {
    let mut image = Vec::with_capacity(FILE);
    while image.len() < FILE {
        let from = image.len() as u64;
        // Into memory that was not initialised.
        match pread(file, spare_capacity(&mut image), from) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(error::of_system(e.into(), "read the file", path)),
        }
    }
    image.truncate(FILE);
    Ok(image)
}

const OWN: &str = ".leasehold";
const READS: u32 = 16;
