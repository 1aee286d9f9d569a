//! One process that contends, ours or theirs: it follows the lines of `comparison/peers/README.md`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use contender_protocol::Cycle;
use testbed::{BOUND, Launch, Process, Scratch, peers};

use crate::library::Library;
use crate::setup::NAME;

/// How long each contender holds: long enough to see two at once.
const HOLD: Duration = Duration::from_millis(1);

/// A process that speaks the protocol, with one session open.
#[derive(Debug)]
pub(crate) struct Contender {
    /// Of the library.
    pub(crate) version: String,
    process: Process,
    journal: PathBuf,
}

/// What contenders of one process do together; zero is no bound.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Effort {
    pub(crate) contenders: u32,
    /// How many cycles they begin.
    pub(crate) cycles: u64,
    /// Since `start`; no cycle begins later.
    pub(crate) span: Duration,
    pub(crate) start: u64,
}

impl Contender {
    /// One of a library of others; `None`, and said so, where it is not installed.
    pub(crate) async fn theirs(
        library: &Library,
        url: &str,
        ttl: Duration,
        scratch: &Scratch,
    ) -> Option<Self> {
        let program = library.program().display().to_string();
        let mut contender = Self::launch(&[&program, library.name, url], scratch);
        let first = contender.answer().await;
        if let Some(reason) = first.strip_prefix("missing ") {
            peers::skip(library.name, reason);
            return None;
        }
        contender.open(&first, ttl).await;
        Some(contender)
    }

    /// One of us.
    pub(crate) async fn ours(url: &str, ttl: Duration, scratch: &Scratch) -> Self {
        let program = std::env::current_exe().unwrap().display().to_string();
        let mut contender = Self::launch(&[&program, "contend", url], scratch);
        let first = contender.answer().await;
        contender.open(&first, ttl).await;
        contender
    }

    /// Started so that it dies with the test, whatever it waits for.
    fn launch(command: &[&str], scratch: &Scratch) -> Self {
        let launch = Launch::new("setpriv", scratch.path()).args(["--pdeathsig", "KILL", "--"]).args(command);
        let process = launch.piped_lines().spawn().unwrap();
        let journal = scratch.path().join(format!("journal-{}", process.pid()));
        Self { version: String::new(), process, journal }
    }

    async fn open(&mut self, first: &str, ttl: Duration) {
        let version = first.strip_prefix("ready ");
        version.unwrap_or_else(|| panic!("it said {first:?}")).clone_into(&mut self.version);
        let opened = self.ask(&format!("open 1 {}", ttl.as_millis())).await;
        assert_eq!(opened, "opened");
    }

    /// Takes the lock if it is free; whether it was.
    pub(crate) async fn tries(&mut self, name: &str) -> bool {
        self.may_try(name).await.unwrap_or_else(|said| panic!("{said}"))
    }

    /// As [`tries`](Self::tries); what it says, if it cannot.
    pub(crate) async fn may_try(&mut self, name: &str) -> Result<bool, String> {
        let answer = self.ask(&format!("try {name}")).await;
        match answer.splitn(3, ' ').collect::<Vec<_>>()[..] {
            ["busy"] => Ok(false),
            ["held", _at, _token] => Ok(true),
            ["failed", _at, reason] => Err(reason.to_owned()),
            _ => panic!("{answer}"),
        }
    }

    /// Asks for the lock; [`held`](Self::held) waits for it.
    pub(crate) async fn asks_for(&mut self, name: &str) {
        self.process.send_line(&format!("acquire {name}")).await.unwrap();
    }

    /// Waits until the requested lock is held: since when.
    pub(crate) async fn held(&mut self) -> u64 {
        let answer = self.answer().await;
        let words: Vec<_> = answer.splitn(3, ' ').collect();
        let ["held", at, _token] = words[..] else { panic!("{answer}") };
        at.parse().unwrap()
    }

    pub(crate) async fn acquires(&mut self, name: &str) -> u64 {
        self.asks_for(name).await;
        self.held().await
    }

    /// Gives the lease its whole length again.
    pub(crate) async fn extends(&mut self) {
        let answer = self.ask("extend").await;
        assert!(answer.starts_with("extended "), "{answer}");
    }

    /// Releases what it holds: when it began to.
    pub(crate) async fn releases(&mut self) -> u64 {
        self.tries_to_release().await.unwrap_or_else(|said| panic!("{said}"))
    }

    /// Releases what it may not hold any more; what it says, if it does not believe so.
    pub(crate) async fn tries_to_release(&mut self) -> Result<u64, String> {
        let answer = self.ask("release").await;
        match answer.splitn(3, ' ').collect::<Vec<_>>()[..] {
            ["released", before, _after] => Ok(before.parse().unwrap()),
            ["failed", _at, reason] => Err(reason.to_owned()),
            _ => panic!("{answer}"),
        }
    }

    /// Begins to contend, each adding one to the number in `counter` while it holds; [`cycles`](Self::cycles) waits for
    /// the end.
    pub(crate) async fn contends(&mut self, effort: Effort, counter: &Path) {
        let Effort { contenders, cycles, span, start } = effort;
        let (millis, micros) = (span.as_millis(), HOLD.as_micros());
        let (journal, counter) = (self.journal.display(), counter.display());
        let run = format!("run {NAME} {contenders} {cycles} {millis} {micros} {start} {journal} {counter}");
        self.process.send_line(&run).await.unwrap();
    }

    /// What was done in a contest of that length; no cycle failed.
    pub(crate) async fn cycles(&mut self, span: Duration) -> Vec<Cycle> {
        let answer = self.process.next_line(span + 2 * BOUND).await.unwrap();
        let journal = std::fs::read_to_string(&self.journal).unwrap();
        let cycles: Vec<_> = journal.lines().map(|line| Cycle::parse(line).unwrap()).collect();
        assert_eq!(answer, format!("done {} 0", cycles.len()));
        cycles
    }

    /// Kills it, by its process id.
    pub(crate) async fn is_killed(&mut self) {
        self.process.kill().await.unwrap();
    }

    /// Lets it end in order.
    pub(crate) async fn quits(mut self) {
        self.process.close_stdin();
        self.process.wait(BOUND).await.unwrap();
    }

    async fn ask(&mut self, order: &str) -> String {
        self.process.send_line(order).await.unwrap();
        self.answer().await
    }

    async fn answer(&mut self) -> String {
        self.process.next_line(BOUND).await.unwrap()
    }
}
