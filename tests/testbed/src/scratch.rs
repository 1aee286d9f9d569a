//! Temporary directories that can be kept to look at after a failure.
//!
//! A [`Scratch`] is removed with everything in it when dropped. With `LEASEHOLD_KEEP=1` in the
//! environment it stays, and its path is printed as soon as it exists, so that a test that is
//! killed has printed it, too.
//!
//! Not promised: removal when the test process itself is killed, or while a child still writes in
//! it. Drop the [`Process`](crate::Process) first.

use std::{env, ffi::OsString, io, path::Path};

use tempfile::TempDir;

/// A directory of its own for one test or one server.
#[derive(Debug)]
pub struct Scratch(TempDir);

impl Scratch {
    /// Creates an empty directory whose name contains `label`. Keep the label short: servers put
    /// unix sockets below it, and their paths end at 107 bytes.
    pub fn new(label: &str) -> io::Result<Self> {
        Self::create(label, env::var_os(KEEP))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    fn create(label: &str, keep: Option<OsString>) -> io::Result<Self> {
        let keep = keep.is_some_and(|value| value == "1");
        let dir = tempfile::Builder::new()
            .prefix(&format!("leasehold-{label}-"))
            .disable_cleanup(keep)
            .tempdir()?;
        if keep {
            eprintln!("{KEEP}=1 keeps {}", dir.path().display());
        }
        Ok(Self(dir))
    }
}

/// A directory in memory where there is such a place, else where temporary files go.
pub(crate) fn in_memory(label: &str) -> io::Result<TempDir> {
    let prefix = format!("leasehold-{label}-");
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix(&prefix);
    builder.tempdir_in("/dev/shm").or_else(|_no_such_place| builder.tempdir())
}

/// The environment variable that keeps directories: `1`, or they go.
const KEEP: &str = "LEASEHOLD_KEEP";

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// `LEASEHOLD_KEEP=1` outlives the value; any other setting does not count.
    #[test]
    fn only_keep_set_to_one_keeps_a_directory() {
        for (value, kept) in [("1", true), ("0", false), ("", false)] {
            let scratch = Scratch::create("kept", Some(value.into())).unwrap();
            let path = scratch.path().to_owned();

            drop(scratch);
            assert_eq!(path.exists(), kept, "LEASEHOLD_KEEP={value:?}");
            if kept {
                fs::remove_dir(path).unwrap();
            }
        }
    }
}
