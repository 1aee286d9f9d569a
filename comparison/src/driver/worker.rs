//! One process that contends: started, told what to do by lines, killed when dropped.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use contender_protocol::{Cycle, Draw, Mode};
use testbed::{Process, ProcessErrorKind};

use crate::error::{Error, Result};
use crate::implementation::Implementation;
use crate::proc;

/// A process that speaks the protocol.
#[derive(Debug)]
pub(crate) struct Worker {
    process: Process,
    version: String,
    journal: PathBuf,
}

/// A lock that one process holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    /// Since when, on the clock of all processes.
    pub(crate) at: u64,
    /// The fencing token, of a library that has such.
    pub(crate) token: Option<u64>,
}

impl Grant {
    fn read(answer: &str) -> Result<Self> {
        match answer.splitn(3, ' ').collect::<Vec<_>>()[..] {
            ["held", at, token] => {
                let at = at.parse().map_err(Error::during("reading when it held"))?;
                Ok(Self { at, token: token.parse().ok() })
            }
            _ => Err(unexpected(answer)),
        }
    }
}

/// How long contenders go on: until the first bound is met. Zero is no bound.
#[derive(Clone, Debug)]
pub(crate) struct Effort {
    /// Of all together.
    pub(crate) cycles: u64,
    pub(crate) span: Duration,
    pub(crate) hold: Duration,
    pub(crate) counter: Option<PathBuf>,
    /// Whether it is written down.
    pub(crate) journal: bool,
    /// The protocol's word for how contenders go for it, if not each by itself for the same lock.
    pub(crate) way: Option<&'static str>,
    /// What contenders want of the lock; alone, if it is not said.
    pub(crate) draw: Option<Draw>,
}

/// How a contest ended in one process.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) cycles: u64,
    /// If contenders gave up: how many, and why the first one did.
    pub(crate) gave_up: Option<Error>,
}

impl Effort {
    pub(crate) fn cycles(cycles: u64) -> Self {
        let (span, hold) = (Duration::ZERO, Duration::ZERO);
        Self { cycles, span, hold, counter: None, journal: true, way: None, draw: None }
    }

    /// In which two holders at once are sure to be seen: without a hold, somebody has the lock for a part in
    /// a thousand of the time, and a lock that two hold looks like one.
    pub(crate) fn checked(self) -> Self {
        Self { hold: CHECKED_HOLD, cycles: MOST_CHECKED, ..self }
    }

    pub(crate) fn until(self, span: Duration) -> Self {
        Self { span, ..self }
    }

    /// How long it may take altogether. Programs in Rust end by themselves; of the others, who waits for a lock may do so
    /// for ever.
    fn patience(&self) -> Duration {
        if self.span.is_zero() { BOUND } else { self.span + AFTER }
    }
}

impl Worker {
    /// Starts a process of `who` on the stores at `urls`; its files go to `room`.
    ///
    /// # Errors
    ///
    /// Also when the process says that something it needs is missing.
    pub(crate) async fn start(who: &Implementation, urls: &[String], room: &Path) -> Result<Self> {
        let process = who.launch(urls, room)?.spawn().map_err(Error::during("it does not start"))?;
        let journal = room.join(format!("journal-{}", process.pid()));
        let mut worker = Self { process, version: String::new(), journal };
        let first = worker.answer(START).await?;
        match first.split_once(' ') {
            Some(("ready", version)) => worker.version = version.to_owned(),
            Some(("missing", reason)) => return Err(Error::new(reason)),
            _ => return Err(Error::new(format!("it said {first:?} instead of `ready`"))),
        }
        Ok(worker)
    }

    /// Of the library.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Opens so many sessions.
    pub(crate) async fn open(&mut self, sessions: usize, ttl: Duration) -> Result<()> {
        self.order(&format!("open {sessions} {}", ttl.as_millis()), START, "opened").await
    }

    /// Begins a contest.
    pub(crate) async fn begin(
        &mut self,
        name: &str,
        contenders: u32,
        start: u64,
        effort: &Effort,
    ) -> Result<()> {
        let Effort { cycles, span, hold, counter, journal, way, draw } = effort;
        let word =
            |path: Option<&PathBuf>| path.map_or_else(|| "-".to_owned(), |path| path.display().to_string());
        let (millis, micros) = (span.as_millis(), hold.as_micros());
        let (journal, counter) = (word(journal.then_some(&self.journal)), word(counter.as_ref()));
        // Programs that have no mutex need not know of one, nor those that know no modes of them.
        let drawn = draw.map(|draw| draw.to_string());
        let last = way.map(str::to_owned).or(drawn).map(|word| format!(" {word}")).unwrap_or_default();
        let run =
            format!("run {name} {contenders} {cycles} {millis} {micros} {start} {journal} {counter}{last}");
        self.send(&run).await
    }

    /// Waits for the end of the contest that `effort` bounds.
    pub(crate) async fn end(&mut self, effort: &Effort) -> Result<Ended> {
        let answer = self.answer(effort.patience()).await?;
        let words: Vec<_> = answer.splitn(4, ' ').collect();
        let (cycles, gave_up) = match words[..] {
            ["done", cycles, "0"] => (cycles, None),
            ["done", cycles, contenders, reason] => {
                (cycles, Some(Error::new(format!("{contenders} contenders gave up: {reason}"))))
            }
            _ => return Err(unexpected(&answer)),
        };
        let cycles = cycles.parse().map_err(Error::during("reading how many cycles it made"))?;
        Ok(Ended { cycles, gave_up })
    }

    /// What it wrote down in the contest that has ended.
    pub(crate) fn journal(&self) -> Result<Vec<Cycle>> {
        let journal = fs::read_to_string(&self.journal).map_err(Error::during("reading its journal"))?;
        let cycles = journal.lines().map(Cycle::parse).collect::<Option<_>>();
        cycles.ok_or_else(|| Error::new("its journal is not as agreed"))
    }

    /// Wants `rate` names a second for `span`, each of them once; what it wrote down of it.
    pub(crate) async fn churn(&mut self, name: &str, rate: u64, span: Duration) -> Result<Vec<Cycle>> {
        let (millis, journal) = (span.as_millis(), self.journal.display());
        self.order(&format!("churn {name} {rate} {millis} {journal}"), BOUND, "churned ").await?;
        self.journal()
    }

    /// Asks for a lock; [`held`](Self::held) waits for it.
    pub(crate) async fn ask_for(&mut self, name: &str) -> Result<()> {
        self.send(&format!("acquire {name}")).await
    }

    /// Takes a lock that others may hold as well.
    pub(crate) async fn acquire_as(&mut self, name: &str, mode: Mode, bound: Duration) -> Result<Grant> {
        self.send(&format!("acquire {name} {mode}")).await?;
        self.held(bound).await
    }

    /// Lets go once more what it has let go last.
    pub(crate) async fn release_again(&mut self) -> Result<()> {
        self.order("again", BOUND, "released ").await
    }

    /// How many of `most` it can take at the same time without waiting. It lets them go.
    pub(crate) async fn count(&mut self, name: &str, most: u64, mode: Mode) -> Result<u64> {
        self.send(&format!("count {name} {most} {mode}")).await?;
        let answer = self.answer(BOUND).await?;
        let counted = answer.strip_prefix("counted ").ok_or_else(|| unexpected(&answer))?;
        counted.parse().map_err(Error::during("reading how many it took"))
    }

    /// Waits until the lock that was asked for is held.
    pub(crate) async fn held(&mut self, bound: Duration) -> Result<Grant> {
        Grant::read(&self.answer(bound).await?)
    }

    /// Takes a lock.
    pub(crate) async fn acquire(&mut self, name: &str, bound: Duration) -> Result<Grant> {
        self.ask_for(name).await?;
        self.held(bound).await
    }

    /// The same; nothing, if it was not granted in time. Then it still waits, and takes no other order.
    pub(crate) async fn acquire_within(&mut self, name: &str, bound: Duration) -> Result<Option<Grant>> {
        self.ask_for(name).await?;
        match self.process.next_line(bound).await {
            Ok(answer) => Grant::read(&answer).map(Some),
            Err(late) if late.kind() == ProcessErrorKind::TimedOut => Ok(None),
            Err(error) => Err(Error::during("waiting for a lock")(error)),
        }
    }

    /// Lets it go.
    pub(crate) async fn release(&mut self) -> Result<()> {
        self.order("release", BOUND, "released ").await
    }

    /// Takes many locks, called `name-0` and so on, and keeps them.
    pub(crate) async fn hold(&mut self, name: &str, count: usize) -> Result<()> {
        let bound = START + HELD * u32::try_from(count).unwrap_or(u32::MAX);
        self.order(&format!("hold {name} {count}"), bound, &format!("holding {count} ")).await
    }

    /// Stops it: it holds what it holds, and knows nothing of the time.
    pub(crate) async fn stop(&self) -> Result<()> {
        self.process.stop().await.map_err(Error::during("stopping it"))
    }

    /// Kills it.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        self.process.kill().await.map(drop).map_err(Error::during("killing it"))
    }

    /// The processor time it has used, in nanoseconds.
    pub(crate) fn cpu_nanos(&self) -> Option<u64> {
        proc::cpu_nanos(self.process.pid())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The memory it has, in bytes.
    pub(crate) fn memory(&self) -> Result<u64> {
        let memory = proc::bytes(&format!("{}/status", self.process.pid()), "VmRSS");
        memory.ok_or_else(|| Error::new("its memory is not told"))
    }

    /// Sends it, and waits for an answer that begins as it should.
    async fn order(&mut self, order: &str, bound: Duration, expected: &str) -> Result<()> {
        self.send(order).await?;
        let answer = self.answer(bound).await?;
        if answer.starts_with(expected) { Ok(()) } else { Err(unexpected(&answer)) }
    }

    async fn send(&mut self, order: &str) -> Result<()> {
        self.process.send_line(order).await.map_err(Error::during("telling it what to do"))
    }

    async fn answer(&mut self, bound: Duration) -> Result<String> {
        let answer = self.process.next_line(bound).await;
        answer.map_err(Error::during(format!("waiting {} s for its answer", bound.as_secs())))
    }
}

fn unexpected(answer: &str) -> Error {
    match answer.split_once(' ') {
        Some(("failed", rest)) => Error::new(rest.split_once(' ').map_or(rest, |(_at, reason)| reason)),
        _ => Error::new(format!("it said {answer:?}")),
    }
}

/// How long a program may take to start, to open its sessions or to take many locks, on a busy machine.
const START: Duration = Duration::from_secs(30);

/// How long one lock of many may take to be taken, on average.
const HELD: Duration = Duration::from_millis(1);

/// How long each holds while exclusion is looked at.
const CHECKED_HOLD: Duration = Duration::from_millis(1);

/// How many hold while exclusion is looked at. Of a hundred thousand, each in its turn, most would not be served in time.
const MOST_CHECKED: u64 = 1_000;

/// How long a contest may go on after its span: longer than those in Rust let contenders wait, and write down what
/// happened.
const AFTER: Duration = Duration::from_secs(30);

/// How long an order may take that is bound to end.
const BOUND: Duration = Duration::from_secs(90);
