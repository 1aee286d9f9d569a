//! Where the locks are: said, required, hidden, waited for.

use std::process::Stdio;

#[cfg(target_os = "linux")]
use rustix::process::geteuid;
use tokio::process::Command;

use crate::fixture::{Done, Fixture, LEASEHOLD, done, exit_code, finish, line, rest, until_said};

testbed::trials![
    store_must_be_named,
    #[cfg(target_os = "linux")]
    private_directory_for_temporary_files_is_reported,
    required_guarantee_is_checked_first,
    the_url_may_stand_in_a_file,
    a_hidden_url_is_refused_until_another_is_given,
    #[cfg(target_os = "linux")]
    hidden_url_is_not_readable_in_the_parent,
    a_nested_command_does_not_wait_for_itself,
    waiting_is_told_where_there_is_no_terminal,
    of_several_locks_those_of_others_are_waited_for,
    looking_answers_by_the_exit_code_if_asked,
    #[cfg(feature = "redis")]
    a_store_that_is_not_there_yet_is_waited_for,
];

/// A command without a URL, in a runtime directory of its own.
async fn here(fixture: &Fixture, words: &[&str]) -> Done {
    let mut command = Command::new(LEASEHOLD);
    command.env_remove("LEASEHOLD_URL").env("TMPDIR", fixture.scratch.path()).env_remove("XDG_RUNTIME_DIR");
    command.args(words).stdin(Stdio::null()).kill_on_drop(true);
    done(command).await
}

/// A shell that has lost its variable must not lock on one host by accident.
async fn store_must_be_named() {
    let fixture = Fixture::new();
    let commands: &[&[&str]] = &[
        &["run", "a", "--", "echo", "started"],
        &["hold", "--ignore-stdin", "a"],
        &["inspect", "a"],
        &["ls"],
        &["watch", "a"],
        &["revoke", "a"],
        &["doctor"],
        &["token-base", "get"],
        #[cfg(feature = "redis")]
        &["redis-scripts"],
        #[cfg(feature = "migrate")]
        &["migrate", "status"],
    ];
    for words in commands {
        let refused = here(&fixture, words).await;
        assert_eq!((refused.code, refused.out.as_str()), (64, ""), "{words:?}: {refused:?}");
        for way in ["no store is named", "--url URL", "--url-file FILE", "LEASEHOLD_URL", "--local"] {
            assert!(refused.err.contains(way), "{words:?}: {refused:?}");
        }
    }
    let unset = Fixture::on("").done(["run", "a", "--", "echo", "started"]).await;
    assert_eq!((unset.code, unset.out.as_str()), (64, ""), "{unset:?}");
    assert!(unset.err.contains("LEASEHOLD_URL is empty"), "{unset:?}");
    let ran = here(&fixture, &["run", "--local", "a", "--", "echo", "done"]).await;
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "done\n", ""), "{ran:?}");
    let named = here(&fixture, &["--local", "--url", fixture.url(), "ls"]).await;
    assert!(named.code == 64 && named.err.contains("--local"), "{named:?}");
}

/// A service with a `/tmp` of its own excludes only itself there.
#[cfg(target_os = "linux")]
async fn private_directory_for_temporary_files_is_reported() {
    let fixture = Fixture::on("file:///var/tmp/locks");
    let (mount, script) =
        ("mount -t tmpfs none /var/tmp", "$0 doctor; $0 run a -- true; $0 run -q a -- true");
    let mut private = Command::new("unshare");
    private.args((!geteuid().is_root()).then_some("--map-root-user"));
    private.args(["--mount", "sh", "-c", &format!("{mount} || exit 99; {script}"), LEASEHOLD]);
    private.env("LEASEHOLD_URL", fixture.url()).stdin(Stdio::null()).kill_on_drop(true);
    let ran = done(private).await;
    let told = "/var/tmp is a mount of its own here";
    assert!(ran.code == 0 && ran.out.contains(told), "{ran:?}");
    assert_eq!(ran.err.matches(told).count(), 1, "{ran:?}");
}

async fn required_guarantee_is_checked_first() {
    let fixture = Fixture::new();
    let required = ["run", "--require", "fenced,cross_host", "a", "--", "echo", "started"];
    let refused = fixture.done(required).await;
    assert_eq!((refused.code, refused.out.as_str()), (64, ""), "{refused:?}");
    assert!(refused.err.contains("does not promise the required cross_host;"), "{refused:?}");
    let mut by_variable = Command::new(LEASEHOLD);
    by_variable.args(["run", "a", "--", "echo", "started"]).env("LEASEHOLD_REQUIRE", "cross_host");
    by_variable.env("LEASEHOLD_URL", fixture.url()).kill_on_drop(true);
    let refused = done(by_variable).await;
    assert_eq!((refused.code, refused.out.as_str()), (64, ""), "{refused:?}");
    for words in [&["ls"] as &[&str], &["inspect", "a"], &["revoke", "a"], &["token-base", "get"]] {
        let refused = fixture.done(["--require", "cross_host"].iter().chain(words).copied()).await;
        assert!(refused.code == 64 && refused.err.contains("does not promise"), "{words:?}: {refused:?}");
    }
    assert_eq!(fixture.done(["run", "--require", "fenced", "a", "--", "true"]).await.code, 0);
    let diagnosis = fixture.done(["doctor", "--json", "--require", "cross_host"]).await;
    assert_eq!((diagnosis.code, &diagnosis.json()["broken"]), (1, &true.into()));
}

async fn the_url_may_stand_in_a_file() {
    let fixture = Fixture::new();
    let elsewhere = Fixture::new();
    let file = fixture.write("url", &format!("{}\n", elsewhere.url()));
    let mut holder = fixture.hold(["--url-file", &file, "a"]).await;
    assert_eq!(elsewhere.inspect("a").await["held"], true);
    assert_eq!(fixture.inspect("a").await["held"], false);
    finish(&mut holder).await;
    let empty = fixture.write("empty", "\n");
    assert_eq!(
        here(&fixture, &["--quiet", "--url-file", &empty, "ls"]).await.code,
        64,
        "an empty file names no store"
    );
}

async fn a_hidden_url_is_refused_until_another_is_given() {
    let fixture = Fixture::new();
    let nested = format!(
        "echo $LEASEHOLD_URL; {LEASEHOLD} ls; echo $?; {LEASEHOLD} --url '{}' ls --json",
        fixture.url()
    );
    let ran = fixture.done(["run", "--hide-url", "a", "--", "sh", "-c", &nested]).await;
    let lines: Vec<_> = ran.out.lines().collect();
    assert_eq!(lines[..2], ["hidden:", "64"], "{ran:?}");
    assert!(lines[2].contains("\"a\""), "{ran:?}");
}

/// The command has the same user, who may read the environment of other processes.
#[cfg(target_os = "linux")]
async fn hidden_url_is_not_readable_in_the_parent() {
    let fixture = Fixture::new();
    // Root may read any, unless its rights are taken away.
    let drops = ["setpriv", "--bounding-set=-all"].into_iter().filter(|_| geteuid().is_root());
    for (hide, shown) in [(None, true), (Some("--hide-url"), false)] {
        let mut command = Command::new("env");
        command.args(drops.clone()).args([LEASEHOLD, "run", "a"]).args(hide).args(["--", "sh", "-c"]);
        command
            .arg("cat /proc/$PPID/environ; echo read")
            .env("LEASEHOLD_URL", fixture.url())
            .kill_on_drop(true);
        let ran = done(command).await;
        assert!(ran.out.contains("read") && ran.out.contains(fixture.url()) == shown, "{hide:?}: {ran:?}");
    }
}

async fn a_nested_command_does_not_wait_for_itself() {
    let fixture = Fixture::new();
    let nested = format!(
        "{LEASEHOLD} run a -- true; echo $?; {LEASEHOLD} run b -- {LEASEHOLD} run a -- true; echo $?; \
         {LEASEHOLD} run b -- true; echo $?"
    );
    let ran = fixture.done(["run", "a", "--", "sh", "-c", &nested]).await;
    assert_eq!(ran.out, "64\n64\n0\n", "{ran:?}");
    assert!(ran.err.contains("already") && ran.err.contains("LEASEHOLD_HELD"), "{ran:?}");
}

async fn waiting_is_told_where_there_is_no_terminal() {
    let fixture = Fixture::new();
    let mut holder = fixture.hold(["--owner", "somebody", "a"]).await;
    let mut waiter = fixture.start(["run", "a", "--", "true"]);
    until_said(&waiter, "leasehold: waiting for \"a\", held by somebody").await;
    holder.close_stdin();
    assert_eq!(exit_code(&mut waiter).await, 0);
}

async fn of_several_locks_those_of_others_are_waited_for() {
    let fixture = Fixture::new();
    let mut holder = fixture.hold(["--owner", "somebody", "b"]).await;
    let mut waiter = fixture.start(["run", "--owner", "us", "--all", "a", "c", "b", "--", "true"]);
    until_said(&waiter, "leasehold: waiting for \"b\", held by somebody").await;
    let said = std::fs::read_to_string(waiter.log()).unwrap();
    assert_eq!(said.matches("waiting for").count(), 1, "{said}");
    holder.close_stdin();
    assert_eq!(exit_code(&mut waiter).await, 0);
}

async fn looking_answers_by_the_exit_code_if_asked() {
    let fixture = Fixture::new();
    assert_eq!(fixture.done(["inspect", "a"]).await.code, 0);
    assert_eq!(fixture.done(["inspect", "--exit-code", "a"]).await.code, 1);
    let mut holder = fixture.hold(["a"]).await;
    assert_eq!(fixture.done(["inspect", "--exit-code", "a"]).await.code, 0);
    holder.close_stdin();
    rest(&mut holder).await;
}

#[cfg(feature = "redis")]
async fn a_store_that_is_not_there_yet_is_waited_for() {
    let mut server = testbed::redis::Settings::new().start().await.expect("the server starts");
    let fixture = Fixture::on(server.url());
    server.kill().await.expect("it ends");
    for words in [&["run", "--try", "a", "--", "true"] as &[&str], &["run", "a", "--", "true"]] {
        assert_eq!(fixture.done(words.iter().copied()).await.code, 69, "{words:?}");
    }
    let mut waiter = fixture.start(["run", "--wait", "30s", "a", "--", "echo", "held"]);
    until_said(&waiter, "cannot open the store").await;
    server.start_again().await.expect("the server starts");
    assert_eq!(line(&mut waiter).await, "held");
    assert_eq!(exit_code(&mut waiter).await, 0);
    server.kill().await.expect("it ends");
    let gone = fixture.done(["run", "--wait", "300ms", "a", "--", "true"]).await;
    assert_eq!(gone.code, 69, "{gone:?}");
}
