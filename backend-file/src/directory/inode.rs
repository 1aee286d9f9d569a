//! The identity of a file, without its times.
//!
//! Since Linux 6.13, after a process has read a file's times, the next write stores a new, finer one (multigrain
//! timestamps), and the next sync costs up to half as much again. So the times are not read, if the system allows that.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fd::AsFd;
use rustix::fs::{AtFlags, CWD};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Inode {
    device: u64,
    number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) inode: Inode,
    pub(super) is_file: bool,
    pub(super) mode: u32,
}

impl Node {
    pub(super) fn of(file: &File) -> io::Result<Self> {
        Self::ask(file, Path::new(""), ITSELF, || file.metadata())
    }

    /// The file, directory or link at `path`.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        Self::ask(CWD, path, AtFlags::SYMLINK_NOFOLLOW, || fs::symlink_metadata(path))
    }

    /// The file, directory or link `name` in a directory.
    pub(super) fn within(directory: &File, name: &str, path: impl FnOnce() -> PathBuf) -> io::Result<Self> {
        let otherwise = || fs::symlink_metadata(path());
        Self::ask(directory, Path::new(name), AtFlags::SYMLINK_NOFOLLOW, otherwise)
    }

    /// The inode that `path` leads to.
    pub(super) fn behind(path: &Path) -> io::Result<Self> {
        Self::ask(CWD, path, AtFlags::empty(), || fs::metadata(path))
    }

    /// By `statx`, or `otherwise` on a system without it.
    #[cfg(target_os = "linux")]
    fn ask(
        directory: impl AsFd,
        path: &Path,
        flags: AtFlags,
        otherwise: impl FnOnce() -> io::Result<Metadata>,
    ) -> io::Result<Self> {
        use rustix::fs::{FileType, StatxFlags, makedev, statx};

        let asked = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::MODE;
        let answer = match statx(directory, path, flags, asked) {
            Err(rustix::io::Errno::NOSYS) => return otherwise().map(|metadata| Self::from(&metadata)),
            answer => answer?,
        };
        let device = makedev(answer.stx_dev_major, answer.stx_dev_minor);
        let mode = u32::from(answer.stx_mode);
        let is_file = FileType::from_raw_mode(mode) == FileType::RegularFile;
        Ok(Self { inode: Inode { device, number: answer.stx_ino }, is_file, mode })
    }

    #[cfg(not(target_os = "linux"))]
    fn ask(
        _: impl AsFd,
        _: &Path,
        _: AtFlags,
        otherwise: impl FnOnce() -> io::Result<Metadata>,
    ) -> io::Result<Self> {
        otherwise().map(|metadata| Self::from(&metadata))
    }
}

impl From<&Metadata> for Node {
    fn from(metadata: &Metadata) -> Self {
        let inode = Inode { device: metadata.dev(), number: metadata.ino() };
        Self { inode, is_file: metadata.is_file(), mode: metadata.mode() }
    }
}

/// The open file itself.
#[cfg(target_os = "linux")]
const ITSELF: AtFlags = AtFlags::EMPTY_PATH;
#[cfg(not(target_os = "linux"))]
const ITSELF: AtFlags = AtFlags::empty();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_the_same_however_it_is_asked_for() {
        let scratch = tempfile::tempdir().unwrap();
        let (file, link) = (scratch.path().join("file"), scratch.path().join("link"));
        let open = File::create(&file).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(Node::of(&open).unwrap(), Node::at(&file).unwrap());
        assert_ne!(Node::at(&link).unwrap().inode, Node::at(&file).unwrap().inode);
        for path in [&file, &link, scratch.path()] {
            let metadata = fs::symlink_metadata(path).unwrap();
            assert_eq!(Node::at(path).unwrap(), Node::from(&metadata));
        }
        let directory = File::open(scratch.path()).unwrap();
        for (name, path) in [("file", &file), ("link", &link)] {
            assert_eq!(Node::within(&directory, name, || path.clone()).unwrap(), Node::at(path).unwrap());
        }
        assert_eq!(Node::behind(&link).unwrap(), Node::at(&file).unwrap());
        assert_eq!(Node::at(&scratch.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
