//! What `tests/testbed/install` does to the machine.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use testbed::Scratch;

/// With INSTALL=0 it says what is missing and installs nothing, for every user.
#[test]
fn nothing_is_installed_where_that_is_refused() {
    let scratch = Scratch::new("install").unwrap();
    let commands = scratch.path().join("commands");
    fs::create_dir(&commands).unwrap();
    for needed in ["dirname", "id"] {
        symlink(Path::new("/usr/bin").join(needed), commands.join(needed)).unwrap();
    }
    let (apt, called) = (commands.join("apt-get"), scratch.path().join("called"));
    fs::write(&apt, format!("#!/bin/sh\n: > {}\n", called.display())).unwrap();
    fs::set_permissions(&apt, Permissions::from_mode(0o755)).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("install");
    let mut install = Command::new("/bin/bash");
    install.arg(script).arg("packages").env("PATH", &commands).env("INSTALL", "0");
    let refused = install.output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("redis-server") && said.contains("apt-get install"), "{said}");
    assert!(!called.exists(), "it was installed");
}
