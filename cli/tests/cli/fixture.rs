//! A store of one's own, and the command on it.

#![cfg_attr(not(feature = "file"), allow(dead_code, reason = "most tests are of the file store"))]

use std::path::Path;
use std::process::{Output, Stdio};

use rustix::process::{Pid, Signal, getpgid, kill_process, test_kill_process};
use serde_json::Value;
pub(crate) use testbed::BOUND;
use testbed::{Launch, Process, ProcessErrorKind, Scratch, eventually, within};
use tokio::process::Command;

use crate::schema;

pub(crate) const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");

pub(crate) struct Fixture {
    pub(crate) scratch: Scratch,
    url: String,
}

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Fixture {
    /// On a directory of its own.
    #[cfg(feature = "file")]
    pub(crate) fn new() -> Self {
        Self::with("")
    }

    /// On a directory of its own, with options.
    #[cfg(feature = "file")]
    pub(crate) fn with(options: &str) -> Self {
        let scratch = Scratch::new("cli").expect("a directory can be made");
        let url = format!("file://{}/locks{options}", scratch.path().display());
        Self { scratch, url }
    }

    /// On any store.
    pub(crate) fn on(url: impl Into<String>) -> Self {
        Self { scratch: Scratch::new("cli").expect("a directory can be made"), url: url.into() }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Starts `leasehold` with its lines piped.
    pub(crate) fn start<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Process {
        self.start_program(LEASEHOLD, words)
    }

    /// Starts a program that finds the store in its environment. Its signals have their default actions, also
    /// where the tests run with the interrupt signal ignored, as in the background of a script.
    pub(crate) fn start_program<'a>(
        &self,
        program: &str,
        words: impl IntoIterator<Item = &'a str>,
    ) -> Process {
        let launch = Launch::new("env", self.scratch.path()).args(["--default-signal", program]).args(words);
        launch.env("LEASEHOLD_URL", &self.url).piped_lines().spawn().expect("the program starts")
    }

    /// Starts `leasehold hold` with further words, and waits until it holds.
    pub(crate) async fn hold<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Process {
        self.held(words).await.0
    }

    /// The same, and the line that it writes when it holds.
    pub(crate) async fn held<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> (Process, Value) {
        let mut holder = self.start(["hold"].into_iter().chain(words));
        assert_eq!(value(&mut holder).await["state"], "waiting");
        let held = value(&mut holder).await;
        assert_eq!(held["state"], "held");
        (holder, held)
    }

    /// Starts a `cat` under a lock, and waits until it runs.
    pub(crate) async fn running<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Process {
        let mut cat = self.start(words);
        cat.send_line("in").await.expect("it reads");
        assert_eq!(line(&mut cat).await, "in");
        cat
    }

    /// Runs `leasehold` to its end, without input.
    pub(crate) async fn done<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Done {
        let mut command = Command::new(LEASEHOLD);
        command.args(words).env("LEASEHOLD_URL", &self.url).stdin(Stdio::null()).kill_on_drop(true);
        done(command).await
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let file = self.scratch.path().join(name);
        std::fs::write(&file, text).expect("a file can be written");
        file.display().to_string()
    }

    /// What `inspect` says, as JSON.
    pub(crate) async fn inspect(&self, name: &str) -> Value {
        let seen = self.done(["inspect", "--json", name]).await;
        assert_eq!(seen.code, 0, "{seen:?}");
        let seen = seen.json();
        schema::check("inspect", &seen);
        seen
    }

    /// Waits until so many wait for `name` at the store.
    pub(crate) async fn until_contended(&self, name: &str, contenders: u64) {
        eventually("they wait", async || self.inspect(name).await["waiting"] == contenders).await;
    }
}

impl Done {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn error(&self) -> Value {
        let line: Value = serde_json::from_str(&self.err).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        schema::check("error", &line);
        line["error"].clone()
    }
}

pub(crate) async fn done(mut command: Command) -> Done {
    let output = within(BOUND, "it ends", command.output()).await.expect("it starts");
    let Output { status, stdout, stderr } = output;
    let text = |bytes| String::from_utf8(bytes).expect("it writes UTF-8");
    Done { code: status.code().expect("no signal ends it"), out: text(stdout), err: text(stderr) }
}

pub(crate) async fn line(process: &mut Process) -> String {
    process.next_line(BOUND).await.expect("a line")
}

pub(crate) async fn value(process: &mut Process) -> Value {
    let line = line(process).await;
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// The lines that are left, until nobody can write any more.
pub(crate) async fn rest(process: &mut Process) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        match process.next_line(BOUND).await {
            Ok(line) => lines.push(line),
            Err(error) if error.kind() == ProcessErrorKind::Ended => return lines,
            Err(error) => panic!("{error}"),
        }
    }
}

pub(crate) async fn exit_code(process: &mut Process) -> i32 {
    let status = process.wait(BOUND).await.expect("it ends");
    status.code().unwrap_or_else(|| panic!("a signal has ended it: {status}"))
}

/// Closes its standard input, and waits until it has ended well.
pub(crate) async fn finish(process: &mut Process) {
    process.close_stdin();
    assert_eq!(exit_code(process).await, 0);
}

/// Waits until it has said that on standard error.
pub(crate) async fn until_said(process: &Process, what: &str) {
    let said = async || std::fs::read_to_string(process.log()).unwrap_or_default().contains(what);
    eventually(format!("it says {what:?}"), said).await;
}

pub(crate) fn send(process: &Process, signal: Signal) {
    kill_process(pid(process.pid()), signal).expect("it runs");
}

/// A short job that is started on two hosts runs on one: what it leaves behind holds the lock, and nothing else of it.
pub(crate) async fn job_runs_once(fixture: &Fixture) {
    let detached = "$0 run --try --at-least 10m --detach job -- sh -c 'echo ran >&9; exit 3'";
    let script = format!("exec 9>&1; exec {detached}");
    for code in [3, 75] {
        let mut job = Command::new("sh");
        job.args(["-c", &script, LEASEHOLD]).env("LEASEHOLD_URL", &fixture.url);
        job.stdin(Stdio::null()).kill_on_drop(true);
        // It ends when no process can write to the descriptors 1 and 9 any more.
        let ran = done(job).await;
        assert_eq!((ran.code, &*ran.out), (code, if code == 3 { "ran\n" } else { "" }), "{ran:?}");
    }
    let seen = fixture.inspect("job").await;
    let label = seen["holder"]["label"].as_str().expect("a label");
    let holder: u32 = label.rsplit('/').next().expect("a number").parse().expect("its process");
    let directory = std::fs::read_link(format!("/proc/{holder}/cwd")).expect("it is alive");
    assert_eq!(directory, Path::new("/"));
    assert_eq!(fixture.done(["revoke", "job"]).await.code, 0);
    until_gone(holder).await;
}

/// Waits until there is no such process. It is nobody's who would leave it unreaped.
pub(crate) async fn until_gone(process: u32) {
    eventually("it ends", async || !is_alive(process)).await;
}

pub(crate) async fn until_leader(process: u32) {
    let leads = async || getpgid(Some(pid(process))) == Ok(pid(process));
    eventually("it leads a group", leads).await;
}

pub(crate) fn is_alive(process: u32) -> bool {
    test_kill_process(pid(process)).is_ok()
}

pub(crate) fn kill(process: u32) {
    kill_process(pid(process), Signal::KILL).expect("it runs");
}

fn pid(number: u32) -> Pid {
    Pid::from_raw(number.cast_signed()).expect("a process has a number")
}
