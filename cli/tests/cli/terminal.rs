//! At a terminal: who reads from it, whom the keyboard's signals reach, and stopping for a while.
//!
//! The words that are waited for are written so that the terminal's echo of what is typed does not
//! contain them.

use std::fs::File;
use std::process::{Child, Command};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::fixture::{BOUND, Fixture, LEASEHOLD};

testbed::trials![
    a_command_may_read_from_the_terminal,
    the_keyboards_signals_reach_the_command,
    a_job_can_be_stopped_and_continued,
    #[cfg(feature = "redis")]
    a_job_that_was_stopped_for_too_long_does_not_go_on,
    a_background_job_reads_when_it_is_brought_forward,
    neighbours_in_a_pipeline_keep_the_keyboard,
    force_is_asked_about,
    tables_fit_the_terminal,
    #[cfg(feature = "top")]
    top_shows_locks_until_q,
];

/// A terminal with a program at it, in a session of their own.
struct Screen {
    keyboard: OwnedFd,
    program: Child,
    shown: String,
}

impl Screen {
    fn new(fixture: &Fixture, words: &[&str]) -> Self {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&keyboard).and_then(|()| unlockpt(&keyboard)).expect("it is ours");
        let name = ptsname(&keyboard, Vec::new()).expect("it has a name");
        let screen = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("it opens");
        let screen = || File::from(screen.try_clone().expect("a descriptor is left"));
        let mut setsid = Command::new("env");
        setsid
            .args(["--default-signal", "setsid", "--ctty"])
            .args(words)
            .env("LEASEHOLD_URL", fixture.url())
            .env("PS1", "> ");
        setsid.stdin(screen()).stdout(screen()).stderr(screen());
        Self { keyboard, program: setsid.spawn().expect("setsid starts"), shown: String::new() }
    }

    fn press(&self, keys: &str) {
        rustix::io::write(&self.keyboard, keys.as_bytes()).expect("the terminal takes it");
    }

    /// Waits until `text` is shown, and returns and forgets everything up to it.
    fn until(&mut self, text: &str) -> String {
        let bound = Timespec { tv_sec: BOUND.as_secs().cast_signed(), tv_nsec: 0 };
        loop {
            if let Some(at) = self.shown.find(text) {
                return self.shown.drain(..at + text.len()).collect();
            }
            let ready = poll(&mut [PollFd::new(&self.keyboard, PollFlags::IN)], Some(&bound));
            assert_eq!(ready, Ok(1), "{text:?} is not shown, only {:?}", self.shown);
            let mut bytes = [0; 1024];
            let read = rustix::io::read(&self.keyboard, &mut bytes);
            let read = read.unwrap_or_else(|_| panic!("{text:?} was not shown, only {:?}", self.shown));
            self.shown.push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // What runs at the terminal is told that it has gone; the session's leader need not listen.
        let _dead = self.program.kill();
        let _reaped = self.program.wait();
    }
}

async fn a_command_may_read_from_the_terminal() {
    let fixture = Fixture::new();
    let inner = "echo rea''dy; read line; echo got-$line";
    let script = format!("{LEASEHOLD} run a -- sh -c \"{inner}\"; read after; echo after-$after");
    let mut screen = Screen::new(&fixture, &["sh", "-c", &script.replace("$line", "\\$line")]);
    screen.until("ready");
    screen.press("one\n");
    screen.until("got-one");
    screen.press("two\n");
    screen.until("after-two");
}

async fn the_keyboards_signals_reach_the_command() {
    let fixture = Fixture::new();
    let trap = "trap 'echo interrupt''ed; exit 5' INT";
    for first in ["", "read line; "] {
        let inner = format!("{trap}; {first}echo rea''dy; while :; do sleep 0.05; done");
        let script = format!("trap : INT; {LEASEHOLD} run a -- sh -c \"{inner}\"; echo code-$?");
        let mut screen = Screen::new(&fixture, &["sh", "-c", &script]);
        if !first.is_empty() {
            screen.press("line\n");
        }
        screen.until("ready");
        screen.press("\u{3}");
        screen.until("interrupted");
        screen.until("code-5");
    }
    // Not from the keyboard, and to one process only.
    let inner = format!("{trap}; kill -INT $$; while :; do sleep 0.05; done");
    let script = format!("exec {LEASEHOLD} run --at-least 10m --detach a -- sh -c \"{inner}\"");
    Screen::new(&fixture, &["sh", "-c", &script]).until("interrupted");
}

async fn a_job_can_be_stopped_and_continued() {
    let fixture = Fixture::new();
    let commands = ["exec cat", "while read line; do echo $line; done </dev/tty"];
    for command in commands {
        let mut screen = Screen::new(&fixture, &["bash", "--norc", "-i"]);
        screen.until("> ");
        screen.press(&format!("{LEASEHOLD} run a -- sh -c 'echo rea\"\"dy; {command}'\n"));
        screen.until("ready");
        screen.press("one\n");
        screen.until("one");
        screen.until("one");
        screen.press("\u{1a}");
        screen.until("Stopped");
        screen.until("> ");
        assert_eq!(fixture.done(["run", "--try", "a", "--", "true"]).await.code, 75);
        screen.press("fg\n");
        screen.until(command);
        screen.press("two\n");
        screen.until("two");
        screen.until("two");
        screen.press("\u{4}");
        screen.until("> ");
        screen.press("echo co''de-$?\n");
        screen.until("code-0");
    }
}

#[cfg(feature = "redis")]
async fn a_job_that_was_stopped_for_too_long_does_not_go_on() {
    let server = testbed::redis::Settings::new().start().await.unwrap();
    let fixture = Fixture::on(format!("{}/0?ttl=3s", server.url()));
    let mut screen = Screen::new(&fixture, &["bash", "--norc", "-i"]);
    screen.until("> ");
    screen.press(&format!("{LEASEHOLD} run a -- sh -c 'echo rea\"\"dy; read line; echo went\"\"-on'\n"));
    screen.until("ready");
    screen.press("\u{1a}");
    screen.until("Stopped");
    screen.until("> ");
    assert_eq!(fixture.done(["run", "--wait", "30s", "a", "--", "true"]).await.code, 0);
    screen.press("fg\n");
    screen.until("killing the command");
    screen.until("> ");
    screen.press("echo co''de-$?\n");
    screen.until("code-76");
    assert!(!screen.shown.contains("went-on"));
}

async fn a_background_job_reads_when_it_is_brought_forward() {
    let fixture = Fixture::new();
    let mut screen = Screen::new(&fixture, &["bash", "--norc", "-i"]);
    screen.until("> ");
    screen.press(&format!("{LEASEHOLD} run a -- sh -c 'echo rea\"\"dy; read line; echo got-$line' &\n"));
    screen.until("ready");
    assert_eq!(fixture.done(["run", "--try", "a", "--", "true"]).await.code, 75);
    screen.press("fg\n");
    screen.until("got-$line");
    screen.press("one\n");
    screen.until("got-one");
}

/// A pager beside us in a pipeline reads the keyboard, as the command does not ask for it.
async fn neighbours_in_a_pipeline_keep_the_keyboard() {
    let fixture = Fixture::new();
    let script = format!("{LEASEHOLD} run a -- echo out | sh -c 'cat; read line </dev/tty; echo got-$line'");
    let mut screen = Screen::new(&fixture, &["sh", "-c", &script]);
    screen.until("out");
    screen.press("one\n");
    screen.until("got-one");
}

async fn force_is_asked_about() {
    let fixture = Fixture::new();
    let _holder = fixture.hold(["a"]).await;
    for (answer, code, held) in [("n", 64, true), ("", 64, true), ("y", 0, false)] {
        let script = format!("{LEASEHOLD} revoke --force a; echo code-$?");
        let mut screen = Screen::new(&fixture, &["sh", "-c", &script]);
        screen.until("[y/N]");
        screen.press(&format!("{answer}\n"));
        screen.until(&format!("code-{code}"));
        assert_eq!(fixture.inspect("a").await["held"], held);
    }
}

/// At every width, of which 0 is unknown, a token can be copied and no line of a table is broken by the terminal.
async fn tables_fit_the_terminal() {
    let fixture = Fixture::new();
    let (name, metadata) = ("a-name-of-a-lock/that-is-longer-than-most", "why ".repeat(30));
    let (_holder, held) =
        fixture.held([name, "--owner", "some-host.example.org/4711", "--metadata", &metadata]).await;
    let token = held["token"].to_string();
    let tables = format!("{LEASEHOLD} ls; {LEASEHOLD} inspect {name}; {LEASEHOLD} token-base get");
    for (columns, least, most) in [(80, 40, 80), (200, 120, 200), (0, 40, 80)] {
        let script =
            format!("stty cols {columns}; {tables}; echo do\"\"ne; {LEASEHOLD} ls --wide; echo do\"\"ne");
        let mut screen = Screen::new(&fixture, &["sh", "-c", &script]);
        let narrow = screen.until("done");
        let longest = narrow.lines().map(|line| line.chars().count()).max().unwrap();
        assert!((least..=most).contains(&longest), "{columns}: {longest}: {narrow}");
        assert!(narrow.matches(&token).count() >= 2, "{columns}: {narrow}");
        let wide = screen.until("done");
        assert!(wide.contains(metadata.trim()) && wide.contains('Z'), "{columns}: {wide}");
    }
    let piped = fixture.done(["ls"]).await.out;
    assert!(piped.contains(metadata.trim()), "{piped}");
}

/// The screen has the lock while it is held and is given back at the end, with its keyboard.
#[cfg(feature = "top")]
async fn top_shows_locks_until_q() {
    let fixture = Fixture::new();
    let _holder = fixture.hold(["a-lock", "--owner", "somebody"]).await;
    let script = format!("stty cols 80 rows 24; {LEASEHOLD} top; echo code-$?; read line; echo got-$line");
    let mut screen = Screen::new(&fixture, &["sh", "-c", &script]);
    // The first screen has no lock yet; then only cells that change are drawn, and never blank ones.
    screen.until("quit");
    screen.until("somebody");
    screen.press("/");
    screen.until("filter:");
    screen.press("q\rq");
    // The screen of before.
    screen.until("\u{1b}[?1049l");
    screen.until("code-0");
    // In raw mode a line would not end here.
    screen.press("one\r");
    screen.until("got-one");
    let refused = fixture.done(["top"]).await;
    assert!(refused.code == 64 && refused.err.contains("needs a terminal"), "{refused:?}");
}
