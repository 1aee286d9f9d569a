//! What the tests want beside the servers: other libraries and their runtimes.

use std::path::{Path, PathBuf};

use crate::Depth;

/// Says that a part of a test is left out, and why. At every depth but [`Depth::Check`] that is a failure.
#[track_caller]
pub fn skip(what: &str, reason: &str) {
    assert_eq!(Depth::of_run(), Depth::Check, "{what} cannot be left out here: {reason}");
    eprintln!("left out: {what}: {reason}");
}

/// The Python that has the libraries of `comparison/peers/python`, which `make tools` installs.
pub fn python() -> Option<PathBuf> {
    let python = tools().join("peers/python/bin/python");
    python.exists().then_some(python)
}

/// Where `make tools` puts what is not installed for the whole machine.
pub fn tools() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools")
}
