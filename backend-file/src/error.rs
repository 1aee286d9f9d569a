//! The meaning of a system error, or of the bytes of a file, for a lock.
//!
//! Everything is [`Effect::NotApplied`](leasehold_core::Effect): after a failure on the way to a grant the lock is released in
//! the same call, without a step that can fail.

use std::borrow::Cow;
use std::io;
use std::path::Path;

pub(crate) use leasehold_core::backend::closed;
use leasehold_core::{Error, ErrorKind};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::record::Unreadable;

/// The error of a system call on `path`.
pub(crate) fn of_system(error: io::Error, doing: &'static str, path: &Path) -> Error {
    let (kind, advice) = meaning(&error);
    let message =
        advice.map_or_else(|| format!("cannot {doing}"), |advice| format!("cannot {doing}: {advice}"));
    let path = path.display();
    Error::not_applied(kind, message).with_context("path", path).with_source(error)
}

/// A file with bytes that are not a value of this library.
pub(crate) fn of_bytes(unreadable: Unreadable, path: &Path) -> Error {
    let message: Cow<'_, str> = match unreadable {
        Unreadable::Damaged => DAMAGED.into(),
        Unreadable::Foreign => {
            "the file is not a lock file: move it away, or lock in another directory".into()
        }
        Unreadable::Newer { version } => {
            format!("the file has format version {version}, which this version cannot read: upgrade").into()
        }
    };
    refused(message, path)
}

const DAMAGED: &str =
    "the lock file is damaged and its counter lost: read docs/src/file-operations.md before you remove it";

/// A file or directory that must not be there.
pub(crate) fn refused(message: impl Into<String>, path: &Path) -> Error {
    Error::not_applied(ErrorKind::Protocol, message).with_context("path", path.display())
}

/// The one mapping from system errors, with advice if the system's own words are not enough.
fn meaning(error: &io::Error) -> (ErrorKind, Option<Cow<'static, str>>) {
    use ErrorKind::{Denied, Protocol, Unavailable, Unsupported};
    let (kind, advice) = match Errno::from_io_error(error) {
        Some(Errno::ACCESS | Errno::PERM) => (Denied, DENIED),
        Some(Errno::ROFS) => (Denied, "the file system is read-only"),
        Some(Errno::MFILE | Errno::NFILE) => return (Unavailable, Some(open_files().into())),
        Some(Errno::NOSPC | Errno::DQUOT) => (Unavailable, "the disk or the quota is full"),
        Some(Errno::NOENT | Errno::STALE) => {
            (Unavailable, "the lock directory or a part of it is missing, or was removed while in use")
        }
        Some(Errno::AGAIN) => (Unavailable, "the limit of threads is reached"),
        Some(Errno::EXIST | Errno::LOOP | Errno::NOTDIR | Errno::ISDIR | Errno::NXIO) => {
            (Protocol, "another kind of file is in the place of a file or directory of this library")
        }
        Some(Errno::NOLCK | Errno::NOTSUP | Errno::NOSYS) => {
            (Unsupported, "the file system supports no file locks or no hard links")
        }
        _ => return (Unavailable, None),
    };
    (kind, Some(advice.into()))
}

const DENIED: &str =
    "permission denied; every user of the directory must be able to read and write all of it";

fn open_files() -> String {
    let limit = getrlimit(Resource::Nofile).current;
    let limit = limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
    format!(
        "too many open files; every held lock and every contended name uses one: raise the limit of this \
         process (`ulimit -n`, now {limit}) or of the system"
    )
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use leasehold_core::Effect;

    use super::*;

    /// The whole mapping.
    #[test]
    fn system_errors_have_their_kind() {
        let table = [
            (Errno::ACCESS, ErrorKind::Denied),
            (Errno::PERM, ErrorKind::Denied),
            (Errno::ROFS, ErrorKind::Denied),
            (Errno::MFILE, ErrorKind::Unavailable),
            (Errno::NFILE, ErrorKind::Unavailable),
            (Errno::NOSPC, ErrorKind::Unavailable),
            (Errno::DQUOT, ErrorKind::Unavailable),
            (Errno::NOENT, ErrorKind::Unavailable),
            (Errno::STALE, ErrorKind::Unavailable),
            (Errno::AGAIN, ErrorKind::Unavailable),
            (Errno::IO, ErrorKind::Unavailable),
            (Errno::EXIST, ErrorKind::Protocol),
            (Errno::LOOP, ErrorKind::Protocol),
            (Errno::NOTDIR, ErrorKind::Protocol),
            (Errno::ISDIR, ErrorKind::Protocol),
            (Errno::NXIO, ErrorKind::Protocol),
            (Errno::NOLCK, ErrorKind::Unsupported),
            (Errno::NOTSUP, ErrorKind::Unsupported),
            (Errno::NOSYS, ErrorKind::Unsupported),
        ];
        for (errno, kind) in table {
            let error = of_system(errno.into(), "open the lock file", Path::new("/locks/a.lock"));
            println!("{error:#}");
            assert_eq!(*error.kind(), kind, "{errno}");
            assert_eq!(error.effect(), Effect::NotApplied);
            assert!(error.to_string().contains("/locks/a.lock"), "{error}");
            let cause = error.source().expect("it has a cause").to_string();
            assert!(!error.to_string().contains(&cause), "{error} repeats its cause");
        }
    }

    /// The message about open files says what to do.
    #[test]
    fn the_limit_of_open_files_is_named() {
        let error = of_system(Errno::MFILE.into(), "open the lock file", Path::new("/locks"));
        assert!(error.to_string().contains("ulimit -n"), "{error}");
    }
}
