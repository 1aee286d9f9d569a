//! A few lines of C that stand before the C library's own functions in a server's process.

use std::{fs, io, process::Command, sync::Arc};

use crate::{Launch, Scratch};

/// A compiled library, in a directory of its own; clones are the same one.
#[derive(Clone, Debug)]
pub(super) struct Preload(Arc<Scratch>);

impl Preload {
    pub(super) fn compile(source: &str) -> io::Result<Self> {
        let scratch = Scratch::new("preload")?;
        let file = scratch.path().join("library.c");
        fs::write(&file, source)?;
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(scratch.path().join(LIBRARY))
            .arg(&file)
            .output()
            .map_err(|error| io::Error::other(format!("cc: {error}; run `make tools`")))?;
        if !compiled.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&compiled.stderr).into_owned()));
        }
        Ok(Self(Arc::new(scratch)))
    }

    /// Where the library may keep files.
    pub(super) fn scratch(&self) -> &Scratch {
        &self.0
    }

    /// Has a program that is to be started use the library.
    pub(super) fn rule(&self, launch: Launch) -> Launch {
        launch.env("LD_PRELOAD", self.0.path().join(LIBRARY))
    }
}

const LIBRARY: &str = "library.so";
