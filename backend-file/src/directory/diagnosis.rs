//! What an administrator should know about a directory.

use lockcore::backend::{Finding, Severity};
use lockcore::{Env, Result};
use rustix::process::{Resource, getrlimit};

use super::{Access, Directory, FileSystem, Scope};

impl Directory {
    /// Everything worth knowing. Looks at every lock file.
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed, so nothing is left.
    pub(crate) async fn diagnose(&self, env: &Env) -> Result<Vec<Finding>> {
        let mut findings = vec![self.place()];
        let well = Finding::new(Severity::Ok, "file system", format!("{}, of this host", self.file_system()));
        findings.push(self.file_system().warning().unwrap_or(well));
        findings.push(of_permissions(self.permissions()?));
        findings.push(self.files().await?);
        let floor = self.floor(env, Access::Read).await?.value();
        let detail =
            format!("new lock files count from {}; the token base is {}", floor.counter, floor.token_base);
        findings.push(Finding::new(Severity::Ok, "floor", detail));
        if let Some(limit) = getrlimit(Resource::Nofile).current {
            let detail =
                format!("this process may open {limit}; each held lock and each contended name takes one");
            findings.push(Finding::new(Severity::Ok, "open files", detail));
        }
        Ok(findings)
    }

    fn place(&self) -> Finding {
        let path = self.path().display();
        if self.is_in_place() {
            return Finding::new(Severity::Ok, "directory", path.to_string());
        }
        let detail = format!("{path} was removed or replaced: who comes now locks somewhere else");
        Finding::new(Severity::Broken, "directory", detail)
    }

    async fn files(&self) -> Result<Finding> {
        let (mut held, mut idle, mut others) = (0, 0, Vec::new());
        for keys in self.keys()?.chunks(CHUNK) {
            for key in keys {
                match self.newest(key)? {
                    Some((_, true)) => held += 1,
                    Some((_, false)) => idle += 1,
                    None => others.push(key.lock_file()),
                }
            }
            tokio::task::yield_now().await;
        }
        let counts = format!("{held} held, {idle} idle");
        let Some(other) = others.first() else {
            return Ok(Finding::new(Severity::Ok, "files", counts));
        };
        let detail = format!("{counts}, {} not readable as lock files, such as {other:?}", others.len());
        Ok(Finding::new(Severity::Warning, "files", detail))
    }
}

impl FileSystem {
    /// What it means for the guarantees, unless all is well.
    pub(crate) fn warning(&self) -> Option<Finding> {
        let detail = match self.scope {
            Scope::Local => return None,
            Scope::Memory => format!("{self} is memory: after a reboot tokens begin again"),
            Scope::Network => format!(
                "{self} is a network file system: exclusion and tokens are what its server makes of file locks \
             and syncs, and a lost connection may lose locks without a word"
            ),
            Scope::Program => format!(
                "{self} may be a network file system: exclusion and tokens are what its program makes of file \
             locks and syncs"
            ),
        };
        Some(Finding::new(Severity::Warning, "file system", detail))
    }
}

fn of_permissions(mode: u32) -> Finding {
    if mode & 0o022 == 0 {
        return Finding::new(Severity::Ok, "permissions", format!("{mode:04o}: only the owner may write"));
    }
    let detail = format!(
        "{mode:04o}: other users may write here, and whoever may write can take, keep and break every lock"
    );
    Finding::new(Severity::Warning, "permissions", detail)
}

/// How many files are looked at before others get a turn.
const CHUNK: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever takes a guarantee away is said.
    #[test]
    fn weaker_places_are_warned_about() {
        assert!(FileSystem::of_scope(Scope::Local).warning().is_none());
        for (scope, word) in
            [(Scope::Memory, "reboot"), (Scope::Network, "exclusion"), (Scope::Program, "exclusion")]
        {
            let finding = FileSystem::of_scope(scope).warning().unwrap();
            assert!(finding.severity == Severity::Warning && finding.detail.contains(word), "{finding:?}");
        }
        assert_eq!(of_permissions(0o700).severity, Severity::Ok);
        assert_eq!(of_permissions(0o770).severity, Severity::Warning);
    }
}
