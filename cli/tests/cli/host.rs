//! The store of `--local`: one directory for all shells of a user.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use testbed::{Launch, Process, Scratch};
use tokio::process::Command;

use crate::fixture::{Done, LEASEHOLD, done, exit_code, line};

testbed::trials![two_shells_exclude_each_other, a_directory_of_others_is_refused,];

/// A shell's environment that names no store.
fn start(place: (&str, &Path), logs: &Scratch, words: &[&str]) -> Process {
    let launch = Launch::new("env", logs.path()).args(["-u", "LEASEHOLD_URL", "-u", "XDG_RUNTIME_DIR"]);
    let launch = launch.args([&format!("{}={}", place.0, place.1.display()), LEASEHOLD, "--local"]);
    launch.args(words).piped_lines().spawn().expect("it starts")
}

async fn run(place: (&str, &Path), words: &[&str]) -> Done {
    let mut command = Command::new(LEASEHOLD);
    command.env_remove("LEASEHOLD_URL").env_remove("XDG_RUNTIME_DIR").env(place.0, place.1);
    command.arg("--local").args(words).kill_on_drop(true);
    done(command).await
}

/// With no configuration but `--local`, two shells on one host exclude each other, with a session's runtime
/// directory and without one.
async fn two_shells_exclude_each_other() {
    for variable in ["XDG_RUNTIME_DIR", "TMPDIR"] {
        let (scratch, logs) = (Scratch::new("home").unwrap(), Scratch::new("logs").unwrap());
        let place = (variable, scratch.path());
        fs::set_permissions(scratch.path(), Permissions::from_mode(0o700)).unwrap();
        let mut first = start(place, &logs, &["run", "nightly", "--", "sh", "-c", "echo in; read line"]);
        assert_eq!(line(&mut first).await, "in");
        let second = run(place, &["run", "--try", "nightly", "--", "true"]).await;
        assert_eq!(second.code, 75, "{second:?}");
        let listed = run(place, &["ls", "--json"]).await;
        assert_eq!(listed.json()[0]["name"], "nightly");
        first.close_stdin();
        exit_code(&mut first).await;
        assert_eq!(run(place, &["run", "--try", "nightly", "--", "true"]).await.code, 0);
    }
}

/// A directory in a place that everybody writes to is used only if nobody else can enter it.
async fn a_directory_of_others_is_refused() {
    let scratch = Scratch::new("home").unwrap();
    let place = ("TMPDIR", scratch.path());
    assert_eq!(run(place, &["ls"]).await.code, 0);
    let made = fs::read_dir(scratch.path()).unwrap().next();
    let Some(made) = made else {
        // A test of the command's `host` module has the same without looking there.
        return eprintln!("left out: this user has a runtime directory below /run, which goes first");
    };
    let made = made.unwrap().path();
    assert_eq!(fs::metadata(&made).unwrap().permissions().mode() & 0o777, 0o700);
    fs::set_permissions(&made, Permissions::from_mode(0o770)).unwrap();
    let refused = run(place, &["ls"]).await;
    assert_eq!(refused.code, 71);
    assert!(refused.err.contains("--url file:///DIR"), "{}", refused.err);
}
