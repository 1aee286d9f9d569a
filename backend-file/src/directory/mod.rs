//! A directory of locks on the disk: which files there are and how each is opened, born, read and
//! taken away.
//!
//! ```text
//! invoice%2f42.lock    one per name: locked by its holder, with the record of its newest grant
//! .leasehold/floor     the counter above which new lock files begin
//! .leasehold/sessions  a file per manager, locked while it lives
//! .leasehold/waiting   a file per contender
//! .leasehold/revoke    a file per request to a holder
//! .leasehold/new       files before they are visible
//! .leasehold/out       lock files taken from their holders by force
//! ```
//!
//! # Invariants
//! - **D1** The lock is on the inode. Whoever has locked a file checks that its path still names that
//!   inode before it counts, and again after the record is durable (G1).
//! - **D2** A lock file is complete and locked before it is visible, and its counter begins above a
//!   floor that nobody can raise in between (G3).
//! - **D3** A lock file leaves its path only while the floor's lock is held, and goes for good only
//!   once its counter is in the floor, durably (G3).
//! - **D4** Nothing that is not ours is changed or removed.

mod diagnosis;
mod file_system;
mod floor;
mod inode;
mod sweep;
#[cfg(test)]
mod tests;
mod traces;

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use lockcore::{Env, ErrorKind, LockName, Result};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::config::FileConfig;
use crate::error;
use crate::keys::Key;
use crate::protocol::{self, Seen, Step};
use crate::record::{Ending, FILE, Record, Unreadable, Value};
pub(crate) use file_system::{FileSystem, Scope};
pub(crate) use floor::Access;
pub(crate) use inode::Inode;
use inode::Node;
pub(crate) use traces::{Presence, Request};

#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    handle: File,
    inode: Inode,
    mode: u32,
    file_system: FileSystem,
    token_base: u64,
}

/// An open file and which one it is, which is asked once: it stays that.
#[derive(Debug)]
pub(crate) struct Opened {
    file: File,
    inode: Inode,
}

/// A file locked by us. Unlocked by name and not only closed: a forked child may have it open.
#[derive(Debug)]
pub(crate) struct Locked {
    opened: Opened,
    locked: bool,
}

impl Directory {
    /// Opens a directory, which may have to be made.
    pub(crate) fn open(config: &FileConfig, env: &Env) -> Result<Self> {
        let path = config.absolute_path()?;
        let mode = config.file_mode();
        make(&path, mode)?;
        let handle = File::open(&path).map_err(|e| error::of_system(e, "open the lock directory", &path))?;
        let inode = Inode::from(&metadata(&handle, &path)?);
        let file_system = FileSystem::of(&handle, &path)?;
        config.admit(&file_system, &path)?;
        let mut directory = Self { path, handle, inode, mode, file_system, token_base: 0 };
        for part in ["", SESSIONS, WAITING, REVOKE, NEW, OUT] {
            make(&directory.own(part), mode)?;
        }
        directory.token_base = directory.first_floor(env)?.token_base;
        Ok(directory)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file_system(&self) -> &FileSystem {
        &self.file_system
    }

    pub(crate) fn token_base(&self) -> u64 {
        self.token_base
    }

    /// Whether the path still leads here.
    pub(crate) fn is_in_place(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|metadata| Inode::from(&metadata) == self.inode)
    }

    /// The bits of the directory's mode.
    pub(crate) fn permissions(&self) -> Result<u32> {
        Ok(metadata(&self.handle, &self.path)?.mode() & 0o7777)
    }

    pub(crate) fn lock_path(&self, key: &Key) -> PathBuf {
        self.path.join(key.lock_file())
    }

    /// The lock file of `key`, to lock it.
    pub(crate) fn open_lock(&self, key: &Key) -> Result<Option<Opened>> {
        open(OpenOptions::new().read(true).write(true), &self.lock_path(key))
    }

    /// The grant of `name` that is in effect. Read without the lock, and no lock of `name` is tried,
    /// so nobody who tries to get it is disturbed.
    pub(crate) fn live(&self, name: &LockName) -> Result<Option<Record>> {
        let path = self.lock_path(&Key::of(name));
        match open(OpenOptions::new().read(true), &path)? {
            Some(opened) => self.live_in(opened.file(), name),
            None => Ok(None),
        }
    }

    /// The grant in effect in an open lock file.
    pub(crate) fn live_in(&self, file: &File, name: &LockName) -> Result<Option<Record>> {
        let seen = self.see(file, name)?;
        let lives = !seen.is_over() && self.is_alive(seen.record().session)?;
        Ok(lives.then_some(seen.newest.value))
    }

    /// What an open lock file says.
    pub(crate) fn see(&self, file: &File, name: &LockName) -> Result<Seen> {
        let path = self.lock_path(&Key::of(name));
        let seen = see(file, &path)?;
        if seen.record().name == *name {
            return Ok(seen);
        }
        let other = &seen.record().name;
        Err(error::refused(format!("the file is that of the lock {other:?}: was it copied?"), &path))
    }

    /// Whether the path of `key` names `inode` (D1).
    pub(crate) fn is_at(&self, key: &Key, inode: Inode) -> Result<bool> {
        Ok(inode_at(&self.lock_path(key))? == Some(inode))
    }

    /// Makes the lock file of a name that has none, held from the beginning (D2); `record` makes its
    /// record from the floor's counter. `None` when somebody was faster.
    ///
    /// # Cancel safety
    ///
    /// Nothing is made before the last wait.
    pub(crate) async fn create(
        &self,
        env: &Env,
        key: &Key,
        record: impl FnOnce(u64) -> Result<Record> + Send,
    ) -> Result<Option<(Locked, u64)>> {
        if self.is_set_aside(key)? {
            let mut floor = self.floor(env, Access::Raise).await?;
            self.finish_taking_away(key, &mut floor)?;
        }
        let floor = self.floor(env, Access::Read).await?;
        // RACE: looked at again, under the floor's lock: nobody takes a file away from here on.
        if self.is_set_aside(key)? {
            return Ok(None);
        }
        let record = record(floor.counter())?;
        let counter = record.counter;
        let born = self.bear(env, record, &self.lock_path(key))?;
        Ok(born.map(|locked| (locked, counter)))
    }

    /// Carries out `steps` on a file of ours.
    pub(crate) fn carry_out(&self, file: &File, steps: &[Step], path: &Path) -> Result<()> {
        steps
            .iter()
            .try_for_each(|step| carry_out(file, step))
            .map_err(|e| error::of_system(e, "write the file", path))
    }

    /// Every lock file there is, by key.
    pub(crate) fn keys(&self) -> Result<Vec<Key>> {
        let files = entries(&self.path)?;
        Ok(files.iter().filter_map(|file| Key::of_lock_file(file)).collect())
    }

    /// The newest grant of a lock file, and whether it is in effect; `None` for what is gone, or not
    /// ours (D4).
    pub(crate) fn newest(&self, key: &Key) -> Result<Option<(Record, bool)>> {
        let path = self.lock_path(key);
        let opened = open(OpenOptions::new().read(true), &path);
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

    /// Makes a file complete and locked, then visible at `path`; `None` when there is one already, or
    /// it has to be tried again.
    fn bear<T: Value>(&self, env: &Env, value: T, path: &Path) -> Result<Option<Locked>> {
        let steps = protocol::birth(value).ok_or_else(too_long)?;
        let new = self.own(NEW).join(format!("{:016x}", traces::random(env)));
        let Some((new, file)) = self.leave(new)? else {
            return Ok(None);
        };
        let Ok(locked) = Locked::try_lock(Opened::new(file, new.path())?, new.path())? else {
            return Ok(None);
        };
        self.carry_out(locked.file(), &steps, new.path())?;
        match fs::hard_link(new.path(), path) {
            Ok(()) => {}
            // RACE: a sweep may take away what it finds here before we have locked it.
            Err(e) if matches!(e.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => {
                return Ok(None);
            }
            // That is how a file system without hard links says so; the file is our own.
            Err(e) if Errno::from_io_error(&e) == Some(Errno::PERM) => {
                return Err(error::of_system(Errno::NOTSUP.into(), "name the new file", path));
            }
            Err(e) => return Err(error::of_system(e, "name the new file", path)),
        }
        if let Err(error) = sync_directory(path.parent().unwrap_or(&self.path)) {
            // Nothing was granted on it, and nobody else can have it locked.
            remove(path)?;
            return Err(error);
        }
        Ok(Some(locked))
    }

    fn own(&self, part: &str) -> PathBuf {
        self.path.join(OWN).join(part)
    }
}

impl Opened {
    fn new(file: File, path: &Path) -> Result<Self> {
        let Node { inode, .. } = node(&file, path)?;
        Ok(Self { file, inode })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn inode(&self) -> Inode {
        self.inode
    }
}

impl Locked {
    /// A file whose lock we have got.
    pub(crate) fn got(opened: Opened) -> Self {
        Self { opened, locked: true }
    }

    /// Locks a file; gives it back when somebody else has it locked.
    pub(crate) fn try_lock(opened: Opened, path: &Path) -> Result<Result<Self, Opened>> {
        match opened.file().try_lock() {
            Ok(()) => Ok(Ok(Self::got(opened))),
            Err(TryLockError::WouldBlock) => Ok(Err(opened)),
            Err(TryLockError::Error(e)) => Err(error::of_system(e, "lock the file", path)),
        }
    }

    pub(crate) fn file(&self) -> &File {
        self.opened.file()
    }

    pub(crate) fn inode(&self) -> Inode {
        self.opened.inode()
    }

    /// Whether no path leads to the file any more.
    pub(crate) fn is_removed(&self) -> bool {
        self.file().metadata().is_ok_and(|metadata| metadata.nlink() == 0)
    }

    pub(crate) fn unlock(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.locked) { self.file().unlock() } else { Ok(()) }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing unlocks what this could not.
        let _ = self.unlock();
    }
}

/// What a lock file says, whatever its name.
fn see(file: &File, path: &Path) -> Result<Seen> {
    read(file, path, Seen::read)
}

/// Reads a file as `meaning` does. Without its lock, a write may be seen half done, so then again.
fn read<T>(file: &File, path: &Path, meaning: impl Fn(&[u8]) -> Result<T, Unreadable>) -> Result<T> {
    let mut again = 0..READS;
    loop {
        match meaning(&image(file, path)?) {
            Err(Unreadable::Damaged) if again.next().is_some() => {}
            meant => return meant.map_err(|unreadable| error::of_bytes(unreadable, path)),
        }
    }
}

/// One step on a file.
pub(crate) fn carry_out(file: &File, step: &Step) -> io::Result<()> {
    match step {
        Step::Write { at, bytes } => file.write_all_at(bytes, *at),
        Step::Sync => file.sync_data(),
    }
}

/// Notes that a hold is over. Exclusion does not depend on it: without the note, the hold looks alive
/// to `inspect` until the next grant or the end of its session.
pub(crate) fn note(file: &File, ending: Ending) {
    let _ = carry_out(file, &protocol::end(ending));
}

/// The error of a record that does not fit.
pub(crate) fn too_long() -> lockcore::Error {
    error::invalid("label and metadata of a lock are longer than 3 KiB together")
}

fn image(file: &File, path: &Path) -> Result<Vec<u8>> {
    let mut image = vec![0; FILE];
    let mut length = 0;
    while length < FILE {
        match file.read_at(&mut image[length..], length as u64) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(error::of_system(e, "read the file", path)),
        }
    }
    image.truncate(length);
    Ok(image)
}

/// Opens a regular file, never a link's target; `None` when there is none.
fn open(options: &mut OpenOptions, path: &Path) -> Result<Option<Opened>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match options.custom_flags(flags.bits().cast_signed()).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(error::of_system(e, "open the file", path)),
    };
    let Node { inode, is_file } = node(&file, path)?;
    if is_file {
        return Ok(Some(Opened { file, inode }));
    }
    Err(error::of_bytes(Unreadable::Foreign, path))
}

fn node(file: &File, path: &Path) -> Result<Node> {
    Node::of(file).map_err(|e| error::of_system(e, "look at the file", path))
}

fn metadata(file: &File, path: &Path) -> Result<Metadata> {
    file.metadata().map_err(|e| error::of_system(e, "look at the file", path))
}

fn remove(path: &Path) -> Result<()> {
    fs::remove_file(path).map_err(|e| error::of_system(e, "remove the file", path))
}

fn inode_at(path: &Path) -> Result<Option<Inode>> {
    match Node::at(path) {
        Ok(node) => Ok(Some(node.inode)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(error::of_system(e, "look at the file", path)),
    }
}

/// The names in a directory; those that are not UTF-8 are not ours.
fn entries(path: &Path) -> Result<Vec<String>> {
    let read = || fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>();
    let names = read().map_err(|e| error::of_system(e, "list the directory", path))?;
    Ok(names.into_iter().filter_map(|name| name.into_string().ok()).collect())
}

/// Makes a directory and what leads to it, durably.
fn make(path: &Path, file_mode: u32) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let missing: Vec<_> = path.ancestors().take_while(|ancestor| !ancestor.exists()).collect();
    // Who may read a file may list its directory.
    let mode = file_mode | (file_mode & 0o444) >> 2;
    let made = DirBuilder::new().recursive(true).mode(mode).create(path);
    made.map_err(|e| error::of_system(e, "make the lock directory", path))?;
    missing.into_iter().filter_map(Path::parent).try_for_each(sync_directory)
}

fn sync_directory(path: &Path) -> Result<()> {
    let synced = File::open(path).and_then(|directory| directory.sync_all());
    synced.map_err(|e| error::of_system(e, "secure the directory on the disk", path))
}

const OWN: &str = ".leasehold";
const SESSIONS: &str = "sessions";
const WAITING: &str = "waiting";
const REVOKE: &str = "revoke";
const NEW: &str = "new";
const OUT: &str = "out";
const READS: u32 = 16;
