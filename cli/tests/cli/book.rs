//! The shells that pages of the book show, run as they stand there.

use std::path::Path;
use std::process::Stdio;

use testbed::redis::Settings;
use tokio::process::Command;

use crate::fixture::{Fixture, LEASEHOLD, done};

testbed::trials![shells_of_the_book_show_what_the_command_writes];

const PAGES: [&str; 2] =
    [include_str!("../../../docs/src/five-minutes.md"), include_str!("../../../docs/src/runbook.md")];

/// Where a page's Redis is.
const REDIS: &str = "127.0.0.1";

/// The commands of a page with the lines that follow them.
fn steps(page: &str) -> Vec<(&str, Vec<&str>)> {
    let mut steps: Vec<(&str, Vec<&str>)> = Vec::new();
    let blocks = page.split("\n```console\n").skip(1).filter_map(|rest| rest.split("\n```").next());
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
fn words<'a>(line: &'a str) -> Vec<&'a str> {
    let known = |word: &'a str| match word {
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

async fn shells_of_the_book_show_what_the_command_writes() {
    let server = Settings::new().start().await.expect("Redis starts");
    for page in PAGES {
        let steps = steps(page);
        let written = run(&steps, &server.addr().to_string()).await;
        assert_eq!(written.len(), steps.len(), "{written:#?}");
        for ((command, shown), lines) in steps.iter().zip(&written) {
            let is_shown =
                lines.len() == shown.len() && lines.iter().zip(shown).all(|(line, shown)| fits(line, shown));
            assert!(is_shown, "{command}\nshown: {shown:#?}\nwritten: {lines:#?}");
        }
    }
}

/// The lines that each command writes, one after the other in one shell.
async fn run(steps: &[(&str, Vec<&str>)], redis: &str) -> Vec<Vec<String>> {
    let mut script = "exec 2>&1\ntrap 'kill $(jobs -p) 2>/dev/null' EXIT\n".to_owned();
    for (command, _) in steps {
        let command = command.replace(REDIS, redis);
        match command.strip_suffix('&') {
            Some(behind) => {
                // A reader types slower than the lock is granted.
                let name = behind.split_whitespace().nth(2).expect("`leasehold run NAME`");
                let until = format!("until leasehold inspect --exit-code {name} >/dev/null; do :; done");
                script.push_str(&format!("{behind} >/dev/null 2>&1 &\n{until}"));
            }
            None => script.push_str(&command),
        }
        script.push_str("\necho ---\n");
    }
    let fixture = Fixture::new();
    let folder = Path::new(LEASEHOLD).parent().expect("a program is in a folder");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]).env("PATH", path).env("LEASEHOLD_URL", fixture.url()).env_remove("RUST_LOG");
    shell.current_dir(fixture.scratch.path()).stdin(Stdio::null()).kill_on_drop(true);
    let ran = done(shell).await;
    let mut parts: Vec<Vec<_>> =
        ran.out.split("---\n").map(|part| part.lines().map(str::to_owned).collect()).collect();
    assert_eq!(parts.pop(), Some(Vec::new()), "{ran:?}");
    parts
}
