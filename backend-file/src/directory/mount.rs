//! Whether the other processes of this host find another directory at the same path.
//!
//! A service may have a `/tmp` of its own, such as with systemd's `PrivateTmp=`. A lock there excludes no process outside.

use std::fs;
use std::path::{Path, PathBuf};

use leasehold_core::backend::{Finding, Severity};

/// The places that systems make private.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];

/// A warning, if `path` lies in a place for temporary files that the host's first process does not share.
pub(crate) fn private(path: &Path) -> Option<Finding> {
    let place = TEMPORARY.into_iter().find(|place| path.starts_with(place))?;
    let mounts = |process| fs::read_to_string(format!("/proc/{process}/mountinfo")).ok();
    // Where the system does not show them, nothing is known.
    if !differs(&mounts("self")?, &mounts("1")?, path) {
        return None;
    }
    let detail = format!(
        "{place} is a mount of its own here: other processes of this host have another {} and are not excluded; use a \
         directory outside {place}",
        path.display()
    );
    Some(Finding::new(Severity::Warning, "mount", detail))
}

/// Whether `path` is not the same place under these two tables of mounts, as in `/proc/PID/mountinfo`.
fn differs(own: &str, others: &str, path: &Path) -> bool {
    let (own, others) = (behind(own, path), behind(others, path));
    own.is_some() && others.is_some() && own != others
}

/// The device, and the path on it.
fn behind<'a>(mounts: &'a str, path: &Path) -> Option<(&'a str, PathBuf)> {
    let found = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(2);
        let (device, root, mounted) = (fields.next()?, fields.next()?, fields.next()?);
        let rest = path.strip_prefix(mounted).ok()?;
        Some((mounted.len(), (device, Path::new(root).join(rest))))
    });
    // Of several at one place the last covers the others.
    found.max_by_key(|(length, _)| *length).map(|(_, place)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str =
        "22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n23 22 0:22 / /run rw - tmpfs tmpfs rw\n";

    /// A mount that leads to the same place is none of its own.
    #[test]
    fn places_are_compared_behind_their_mounts() {
        let with = |line: &str| format!("{HOST}{line}\n");
        let locks = Path::new("/tmp/locks");
        for (line, is_private) in [
            ("", false),
            ("40 22 8:1 /tmp /tmp rw - ext4 /dev/sda1 rw", false),
            ("40 22 8:1 /tmp/systemd-private-7/tmp /tmp rw - ext4 /dev/sda1 rw", true),
            ("40 22 0:50 / /tmp rw - tmpfs tmpfs rw", true),
            ("40 22 0:50 / /tmpfiles rw - tmpfs tmpfs rw", false),
        ] {
            assert_eq!(differs(&with(line), HOST, locks), is_private, "{line}");
            assert!(!differs(&with(line), &with(line), locks), "{line}");
        }
        assert!(!differs("", HOST, locks), "nothing is known");
    }
}
