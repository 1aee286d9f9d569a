//! An open directory. Its files are named below that handle, so moved directories and links do not lead to foreign files
//! (file.directory-4).
//!
//! Not promised: that its path still leads here, which [`Directory`](super::Directory) checks.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use leasehold_core::Result;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, RawMode, linkat, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::inode::{Inode, Node};
use super::locked::Opened;
use crate::error;
use crate::record::Unreadable;

#[derive(Debug)]
pub(super) struct Folder {
    pub(super) handle: File,
    path: PathBuf,
}

impl Folder {
    /// The directory that `path` leads to.
    pub(super) fn open(path: PathBuf) -> Result<Self> {
        let opened = rustix::fs::open(&path, DIRECTORY, Mode::empty());
        let handle = opened.map_err(|e| error::of_system(e.into(), "open the lock directory", &path))?;
        Ok(Self { handle: handle.into(), path })
    }

    /// The directory `name` in this one, created if there is none; never a link's target.
    pub(super) fn enter(&self, name: impl AsRef<Path>, file_mode: u32) -> Result<Self> {
        let name = name.as_ref();
        let path = self.path.join(name);
        let failed = |e: Errno| error::of_system(e.into(), "open the lock directory", &path);
        let open = || openat(&self.handle, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty());
        let opened = match open() {
            Err(Errno::NOENT) => {
                // Users who may read a file may list its directory.
                match mkdirat(&self.handle, name, permissions(file_mode | (file_mode & 0o444) >> 2)) {
                    Ok(()) => self.sync()?,
                    Err(Errno::EXIST) => {}
                    Err(e) => return Err(failed(e)),
                }
                open()
            }
            opened => opened,
        };
        let handle = opened.map_err(failed)?.into();
        Ok(Self { handle, path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in it, for messages.
    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens a regular file to read, never a link's target; `None` when there is none.
    pub(super) fn read(&self, name: &str) -> Result<Option<Opened>> {
        self.open_file(name, OFlags::RDONLY)
    }

    /// Opens a regular file to read and write, as [`read`](Self::read).
    pub(super) fn write(&self, name: &str) -> Result<Option<Opened>> {
        self.open_file(name, OFlags::RDWR)
    }

    /// Opens a regular file to read and to add to its end, as [`read`](Self::read).
    pub(super) fn append(&self, name: &str) -> Result<Option<Opened>> {
        self.open_file(name, OFlags::RDWR | OFlags::APPEND)
    }

    /// Makes an empty file; `None` when something is there.
    pub(super) fn make(&self, name: &str, mode: u32) -> Result<Option<Opened>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        match openat(&self.handle, name, flags, permissions(mode)) {
            Ok(file) => Opened::new(file.into(), &self.at(name)).map(|(opened, _)| Some(opened)),
            Err(Errno::EXIST) => Ok(None),
            Err(e) => Err(error::of_system(e.into(), "create a file in the lock directory", &self.at(name))),
        }
    }

    /// Gives the file `name` a second name in `other`.
    pub(super) fn link(&self, name: &str, other: &Self, new: &str) -> Result<(), Errno> {
        linkat(&self.handle, name, &other.handle, new, AtFlags::empty())
    }

    /// Moves the file `name` to `other`.
    pub(super) fn rename(&self, name: &str, other: &Self, new: &str) -> Result<(), Errno> {
        renameat(&self.handle, name, &other.handle, new)
    }

    pub(super) fn remove(&self, name: &str) -> Result<()> {
        unlinkat(&self.handle, name, AtFlags::empty())
            .map_err(|e| error::of_system(e.into(), "remove the file", &self.at(name)))
    }

    /// The same directory by a handle with which a sync fails.
    #[cfg(test)]
    pub(super) fn unsyncable(&self) -> Self {
        let handle = rustix::fs::open(&self.path, OFlags::PATH | DIRECTORY, Mode::empty()).unwrap();
        Self { handle: handle.into(), path: self.path.clone() }
    }

    pub(super) fn inode(&self) -> Result<Inode> {
        let node = Node::of(&self.handle);
        node.map(|node| node.inode).map_err(|e| error::of_system(e, "inspect the directory", &self.path))
    }

    /// The file, directory or link `name`.
    pub(super) fn look(&self, name: &str) -> Result<Option<Node>> {
        let found = Node::within(&self.handle, name, || self.at(name));
        found_at(found, || self.at(name))
    }

    pub(super) fn inode_of(&self, name: &str) -> Result<Option<Inode>> {
        Ok(self.look(name)?.map(|node| node.inode))
    }

    /// The names in it; names that are not UTF-8 are foreign.
    pub(super) fn entries(&self) -> Result<Vec<String>> {
        let read = || -> Result<Vec<String>, Errno> {
            let mut names = Vec::new();
            for entry in Dir::read_from(&self.handle)? {
                match entry?.file_name().to_str() {
                    Ok("." | "..") | Err(_) => {}
                    Ok(name) => names.push(name.to_owned()),
                }
            }
            Ok(names)
        };
        read().map_err(|e| error::of_system(e.into(), "list the directory", &self.path))
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.handle.sync_all().map_err(|e| error::of_system(e, "sync the directory to disk", &self.path))
    }

    fn open_file(&self, name: &str, access: OFlags) -> Result<Option<Opened>> {
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&self.handle, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(error::of_system(e.into(), "open the file", &self.at(name))),
        };
        match Opened::new(file, &self.at(name))? {
            (opened, true) => Ok(Some(opened)),
            (_, false) => Err(error::of_bytes(Unreadable::Foreign, &self.at(name))),
        }
    }
}

/// The inode at `path`, also of a link.
pub(super) fn inode_at(path: &Path) -> Result<Option<Inode>> {
    Ok(found_at(Node::at(path), || path.to_owned())?.map(|node| node.inode))
}

fn found_at(found: io::Result<Node>, path: impl FnOnce() -> PathBuf) -> Result<Option<Node>> {
    match found {
        Ok(node) => Ok(Some(node)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(error::of_system(e, "inspect the file", &path())),
    }
}

#[expect(clippy::allow_attributes, reason = "the cast is needed on some machines only")]
#[allow(clippy::unnecessary_cast, clippy::cast_possible_truncation, reason = "depends on the machine")]
fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode as RawMode)
}

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);
