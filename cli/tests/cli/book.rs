//! `docs/src/five-minutes.md`: what its shells show, run as it stands there.

use std::process::Stdio;

use testbed::redis::Settings;
use tokio::process::Command;

use crate::fixture::{Fixture, LEASEHOLD, done};

testbed::trials![the_first_page_shows_what_the_command_writes];

const PAGE: &str = include_str!("../../../docs/src/five-minutes.md");

/// Where the page's Redis is.
const REDIS: &str = "127.0.0.1";

/// The commands of the page with the lines that follow them.
fn steps() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut steps: Vec<(&str, Vec<&str>)> = Vec::new();
    let blocks = PAGE.split("\n```console\n").skip(1).filter_map(|rest| rest.split("\n```").next());
    for line in blocks.flat_map(str::lines) {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push((command, Vec::new())),
            (None, Some((_, shown))) => shown.push(line),
            (None, None) => panic!("{line}: expected a command first"),
        }
    }
    steps
}

/// The words of a line, without those that differ from run to run: holders and times.
fn words(line: &str) -> Vec<&str> {
    let known = |word| match word {
        word if word.ends_with('Z') && word.starts_with("20") => "TIME",
        word if word.rsplit_once('/').is_some_and(|(_, pid)| pid.bytes().all(|b| b.is_ascii_digit())) => {
            "HOST/PID"
        }
        word => word,
    };
    line.split_whitespace().map(known).collect()
}

/// Whether a line is as shown, or begins so where `…` stands for the rest.
fn fits(line: &str, shown: &str) -> bool {
    match shown.strip_suffix('…') {
        Some(begin) => words(line).starts_with(&words(begin)),
        None => words(line) == words(shown),
    }
}

async fn the_first_page_shows_what_the_command_writes() {
    let steps = steps();
    assert!(steps.len() >= 8, "{steps:?}");
    let server = Settings::new().start().await.expect("Redis starts");
    let mut script = "trap 'kill $(jobs -p)' EXIT\n".to_owned();
    for (command, _) in &steps {
        script.push_str(&command.replace(REDIS, &server.addr().to_string()));
        if command.ends_with('&') {
            // A reader types slower than the lock is granted.
            script.push_str("\nuntil leasehold inspect --exit-code nightly >/dev/null 2>&1; do :; done");
        }
        script.push_str("\necho ---\n");
    }
    let fixture = Fixture::on("");
    let folder = std::path::Path::new(LEASEHOLD).parent().expect("a program is in a folder");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("bash");
    shell.args(["-c", &format!("exec 2>&1\n{script}")]).env("PATH", path).env_remove("RUST_LOG");
    shell.current_dir(fixture.scratch.path()).stdin(Stdio::null()).kill_on_drop(true);
    let ran = done(shell).await;
    let written: Vec<Vec<&str>> = ran.out.split("---\n").map(|part| part.lines().collect()).collect();
    assert_eq!(written.len(), steps.len() + 1, "{}", ran.out);
    for ((command, shown), lines) in steps.iter().zip(&written) {
        let is_shown =
            lines.len() == shown.len() && lines.iter().zip(shown).all(|(line, shown)| fits(line, shown));
        assert!(is_shown, "{command}\nshown: {shown:#?}\nwritten: {lines:#?}");
    }
}
