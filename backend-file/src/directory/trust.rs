//! Whether others may have a hand in the directory: who owns it and what leads to it, and who may
//! change those. Whoever may can put another directory in its place, and so end exclusion, or have
//! our files elsewhere.
//!
//! # Invariants
//! - **T1** Every step of the path, links on the way included, belongs to us or to root, and nobody
//!   else may write to it, except as [`FileConfig::mode`](crate::FileConfig::mode) has it for files. In
//!   a directory with the sticky bit (`/tmp`) everybody may write: what others own there is not ours.
//! - **T2** Where others may write, because `mode` says so, what they made is as good as ours, unless
//!   everybody could have made it.
//!
//! Not promised: anything about access control lists beyond the mode that the system makes of them.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use lockcore::Result;
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

use super::folder::{Folder, inode_at};
use crate::error;

/// Whom to trust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trust {
    user: u32,
    group: u32,
    /// The bits of others to write, as files have them.
    shared: u32,
}

/// Who has what in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    owner: u32,
    group: u32,
    mode: u32,
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

/// The way to a path, as far as it is there.
struct Way {
    /// Every step, with the directory it is in.
    steps: Vec<(PathBuf, Step, Step)>,
    /// The directories from the root to where it ends, no link among them.
    end: Vec<(PathBuf, Step)>,
}

impl Trust {
    /// Trusts this process's user, root, and whom the mode of files lets write.
    pub(super) fn of_process(file_mode: u32) -> Self {
        let (user, group) = (geteuid().as_raw(), getegid().as_raw());
        Self { user, group, shared: file_mode & OTHERS_WRITE }
    }

    /// What is wrong with what leads to `path`, which need not be there yet.
    pub(super) fn objection_to_way(self, path: &Path) -> Result<Option<String>> {
        let way = Way::to(path)?;
        let root = way.end.first().and_then(|(root, step)| self.judge(root, *step, None));
        Ok(root
            .or_else(|| way.steps.iter().find_map(|(at, step, above)| self.judge(at, *step, Some(*above)))))
    }

    /// What is wrong with a lock directory, with the way to it, or with the directories in it.
    pub(super) fn objection<'a>(
        self,
        folder: &Folder,
        parts: impl IntoIterator<Item = &'a Folder>,
    ) -> Result<Option<String>> {
        if let Some(objection) = self.objection_to_way(folder.path())? {
            return Ok(Some(objection));
        }
        let way = Way::to(folder.path())?;
        let mut end = way.end.iter().rev();
        // RACE: what was opened may have been led to by what is not there any more.
        let inode = end.next().map(|(at, _)| inode_at(at)).transpose()?.flatten();
        if inode != Some(folder.inode()?) {
            return Ok(Some(format!("{} is being replaced", folder.path().display())));
        }
        let above = end.next().map(|(_, step)| *step);
        let whole = Step::own(folder)?;
        if let Some(objection) = self.judge(folder.path(), whole, above) {
            return Ok(Some(objection));
        }
        for part in parts {
            if let Some(objection) = self.judge(part.path(), Step::own(part)?, Some(whole)) {
                return Ok(Some(objection));
            }
        }
        Ok(None)
    }

    /// What is wrong with one step, which is in the directory `above` (T1, T2).
    fn judge(self, at: &Path, step: Step, above: Option<Step>) -> Option<String> {
        let at = at.display();
        let made_by_trusted = self.shared != 0 && above.is_some_and(|above| self.strangers(above) == 0);
        if step.owner != self.user && step.owner != ROOT && !made_by_trusted {
            return Some(format!("{at} belongs to user {}", step.owner));
        }
        let strangers = if step.kind == Kind::Link { 0 } else { self.strangers(step) };
        if strangers == 0 || step.kind == Kind::Way && step.mode & STICKY != 0 {
            return None;
        }
        let who = match strangers & EVERYBODY_WRITES {
            0 => format!("group {}", step.group),
            _ => "everybody".to_owned(),
        };
        Some(format!("{at} may be written by {who} (mode {:04o})", step.mode & 0o7777))
    }

    /// The bits that let others write than those who are to.
    fn strangers(self, step: Step) -> u32 {
        // Where every user has a group of his own number, it is nobody else's.
        let private = step.group == step.owner && (step.owner == ROOT || step.group == self.group);
        step.mode & OTHERS_WRITE & !self.shared & if private { !GROUP_WRITES } else { !0 }
    }
}

impl Step {
    fn own(folder: &Folder) -> Result<Self> {
        let found = folder.handle().metadata();
        let found = found.map_err(|e| error::of_system(e, "look at the directory", folder.path()))?;
        Ok(Self { kind: Kind::Own, ..Self::from(&found) })
    }
}

impl From<&Metadata> for Step {
    fn from(found: &Metadata) -> Self {
        let kind = if found.is_symlink() { Kind::Link } else { Kind::Way };
        Self { owner: found.uid(), group: found.gid(), mode: found.mode(), kind }
    }
}

impl Way {
    /// Goes step by step, as the system does.
    fn to(path: &Path) -> Result<Self> {
        let failed = |e, at: &Path| error::of_system(e, "look at what leads to the lock directory", at);
        let look = |at: &Path| fs::symlink_metadata(at).map(|found| Step::from(&found));
        let root = PathBuf::from("/");
        let first = look(&root).map_err(|e| failed(e, &root))?;
        let mut way = Self { steps: Vec::new(), end: vec![(root, first)] };
        let mut left = names(path);
        let mut links = 0;
        while let (Some(name), Some((parent, above))) = (left.pop_front(), way.end.last()) {
            if name == ".." {
                way.end.truncate((way.end.len() - 1).max(1));
                continue;
            }
            let at = parent.join(name);
            let step = match look(&at) {
                Ok(step) => step,
                Err(e) if e.kind() == io::ErrorKind::NotFound => break,
                Err(e) => return Err(failed(e, &at)),
            };
            way.steps.push((at.clone(), step, *above));
            if step.kind != Kind::Link {
                way.end.push((at, step));
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
        Step { owner, group, mode, kind }
    }

    fn trusts(file_mode: u32, step: Step, above: Step) -> bool {
        let trust = Trust { user: US, group: US, shared: file_mode & OTHERS_WRITE };
        trust.judge(Path::new("/a"), step, Some(above)).is_none()
    }

    /// T1: who owns a step, and who may write to it.
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
        // Nobody writes to a link, whatever its mode is; what counts is whose it is.
        assert!(trusts(0o600, step(US, US, 0o777, Kind::Link), tmp));
        assert!(!trusts(0o600, step(OTHER, OTHER, 0o777, Kind::Link), tmp));
    }

    /// T2: where `mode` lets others write, what they make is as good as ours.
    #[test]
    fn what_those_made_who_may_write_is_trusted() {
        let shared = step(ROOT, 50, 0o2770, Kind::Own);
        let tmp = step(ROOT, ROOT, 0o1777, Kind::Way);
        assert!(trusts(0o660, step(OTHER, 50, 0o770, Kind::Own), shared));
        assert!(!trusts(0o600, step(OTHER, 50, 0o770, Kind::Own), shared));
        assert!(!trusts(0o660, step(OTHER, 50, 0o770, Kind::Own), tmp));
        assert!(!trusts(0o660, step(OTHER, 50, 0o777, Kind::Own), shared));
        assert!(trusts(0o666, step(US, 50, 0o777, Kind::Own), tmp));
    }

    /// What was opened is what the path leads to by a way that was looked at.
    #[test]
    fn what_was_opened_by_another_way_is_not_trusted() {
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

    /// The way is the system's: links, links in links, and what goes up.
    #[test]
    fn the_way_goes_through_links() {
        let scratch = tempfile::tempdir().unwrap();
        let base = scratch.path().canonicalize().unwrap();
        fs::create_dir_all(base.join("real/deep")).unwrap();
        std::os::unix::fs::symlink(base.join("real"), base.join("absolute")).unwrap();
        std::os::unix::fs::symlink("../absolute/deep", base.join("real/relative")).unwrap();
        let end = |path: &str| Way::to(&base.join(path)).map(|way| way.end.last().unwrap().0.clone());
        assert_eq!(end("absolute/relative").unwrap(), base.join("real/deep"));
        assert_eq!(end("absolute/relative/..").unwrap(), base.join("real"));
        assert_eq!(end("real/missing/more").unwrap(), base.join("real"));
        assert_eq!(end("./real/../real").unwrap(), base.join("real"));
        assert_eq!(end(&"../".repeat(50)).unwrap(), Path::new("/"));
        std::os::unix::fs::symlink("round", base.join("round")).unwrap();
        assert_eq!(*end("round").unwrap_err().kind(), lockcore::ErrorKind::Protocol);
        let way = Way::to(&base.join("absolute/relative")).unwrap();
        let links = way.steps.iter().filter(|(_, step, _)| step.kind == Kind::Link);
        // The second one leads through the first again.
        assert_eq!(links.count(), 3);
    }
}
