//! Whether other users can change the directory or the path to it. Such a user can replace the directory, and so break
//! exclusion, or choose where our files are.
//!
//! # Invariants
//! - **file.trust-1** Every step of the path, links included, belongs to this user or to root, and no other user may write to
//!   it. All may write to a directory with the sticky bit (`/tmp`): a step there that others own is refused.
//! - **file.trust-2** Users who may write to files by [`FileConfig::mode`](crate::FileConfig::mode) may write to the lock
//!   directory and the directories in it, and to no other step. Their files there are trusted, unless all users could create
//!   them.
//! - **file.trust-3** The path that is checked is the one that is used: one walk finds every step, and ends at the directory
//!   that was opened.
//!
//! Not promised: anything about access control lists beyond the mode that the system makes of them, except that a group has
//! no other members.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use leasehold_core::Result;
use rustix::io::Errno;
use rustix::process::geteuid;

use super::folder::Folder;
use super::inode::{Inode, Node};
use crate::error;

/// The users to trust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trust {
    user: u32,
    /// The write bits of group and others in the mode of files.
    shared: u32,
}

/// The owner and the mode of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    owner: u32,
    group: u32,
    mode: u32,
    /// An access control list may stand behind the group's bits. Read only if it matters.
    listed: bool,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Leads to the lock directory.
    Way,
    /// The lock directory, or one in it.
    Own,
    Link,
}

/// The steps to a path, as far as they exist.
pub(super) struct Way {
    /// Every step, with the directory it is in.
    steps: Vec<(PathPart, Step)>,
    /// The directories from the root to where it ends, no link among them.
    end: Vec<PathPart>,
    /// The names that do not exist yet, from the end on.
    missing: VecDeque<OsString>,
}

#[derive(Clone)]
struct PathPart {
    at: PathBuf,
    step: Step,
    inode: Inode,
}

impl Trust {
    /// Trusts this process's user, root, and users who may write by the mode of files.
    pub(super) fn of_process(file_mode: u32) -> Self {
        Self { user: geteuid().as_raw(), shared: file_mode & OTHERS_WRITE }
    }

    /// Why the path to a lock directory cannot be trusted; it need not exist yet.
    pub(super) fn objection_to(self, way: &Way) -> Option<String> {
        let root = way.end.first().and_then(|root| self.judge(&root.at, root.step, None));
        let own = way.end.last().filter(|_| way.missing.is_empty()).map(|end| &end.at);
        root.or_else(|| {
            way.steps.iter().find_map(|(place, above)| {
                let kind = if Some(&place.at) == own { Kind::Own } else { place.step.kind };
                self.judge(&place.at, Step { kind, ..place.step }, Some(*above))
            })
        })
    }

    /// Why a lock directory, the path to it, or a directory in it cannot be trusted.
    pub(super) fn objection<'a>(
        self,
        folder: &Folder,
        parts: impl IntoIterator<Item = &'a Folder>,
    ) -> Result<Option<String>> {
        let way = Way::to(folder.path())?;
        if let Some(objection) = self.objection_to(&way) {
            return Ok(Some(objection));
        }
        // INVARIANT(file.trust-3): a link that does not exist any more may have led to the open directory.
        let inode = folder.inode()?;
        let end = way.end.last().filter(|end| way.missing.is_empty() && end.inode == inode);
        let Some(whole) = end.map(|end| Step { kind: Kind::Own, ..end.step }) else {
            return Ok(Some(format!("{} is being replaced", folder.path().display())));
        };
        for part in parts {
            if let Some(objection) = self.judge(part.path(), Step::own(part)?, Some(whole)) {
                return Ok(Some(objection));
            }
        }
        Ok(None)
    }

    /// Why one step, in the directory `above`, cannot be trusted (file.trust-1, file.trust-2).
    fn judge(self, at: &Path, step: Step, above: Option<Step>) -> Option<String> {
        let at = at.display();
        let made_by_trusted = step.kind == Kind::Own
            && above.is_some_and(|above| self.sharers(above) != 0 && self.others(above) == 0);
        if step.owner != self.user && step.owner != ROOT && !made_by_trusted {
            return Some(format!("{at} belongs to user {}", step.owner));
        }
        let others = if step.kind == Kind::Link { 0 } else { self.others(step) };
        if others == 0 || step.kind == Kind::Way && step.mode & STICKY != 0 {
            return None;
        }
        let who = match others & EVERYBODY_WRITES {
            0 if step.listed => "users in its access control list".to_owned(),
            0 => format!("group {}", step.group),
            _ => "everybody".to_owned(),
        };
        Some(format!("{at} is writable by {who} (mode {:04o})", step.mode & 0o7777))
    }

    /// The write bits of users who may write.
    fn sharers(self, step: Step) -> u32 {
        if step.kind == Kind::Own { step.mode & self.shared } else { 0 }
    }

    /// The write bits of other users.
    fn others(self, step: Step) -> u32 {
        let private = if step.has_private_group() && !step.listed { GROUP_WRITES } else { 0 };
        step.mode & OTHERS_WRITE & !self.sharers(step) & !private
    }
}

impl Step {
    fn of(found: &Metadata, has_list: impl FnOnce() -> Result<bool, Errno>) -> io::Result<Self> {
        let kind = if found.is_symlink() { Kind::Link } else { Kind::Way };
        let (owner, group, mode) = (found.uid(), found.gid(), found.mode());
        let mut step = Self { owner, group, mode, listed: false, kind };
        if kind != Kind::Link && mode & GROUP_WRITES != 0 && step.has_private_group() {
            step.listed = has_list()?;
        }
        Ok(step)
    }

    fn own(folder: &Folder) -> Result<Self> {
        let found = folder.handle.metadata();
        let step = found.and_then(|found| Self::of(&found, || list::behind(&folder.handle)));
        let step = step.map_err(|e| error::of_system(e, "inspect the directory", folder.path()))?;
        Ok(Self { kind: Kind::Own, ..step })
    }

    /// Whether the group is the owner's own: systems that give every user a group use the same number.
    fn has_private_group(self) -> bool {
        self.group == self.owner
    }
}

impl PathPart {
    fn look(at: PathBuf) -> io::Result<Self> {
        let found = fs::symlink_metadata(&at)?;
        let step = Step::of(&found, || list::at(&at))?;
        Ok(Self { at, step, inode: Node::from(&found).inode })
    }
}

impl Way {
    /// Walks step by step, as the system does.
    pub(super) fn to(path: &Path) -> Result<Self> {
        let failed = |e, at: &Path| error::of_system(e, "inspect the path to the lock directory", at);
        let root = PathPart::look(PathBuf::from("/")).map_err(|e| failed(e, Path::new("/")))?;
        let mut way = Self { steps: Vec::new(), end: vec![root], missing: VecDeque::new() };
        let mut left = names(path);
        let mut links = 0;
        while let (Some(name), Some(above)) = (left.pop_front(), way.end.last()) {
            if name == ".." {
                way.end.truncate((way.end.len() - 1).max(1));
                continue;
            }
            let at = above.at.join(&name);
            let place = match PathPart::look(at.clone()) {
                Ok(place) => place,
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    left.push_front(name);
                    way.missing = left;
                    break;
                }
                Err(e) => return Err(failed(e, &at)),
            };
            way.steps.push((place.clone(), above.step));
            if place.step.kind != Kind::Link {
                way.end.push(place);
                continue;
            }
            links += 1;
            if links > LINKS {
                return Err(failed(Errno::LOOP.into(), &at));
            }
            let target = fs::read_link(&at).map_err(|e| failed(e, &at))?;
            if target.is_absolute() {
                way.end.truncate(1);
            }
            names(&target).into_iter().rev().for_each(|name| left.push_front(name));
        }
        Ok(way)
    }

    /// Creates the missing directories, durably; a link that appears meanwhile is not followed (file.trust-3).
    pub(super) fn make(&self, file_mode: u32) -> Result<()> {
        let Some(end) = self.end.last().filter(|_| !self.missing.is_empty()) else {
            return Ok(());
        };
        let first = Folder::open(end.at.clone())?;
        self.missing.iter().try_fold(first, |folder, name| folder.enter(name, file_mode)).map(drop)
    }
}

/// Why the path to a file or directory cannot be trusted, if other users than this process's and root can change it.
///
/// # Errors
///
/// The system's error for a step that cannot be inspected.
pub fn untrusted_path(path: &Path) -> Result<Option<String>> {
    Ok(Trust::of_process(0).objection_to(&Way::to(path)?))
}

/// Access control lists, which may allow more than the group's bits show.
#[cfg(target_os = "linux")]
mod list {
    use std::fs::File;
    use std::path::Path;

    use rustix::fs::{fgetxattr, lgetxattr};
    use rustix::io::Errno;

    pub(super) fn at(path: &Path) -> Result<bool, Errno> {
        is_there(lgetxattr(path, NAME, &mut [0; 0]))
    }

    pub(super) fn behind(file: &File) -> Result<bool, Errno> {
        is_there(fgetxattr(file, NAME, &mut [0; 0]))
    }

    fn is_there(answer: Result<usize, Errno>) -> Result<bool, Errno> {
        match answer {
            Ok(_) => Ok(true),
            Err(Errno::NODATA | Errno::NOTSUP) => Ok(false),
            Err(e) => Err(e),
        }
    }

    const NAME: &str = "system.posix_acl_access";
}

/// Other systems have no such lists in this form.
#[cfg(not(target_os = "linux"))]
mod list {
    pub(super) fn at(_: &std::path::Path) -> Result<bool, rustix::io::Errno> {
        Ok(false)
    }

    pub(super) fn behind(_: &std::fs::File) -> Result<bool, rustix::io::Errno> {
        Ok(false)
    }
}

fn names(path: &Path) -> VecDeque<OsString> {
    let name = |component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    };
    path.components().filter_map(name).collect()
}

const ROOT: u32 = 0;
const GROUP_WRITES: u32 = 0o020;
const EVERYBODY_WRITES: u32 = 0o002;
const OTHERS_WRITE: u32 = GROUP_WRITES | EVERYBODY_WRITES;
const STICKY: u32 = 0o1000;
/// As many as the system follows.
const LINKS: u32 = 40;

#[cfg(test)]
mod tests {
    use super::*;

    const US: u32 = 1000;
    const OTHER: u32 = 1001;

    fn step(owner: u32, group: u32, mode: u32, kind: Kind) -> Step {
        Step { owner, group, mode, listed: false, kind }
    }

    fn trusts(file_mode: u32, step: Step, above: Step) -> bool {
        let trust = Trust { user: US, shared: file_mode & OTHERS_WRITE };
        trust.judge(Path::new("/a"), step, Some(above)).is_none()
    }

    /// file.trust-1
    #[test]
    fn a_step_is_ours_and_nobody_else_writes_to_it() {
        let above = step(ROOT, ROOT, 0o755, Kind::Way);
        let tmp = step(ROOT, ROOT, 0o1777, Kind::Way);
        for kind in [Kind::Way, Kind::Own] {
            for owner in [US, ROOT] {
                assert!(trusts(0o600, step(owner, 50, 0o755, kind), above));
                assert!(trusts(0o600, step(owner, 50, 0o700, kind), tmp));
                assert!(!trusts(0o600, step(owner, 50, 0o775, kind), above));
                assert!(!trusts(0o600, step(owner, 50, 0o757, kind), above));
            }
            assert!(!trusts(0o600, step(OTHER, OTHER, 0o700, kind), above));
            assert!(!trusts(0o600, step(OTHER, OTHER, 0o700, kind), tmp));
            // A group of the user's own.
            assert!(trusts(0o600, step(US, US, 0o775, kind), above));
            assert!(!trusts(0o600, step(US, OTHER, 0o775, kind), above));
        }
        assert!(trusts(0o600, step(ROOT, ROOT, 0o1777, Kind::Way), above));
        assert!(!trusts(0o600, step(ROOT, ROOT, 0o1777, Kind::Own), above));
        // A link cannot be written to, whatever its mode; its owner counts.
        assert!(trusts(0o600, step(US, US, 0o777, Kind::Link), tmp));
        assert!(!trusts(0o600, step(OTHER, OTHER, 0o777, Kind::Link), tmp));
    }

    /// file.trust-2
    #[test]
    fn file_of_a_permitted_writer_is_trusted() {
        let shared = step(ROOT, 50, 0o2770, Kind::Own);
        let tmp = step(ROOT, ROOT, 0o1777, Kind::Way);
        assert!(trusts(0o660, step(OTHER, 50, 0o770, Kind::Own), shared));
        assert!(!trusts(0o600, step(OTHER, 50, 0o770, Kind::Own), shared));
        assert!(!trusts(0o660, step(OTHER, 50, 0o770, Kind::Own), tmp));
        assert!(!trusts(0o660, step(OTHER, 50, 0o777, Kind::Own), shared));
        assert!(trusts(0o666, step(US, 50, 0o777, Kind::Own), tmp));
        assert!(!trusts(0o666, step(OTHER, 50, 0o777, Kind::Own), tmp));
        // Not a step that they cannot have created, and none of theirs on the way.
        let closed = step(ROOT, 50, 0o755, Kind::Own);
        for file_mode in [0o660, 0o666] {
            assert!(!trusts(file_mode, step(OTHER, 50, 0o770, Kind::Own), closed));
            assert!(!trusts(
                file_mode,
                step(OTHER, 50, 0o755, Kind::Own),
                Step { kind: Kind::Way, ..closed }
            ));
            for above in [shared, closed, tmp] {
                assert!(!trusts(file_mode, step(OTHER, 50, 0o755, Kind::Way), above));
                assert!(!trusts(file_mode, step(OTHER, 50, 0o777, Kind::Link), above));
            }
            assert!(!trusts(file_mode, step(US, 50, 0o775, Kind::Way), closed));
        }
        assert!(!trusts(0o666, step(US, 50, 0o777, Kind::Way), closed));
    }

    /// A list may let others write where the mode says that the user's own group does.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_list_of_others_is_no_group_of_ones_own() {
        use std::os::unix::fs::{PermissionsExt, chown};

        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().canonicalize().unwrap().join("locks");
        fs::create_dir(&path).unwrap();
        let us = geteuid().as_raw();
        chown(&path, None, Some(us)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o775)).unwrap();
        let folder = Folder::open(path.clone()).unwrap();
        let trust = Trust::of_process(0o600);
        assert_eq!(trust.objection(&folder, [&folder]).unwrap(), None);
        // The owner, user 65534, the group, the mask, and others.
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (tag, rights, id) in [(1_u16, 7_u16, !0), (2, 7, 65534), (4, 5, !0), (16, 7, !0), (32, 5, !0_u32)]
        {
            list.extend([tag.to_le_bytes(), rights.to_le_bytes()].concat());
            list.extend(id.to_le_bytes());
        }
        let flags = rustix::fs::XattrFlags::empty();
        match rustix::fs::setxattr(&path, "system.posix_acl_access", &list, flags) {
            Err(Errno::NOTSUP) => return eprintln!("left out: no access control lists here"),
            set => set.unwrap(),
        }
        let objection = trust.objection(&folder, []).unwrap().unwrap();
        assert!(objection.contains("access control list (mode 0775)"), "{objection}");
        assert!(Step::own(&folder).unwrap().listed);
    }

    /// file.trust-3: a step that appears after the walk is not part of it.
    #[test]
    fn a_link_that_comes_after_the_look_is_not_followed() {
        let (scratch, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let base = scratch.path().canonicalize().unwrap();
        let path = base.join("deep/locks");
        let way = Way::to(&path).unwrap();
        std::os::unix::fs::symlink(others.path(), base.join("deep")).unwrap();
        assert_eq!(*way.make(0o600).unwrap_err().kind(), leasehold_core::ErrorKind::Protocol);
        assert_eq!(fs::read_dir(others.path()).unwrap().count(), 0);
        fs::remove_file(base.join("deep")).unwrap();
        way.make(0o600).unwrap();
        assert!(path.is_dir());
    }

    /// file.trust-3: a link that exists for a moment does not lead to a directory that is checked without it.
    #[test]
    fn a_link_that_comes_and_goes_is_never_passed_over() {
        use std::os::unix::fs::{PermissionsExt, lchown};
        use std::sync::atomic::{AtomicBool, Ordering};

        if !geteuid().is_root() {
            return eprintln!("left out: only root can give links to others");
        }
        let scratch = tempfile::tempdir().unwrap();
        let base = scratch.path().canonicalize().unwrap();
        let (tmp, real) = (base.join("tmp"), base.join("real"));
        fs::create_dir(&tmp).unwrap();
        fs::create_dir(&real).unwrap();
        fs::set_permissions(&tmp, fs::Permissions::from_mode(0o1777)).unwrap();
        let (link, off) = (tmp.join("link"), tmp.join("off"));
        std::os::unix::fs::symlink(&real, &link).unwrap();
        lchown(&link, Some(65534), None).unwrap();
        let trust = Trust::of_process(0o600);
        let stop = AtomicBool::new(false);
        let accepted = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _ = fs::rename(&link, &off);
                    let _ = fs::rename(&off, &link);
                }
            });
            let opened = (0..20_000).filter_map(|_| Folder::open(link.clone()).ok());
            let accepted = opened.filter(|folder| matches!(trust.objection(folder, []), Ok(None))).count();
            stop.store(true, Ordering::Relaxed);
            accepted
        });
        assert_eq!(accepted, 0);
    }

    /// The open directory is the one at the end of the walk.
    #[test]
    fn directory_opened_by_another_path_is_not_trusted() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("locks");
        fs::create_dir(&path).unwrap();
        let folder = Folder::open(path.clone()).unwrap();
        let trust = Trust::of_process(0o600);
        assert_eq!(trust.objection(&folder, []).unwrap(), None);
        fs::rename(&path, path.with_extension("old")).unwrap();
        assert!(trust.objection(&folder, []).unwrap().is_some());
        fs::create_dir(&path).unwrap();
        assert!(trust.objection(&folder, []).unwrap().is_some());
    }

    /// The walk is the system's: links, links in links, and `..`.
    #[test]
    fn the_way_goes_through_links() {
        let scratch = tempfile::tempdir().unwrap();
        let base = scratch.path().canonicalize().unwrap();
        fs::create_dir_all(base.join("real/deep")).unwrap();
        std::os::unix::fs::symlink(base.join("real"), base.join("absolute")).unwrap();
        std::os::unix::fs::symlink("../absolute/deep", base.join("real/relative")).unwrap();
        let end = |path: &str| Way::to(&base.join(path)).map(|way| way.end.last().unwrap().at.clone());
        assert_eq!(end("absolute/relative").unwrap(), base.join("real/deep"));
        assert_eq!(end("absolute/relative/..").unwrap(), base.join("real"));
        assert_eq!(end("real/missing/more").unwrap(), base.join("real"));
        assert_eq!(end("./real/../real").unwrap(), base.join("real"));
        assert_eq!(end(&"../".repeat(50)).unwrap(), Path::new("/"));
        std::os::unix::fs::symlink("round", base.join("round")).unwrap();
        assert_eq!(*end("round").unwrap_err().kind(), leasehold_core::ErrorKind::Protocol);
        let way = Way::to(&base.join("absolute/relative")).unwrap();
        let links = way.steps.iter().filter(|(place, _)| place.step.kind == Kind::Link);
        // The second one leads through the first again.
        assert_eq!(links.count(), 3);
    }
}
