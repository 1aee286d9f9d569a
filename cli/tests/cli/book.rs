//! The shells that the pages of the book show, run as they stand there, each page in one shell. A `console` shows what its
//! commands write; the commands of `sh` and `bash` succeed. A block that a test cannot run is marked: `sh,ignore`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use testbed::redis::Settings;
use testbed::{Port, etcd, postgres};
use tokio::process::Command;

use crate::fixture::{Fixture, LEASEHOLD, done};

testbed::trials![shells_of_the_book_run_as_shown];

/// The reader's own programs, and a script.
const PROGRAMS: [(&str, &str); 6] = [
    ("make", ""),
    ("pg_dump", ""),
    ("deploy", ""),
    ("report", ""),
    ("transfer", ""),
    ("charge.sql", "SELECT :token;\n"),
];

/// What an administrator has done before.
const BEFORE: [(&str, &str); 2] = [
    ("redis-operations.md", "redis-cli ACL SETUSER loader on '>secret' '~*' +@all"),
    ("etcd-operations.md", "etcdctl user add billing:secret"),
];

/// The blocks of a page, each with its language.
fn blocks(page: &str) -> impl Iterator<Item = (&str, &str)> {
    page.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'))
}

/// Commands, and the lines that a page shows below them, if it does.
type Step<'a> = (&'a str, Option<Vec<&'a str>>);

/// The commands of a `console` with the lines that follow them.
fn steps(block: &str) -> Vec<Step<'_>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push((command, Some(Vec::new()))),
            (None, Some((_, Some(shown)))) => shown.push(line),
            (None, _) => panic!("{line}: expected a command first"),
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

async fn shells_of_the_book_run_as_shown() {
    let redis = Settings::new().start().await.expect("Redis starts");
    let etcd = etcd::Setup::new().start().await.expect("etcd starts");
    let postgres = postgres::Setup::new().start().await.expect("Postgres starts");
    postgres.sql("CREATE DATABASE billing").await.expect("a database can be made");
    let metrics = Port::reserve().expect("a port is free");
    let (of_redis, of_postgres) = (redis.addr(), postgres.addr());
    // What a page names, and where that is here. Shorter spans take the place of a minute.
    let places = [
        ("127.0.0.1:9187", metrics.addr().to_string()),
        ("127.0.0.1/0", format!("{of_redis}/0")),
        ("redis://h0/", format!("{}/", redis.url())),
        ("redis://old/", format!("{}/", redis.url())),
        ("etcd://new", etcd.url()),
        ("redis-cli ", format!("redis-cli -e -p {} ", of_redis.port())),
        ("LARGEST-TOKEN", "4096".to_owned()),
        ("/app/report", "report".to_owned()),
        ("--at-least 1m", "--at-least 1s".to_owned()),
    ];
    let variables = [
        ("ETCDCTL_ENDPOINTS", etcd.url().replace("etcd://", "")),
        ("PGHOST", of_postgres.ip().to_string()),
        ("PGPORT", of_postgres.port().to_string()),
        ("PGUSER", "postgres".to_owned()),
    ];
    let (mut run, mut marked) = (0, 0);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src");
    for page in fs::read_dir(folder).expect("the book has pages").map(|page| page.expect("it is there")) {
        let (name, text) = (page.file_name(), fs::read_to_string(page.path()).expect("pages are text"));
        let name = name.to_str().expect("names are UTF-8");
        let mut commands = Vec::new();
        for (language, block) in blocks(&text) {
            match language {
                "console" => commands.extend(steps(block)),
                "sh" | "bash" => commands.push((block, None)),
                "console,ignore" | "sh,ignore" | "bash,ignore" => marked += 1,
                _ => {
                    let is_shell = ["$ ", "leasehold ", "etcdctl ", "redis-cli ", "LEASEHOLD_URL="];
                    let is_shell = is_shell.iter().any(|begin| block.starts_with(begin));
                    assert!(
                        !is_shell,
                        "{name}: mark this as `sh`, or `sh,ignore` if it cannot run:\n{block}"
                    );
                }
            }
        }
        if commands.is_empty() {
            continue;
        }
        run += commands.len();
        let before = BEFORE.iter().filter(|(page, _)| *page == name).map(|(_, before)| (*before, None));
        let commands: Vec<_> = before.chain(commands).collect();
        let written = written(&commands, &places, &variables).await;
        for ((command, shown), lines) in commands.iter().zip(&written) {
            let Some(shown) = shown else { continue };
            let is_shown =
                lines.len() == shown.len() && lines.iter().zip(shown).all(|(line, shown)| fits(line, shown));
            assert!(is_shown, "{name}: {command}\nshown: {shown:#?}\nwritten: {lines:#?}");
        }
        assert_eq!(written.len(), commands.len(), "{name}: a command failed:\n{written:#?}");
    }
    assert!(run > 25 && marked < run, "{run} commands were run, {marked} blocks are marked");
}

/// The lines that each command writes, one after the other in one shell.
async fn written(
    commands: &[Step<'_>],
    places: &[(&str, String)],
    variables: &[(&str, String)],
) -> Vec<Vec<String>> {
    let mut script = "exec 2>&1\ntrap 'kill $(jobs -p) 2>/dev/null' EXIT\n".to_owned();
    for (command, shown) in commands {
        let command = places.iter().fold((*command).to_owned(), |all, (said, here)| all.replace(said, here));
        // A reader types slower than the lock is granted, and a test does not wait for a time.
        let held = |job: &str| {
            let words = job.split(" -- ").next().unwrap_or(job).split_whitespace();
            let name = words.last().expect("`leasehold run NAME`");
            format!("until leasehold inspect --exit-code {name} >/dev/null; do :; done")
        };
        let command = match command.trim_end().split_once(" &") {
            Some((behind, "")) => format!("{behind} >/dev/null 2>&1 &\n{}", held(behind)),
            Some((behind, _)) => command.replace("sleep 1", &held(behind)),
            None => command,
        };
        let strict = if shown.is_some() { "+e" } else { "-e" };
        script.push_str(&format!("set {strict}\n{command}\necho =next=\n"));
    }
    let fixture = Fixture::new();
    let scratch = fixture.scratch.path();
    for (name, text) in PROGRAMS {
        let file = fixture.write(name, if text.is_empty() { "#!/bin/sh\n" } else { text });
        fs::set_permissions(file, Permissions::from_mode(0o755)).expect("the file is ours");
    }
    let folder = Path::new(LEASEHOLD).parent().expect("a program is in a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{}:{path}", scratch.display(), folder.display());
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]).env("PATH", path).env("LEASEHOLD_URL", fixture.url()).env_remove("RUST_LOG");
    shell.envs(variables.iter().map(|(name, value)| (name, value)));
    shell.current_dir(scratch).stdin(Stdio::null()).kill_on_drop(true);
    let ran = done(shell).await;
    let mut parts: Vec<Vec<_>> =
        ran.out.split("=next=\n").map(|part| part.lines().map(str::to_owned).collect()).collect();
    parts.pop_if(|rest| rest.is_empty());
    parts
}
