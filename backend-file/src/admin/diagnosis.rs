//! Findings about a directory for an administrator.

use leasehold_core::Result;
use leasehold_core::backend::{Finding, Severity};
use rustix::process::{Resource, getrlimit};
use tokio::task::coop::consume_budget;

use crate::directory::{Directory, FileSystem, Scope, mount};
use crate::record::Floor;

impl Directory {
    /// Checks the directory and every lock file, and locks nothing that others wait for.
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed, so nothing is left.
    pub(crate) async fn diagnose(&self) -> Result<Vec<Finding>> {
        let mut findings = vec![self.place()];
        findings.extend(mount::private(self.path()));
        let well = Finding::new(Severity::Ok, "file system", format!("{}, of this host", self.file_system));
        findings.push(self.file_system.warning().unwrap_or(well));
        let well = Finding::new(Severity::Ok, "path", "no other user can replace the directory");
        findings.push(self.hands()?.unwrap_or(well));
        let (files, file_mode) = self.files().await?;
        findings.push(of_permissions(self.permissions()?, file_mode));
        findings.push(files);
        findings.push(self.bookkeeping()?);
        findings.push(of_floor(self.look_at_floor()?));
        if let Some(limit) = getrlimit(Resource::Nofile).current {
            let detail =
                format!("this process may open {limit}; each held lock and each contended name uses one");
            findings.push(Finding::new(Severity::Ok, "open files", detail));
        }
        Ok(findings)
    }

    fn place(&self) -> Finding {
        let path = self.path().display();
        if self.is_in_place() {
            return Finding::new(Severity::Ok, "directory", path.to_string());
        }
        let detail = format!("{path} was removed or replaced: new processes lock in another directory");
        Finding::new(Severity::Broken, "directory", detail)
    }

    /// Other users that can change the directory, if there are any.
    pub(crate) fn hands(&self) -> Result<Option<Finding>> {
        let broken = |objection| {
            let detail =
                format!("{objection}: such a user can replace the lock files and so break exclusion");
            Finding::new(Severity::Broken, "path", detail)
        };
        Ok(self.objection()?.map(broken))
    }

    fn bookkeeping(&self) -> Result<Finding> {
        let foreign_files = self.foreign_files()?;
        let Some(first) = foreign_files.first() else {
            return Ok(Finding::new(Severity::Ok, "bookkeeping", "only files of this library"));
        };
        let detail = format!(
            "{} foreign files in the subdirectory .leasehold, such as {:?}: they are ignored",
            foreign_files.len(),
            first
        );
        Ok(Finding::new(Severity::Warning, "bookkeeping", detail))
    }

    /// The finding, and the mode bits that any lock file has.
    async fn files(&self) -> Result<(Finding, u32)> {
        let (mut held, mut idle, mut others) = (0, 0, Vec::new());
        let mut mode = 0;
        for key in self.keys()? {
            consume_budget().await;
            mode |= self.permissions_of(&key)?;
            match self.newest(&key)? {
                Some((_, true)) => held += 1,
                Some((_, false)) => idle += 1,
                None => others.push(key.lock_file()),
            }
        }
        let counts = format!("{held} held, {idle} idle");
        let Some(other) = others.first() else {
            return Ok((Finding::new(Severity::Ok, "files", counts), mode));
        };
        let detail = format!("{counts}, {} unreadable as lock files, such as {other:?}", others.len());
        Ok((Finding::new(Severity::Warning, "files", detail), mode))
    }
}

impl FileSystem {
    /// A warning, if it weakens a guarantee.
    pub(crate) fn warning(&self) -> Option<Finding> {
        let detail = match self.scope {
            Scope::Local => return None,
            Scope::Memory => format!("{self} is in memory: after a reboot tokens start again"),
            Scope::Network => format!(
                "{self} is a network file system: exclusion and tokens depend on how its server handles \
                 file locks and syncs, and a lost connection may lose locks without notice"
            ),
            Scope::Program => format!(
                "{self} may be a network file system: exclusion and tokens depend on how its program \
                 handles file locks and syncs"
            ),
        };
        Some(Finding::new(Severity::Warning, "file system", detail))
    }
}

fn of_floor(floor: Option<Floor>) -> Finding {
    let Some(Floor { counter, token_base }) = floor else {
        return Finding::new(
            Severity::Broken,
            "floor",
            "the floor was removed, so the counters of deleted lock files are lost; see docs/src/file-operations.md",
        );
    };
    let detail = format!("new lock files count from {counter}; the token base is {token_base}");
    Finding::new(Severity::Ok, "floor", detail)
}

fn of_permissions(mode: u32, files: u32) -> Finding {
    // A user opens a file with the right to read it and to pass its directory.
    let read = files & mode << 2 & 0o044;
    let detail = match (mode & 0o022, read) {
        (0, 0) => {
            return Finding::new(Severity::Ok, "permissions", format!("{mode:04o}: only the owner can lock"));
        }
        (0, _) => "other users can read files here, so they can block locks",
        _ => "other users can write here, so they can acquire, block and break every lock",
    };
    Finding::new(Severity::Warning, "permissions", format!("{mode:04o}: {detail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weaker_places_are_warned_about() {
        assert!(FileSystem::of_scope(Scope::Local).warning().is_none());
        for (scope, word) in
            [(Scope::Memory, "reboot"), (Scope::Network, "exclusion"), (Scope::Program, "exclusion")]
        {
            let finding = FileSystem::of_scope(scope).warning().unwrap();
            assert!(finding.severity == Severity::Warning && finding.detail.contains(word), "{finding:?}");
        }
    }

    /// A user who may write can break locks. One who may read a file and pass its directory can keep its lock.
    #[test]
    fn permissions_of_others_are_warned_about() {
        for (directory, files, word) in [
            (0o700, 0o600, None),
            (0o755, 0o600, None),
            (0o700, 0o644, None),
            (0o750, 0o604, None),
            (0o750, 0o640, Some("block locks")),
            (0o711, 0o604, Some("block locks")),
            (0o770, 0o600, Some("break every lock")),
            (0o777, 0o666, Some("break every lock")),
        ] {
            let finding = of_permissions(directory, files);
            let warns = finding.severity == Severity::Warning;
            assert_eq!(warns, word.is_some(), "{finding:?}");
            assert!(word.is_none_or(|word| finding.detail.contains(word)), "{finding:?}");
        }
    }
}
