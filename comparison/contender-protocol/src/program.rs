//! The program: reads orders, carries them out one after the other, answers each with a line.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::churn::churn;
use crate::clock::now;
use crate::contest::{Entrance, Run, contest, entrances};
use crate::journal;
use crate::mode::{Draw, Mode};
use crate::session::{Failure, Session};

/// Speaks the protocol for a library on the stores at `urls` until standard input ends or says `quit`.
///
/// # Errors
///
/// When standard input or output is gone.
///
/// # Panics
///
/// Outside of a tokio runtime.
///
/// # Cancel safety
///
/// What is held stays held until its lease ends.
pub async fn run<S: Session>(urls: &[String]) -> io::Result<()> {
    say(format_args!("ready {}", S::VERSION))?;
    let mut program =
        Program::<S> { urls, sessions: Vec::new(), prepared: None, held: None, kept: Vec::new() };
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = orders.next_line().await? {
        if line == "quit" {
            break;
        }
        let answer = program.carry_out(&line).await;
        say(answer.unwrap_or_else(|failure| format!("failed {} {failure}", now())))?;
    }
    Ok(())
}

/// A runtime of one thread, or tokio's default one if the environment has [`ON_THREADS`].
///
/// # Errors
///
/// When the system gives it no threads, or no files.
pub fn runtime() -> io::Result<Runtime> {
    let on_threads = std::env::var_os(ON_THREADS).is_some();
    let mut builder = if on_threads { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    builder.enable_all().build()
}

/// Set for programs that are to run on tokio's default runtime.
pub const ON_THREADS: &str = "CONTENDER_ON_THREADS";

fn say(answer: impl Display) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{answer}")?;
    output.flush()
}

struct Program<'a, S: Session> {
    urls: &'a [String],
    sessions: Vec<Arc<S>>,
    /// For the contest of that name, which mostly is the next one as well.
    prepared: Option<Prepared<S>>,
    held: Option<S::Held>,
    kept: Vec<S::Held>,
}

/// A name, whether each contender has one of its own, what they want of it, and where they enter.
type Prepared<S> = (String, (bool, Draw), Vec<Arc<Entrance<S>>>);

impl<S: Session> Program<'_, S> {
    /// The answer to a line of orders.
    async fn carry_out(&mut self, line: &str) -> Result<String, Failure> {
        let words: Vec<_> = line.split(' ').collect();
        let none = || Failure::new(format!("no order: {line:?}"));
        let mode = |word: &str| Mode::parse(word).ok_or_else(none);
        match words[..] {
            ["open", sessions, ttl] => self.open(sessions.parse()?, millis(ttl)?).await,
            ["run", name, contenders, cycles, bound, hold, start, journal, counter, ref last @ ..]
                if last.len() <= 1 =>
            {
                let (front, in_place) = (*last == ["mutex"], *last == ["block_on"]);
                let apart = in_place || *last == ["names"];
                let draw = last.first().filter(|_| !front && !apart);
                let run = Run {
                    contenders: contenders.parse()?,
                    cycles: cycles.parse()?,
                    bound: millis(bound)?,
                    hold: Duration::from_micros(hold.parse()?),
                    start: start.parse()?,
                    counter: path(counter),
                    front,
                    apart,
                    in_place,
                    draw: draw.map(|word| Draw::parse(word).ok_or_else(none)).transpose()?,
                };
                let entrances = self.prepared(name, &run).await?;
                let outcome = contest(entrances, run).await;
                if let Some(path) = path(journal) {
                    journal::write(&path, &outcome.cycles)?;
                }
                let first = outcome.failures.first().map(ToString::to_string).unwrap_or_default();
                let said = format!("done {} {} {first}", outcome.cycles.len(), outcome.failures.len());
                Ok(said.trim_end().to_owned())
            }
            ["acquire", name] => self.acquire(name, Mode::EXCLUSIVE).await,
            ["acquire", name, word] => self.acquire(name, mode(word)?).await,
            ["try", name] => {
                let session = self.first()?;
                let lock = session.lock(name).await?;
                let held = session.try_acquire(&lock).await?;
                Ok(held.map_or_else(|| "busy".to_owned(), |held| self.keep(held)))
            }
            ["extend"] => {
                let mut held = self.held.take().ok_or_else(nothing_held)?;
                let extended = self.first()?.extend(&mut held).await;
                self.held = Some(held);
                extended.map(|()| format!("extended {}", now()))
            }
            ["release"] => {
                let held = self.held.take().ok_or_else(nothing_held)?;
                let before = now();
                self.first()?.release(held).await?;
                Ok(format!("released {before} {}", now()))
            }
            ["again"] => {
                let before = now();
                self.first()?.release_again().await?;
                Ok(format!("released {before} {}", now()))
            }
            ["count", name, most, word] => self.count(name, most.parse()?, mode(word)?).await,
            ["hold", name, count] => self.hold(name, count.parse()?).await,
            ["churn", name, rate, span, journal] => {
                let (cycles, failed) = churn(self.first()?, name, rate.parse()?, millis(span)?).await;
                journal::write(Path::new(journal), &cycles)?;
                failed.map_or_else(|| Ok(format!("churned {}", cycles.len())), Err)
            }
            _ => Err(none()),
        }
    }

    async fn acquire(&mut self, name: &str, mode: Mode) -> Result<String, Failure> {
        let session = self.first()?;
        let lock = session.lock_as(name, mode).await?;
        let held = session.acquire(&lock).await?;
        Ok(self.keep(held))
    }

    /// How many can be taken at the same time without waiting; no more than `most` are tried.
    async fn count(&mut self, name: &str, most: usize, mode: Mode) -> Result<String, Failure> {
        let session = self.first()?;
        let mut taken = Vec::new();
        while taken.len() < most {
            let lock = session.lock_as(name, mode).await?;
            let Some(held) = session.try_acquire(&lock).await? else { break };
            taken.push(held);
        }
        let count = taken.len();
        for held in taken {
            session.release(held).await?;
        }
        Ok(format!("counted {count}"))
    }

    /// Keeps what was taken just now.
    fn keep(&mut self, held: S::Held) -> String {
        let at = now();
        let token = S::token(&held).map_or_else(|| "-".to_owned(), |token| token.to_string());
        self.held = Some(held);
        format!("held {at} {token}")
    }

    /// The entrances of so many to the lock of that name.
    async fn prepared(&mut self, name: &str, run: &Run) -> Result<&[Arc<Entrance<S>>], Failure> {
        self.first()?;
        let wanted = (run.apart, run.draw.unwrap_or_default());
        let fits = |(of, prepared, entrances): &Prepared<S>| {
            of == name && *prepared == wanted && entrances.len() == run.contenders as usize
        };
        if !self.prepared.as_ref().is_some_and(fits) {
            // What others have prepared may be theirs alone.
            self.prepared = None;
            let entrances = entrances(&self.sessions, name, run).await?;
            self.prepared = Some((name.to_owned(), wanted, entrances));
        }
        Ok(self.prepared.as_ref().map_or(&[], |(.., entrances)| entrances))
    }

    /// Opens as many as are missing, several at a time: each mostly waits for its server.
    async fn open(&mut self, sessions: usize, ttl: Duration) -> Result<String, Failure> {
        let mut opening = JoinSet::new();
        let mut missing = sessions.saturating_sub(self.sessions.len());
        while missing > 0 || !opening.is_empty() {
            if missing > 0 && opening.len() < OPENED_AT_ONCE {
                let urls = self.urls.to_vec();
                opening.spawn(async move { S::open(&urls, ttl).await });
                missing -= 1;
            } else if let Some(opened) = opening.join_next().await {
                self.sessions.push(Arc::new(opened??));
            }
        }
        Ok("opened".to_owned())
    }

    async fn hold(&mut self, name: &str, count: usize) -> Result<String, Failure> {
        let session = Arc::clone(self.first()?);
        let before = now();
        let mut taking = JoinSet::new();
        for index in 0..count {
            if taking.len() == AT_ONCE
                && let Some(taken) = taking.join_next().await
            {
                self.kept.push(taken??);
            }
            let (session, name) = (Arc::clone(&session), format!("{name}-{index}"));
            taking.spawn(async move {
                let lock = session.lock(&name).await?;
                session.acquire(&lock).await
            });
        }
        while let Some(taken) = taking.join_next().await {
            self.kept.push(taken??);
        }
        Ok(format!("holding {count} {before} {}", now()))
    }

    fn first(&self) -> Result<&Arc<S>, Failure> {
        self.sessions.first().ok_or_else(|| Failure::new("no session is open"))
    }
}

fn millis(word: &str) -> Result<Duration, Failure> {
    Ok(Duration::from_millis(word.parse()?))
}

fn path(word: &str) -> Option<PathBuf> {
    (word != "-").then(|| PathBuf::from(word))
}

fn nothing_held() -> Failure {
    Failure::new("nothing is held")
}

/// How many locks are asked for at the same time.
const AT_ONCE: usize = 64;

/// How many sessions are being opened at a time.
const OPENED_AT_ONCE: usize = 32;

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use tokio::sync::Barrier;
    use tokio::time::timeout;

    use super::*;

    static ALL_AT_ONCE: LazyLock<Barrier> = LazyLock::new(|| Barrier::new(OPENED_AT_ONCE));

    /// Opens when as many others do.
    struct Together;

    impl Session for Together {
        type Lock = ();
        type Held = ();

        const VERSION: &'static str = "together";

        async fn open(_urls: &[String], _ttl: Duration) -> Result<Self, Failure> {
            ALL_AT_ONCE.wait().await;
            Ok(Self)
        }

        async fn lock(&self, _name: &str) -> Result<(), Failure> {
            Ok(())
        }

        async fn acquire(&self, (): &()) -> Result<(), Failure> {
            Ok(())
        }

        async fn release(&self, (): ()) -> Result<(), Failure> {
            Ok(())
        }
    }

    fn program() -> Program<'static, Together> {
        Program { urls: &[], sessions: Vec::new(), prepared: None, held: None, kept: Vec::new() }
    }

    /// A line that is cut off, has too much or is unknown is refused, and the program goes on.
    #[tokio::test]
    async fn a_garbled_line_is_no_order() {
        let mut program = program();
        program.sessions.push(Arc::new(Together));
        for wrong in [
            "",
            "open 1",
            "open x 1",
            "run n 8",
            "acquire",
            "jump",
            "run n 8 1 0 1 7 - - spin",
            "run n 8 1 0 1 7 - - mutex reads=9",
            "run n 8 1 0 1 7 - - names reads=9",
            "acquire n shared",
            "count n 5",
            "release",
        ] {
            assert!(program.carry_out(wrong).await.is_err(), "{wrong:?}");
        }
        for right in [
            "run n 2 4 0 0 7 - - mutex",
            "run n 2 4 0 0 7 - - names",
            "run n 1 4 0 0 7 - - block_on",
            "run n 2 4 0 0 7 - -",
            "acquire n",
            "release",
        ] {
            let answer = program.carry_out(right).await;
            assert!(answer.is_ok(), "{right:?}: {answer:?}");
        }
    }

    /// Nobody waits for a server that answers somebody else, and there are as many sessions as were asked for, however often.
    #[tokio::test(start_paused = true)]
    async fn sessions_are_opened_together() {
        let mut program = program();
        let all = 2 * OPENED_AT_ONCE;
        for asked in [all, all, 1] {
            let opened = timeout(Duration::from_secs(1), program.open(asked, Duration::ZERO)).await;
            assert!(opened.is_ok_and(|opened| opened.is_ok()), "they wait for each other");
            assert_eq!(program.sessions.len(), all);
        }
    }
}
