//! Contenders in one process that go through a lock again and again.
//!
//! # Invariants
//! - **contest-1** `granted` is read after the library has given the lock and `releasing` before it is asked to
//!   let it go, so two cycles that overlap between those are two holders at once. A hold whose release failed is
//!   written down as well.
//! - **contest-2** Nothing is written while the contest runs.
//! - **contest-3** Contenders of one process meet: a holder lets the others run once, as work that waits for
//!   anything does. Otherwise one thread would never see two of them want the lock at a time.
//! - **contest-4** A contest with a bound ends: who is not served within [`GRACE`] after it stops and says so.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::clock::now;
use crate::journal::Cycle;
use crate::mode::{Draw, Mode};
use crate::session::{Failure, Session};

/// Contenders that go for one lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    pub(crate) contenders: u32,
    /// How many cycles they make together; no bound if 0.
    pub(crate) cycles: u64,
    /// When nobody begins another cycle, counted from `start`; no bound if 0.
    pub(crate) bound: Duration,
    /// How long each holds.
    pub(crate) hold: Duration,
    /// When they begin; at once if that has passed.
    pub(crate) start: u64,
    /// A file with a number that each adds one to while it holds.
    pub(crate) counter: Option<PathBuf>,
    /// Whether contenders of a session queue for a mutex of their own first.
    pub(crate) front: bool,
    /// Whether each has a lock of its own, so that they meet nowhere but at the session.
    pub(crate) apart: bool,
    /// Whether the contest polls them itself, one after the other, in place of a task for each.
    pub(crate) in_place: bool,
    /// What they want of it; alone, if it is not said.
    pub(crate) draw: Option<Draw>,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) cycles: Vec<Cycle>,
    /// What a contender stopped on.
    pub(crate) failures: Vec<Failure>,
}

/// What is between a contender and the lock.
pub(crate) struct Entrance<S: Session> {
    session: Arc<S>,
    /// One of each mode that may be drawn.
    locks: Vec<(Mode, S::Lock)>,
    /// Of all contenders of the session.
    mutex: Arc<Mutex<()>>,
}

/// Prepares the lock once for each contender, so that it is no part of what is timed or counted.
pub(crate) async fn entrances<S: Session>(
    sessions: &[Arc<S>],
    name: &str,
    run: &Run,
) -> Result<Vec<Arc<Entrance<S>>>, Failure> {
    let mutexes: Vec<_> = sessions.iter().map(|_| Arc::default()).collect();
    let mut prepared = Vec::new();
    for index in 0..run.contenders as usize {
        let name = if run.apart { format!("{name}-{index}") } else { name.to_owned() };
        let (session, mutex) = (&sessions[index % sessions.len()], &mutexes[index % sessions.len()]);
        let mut locks = Vec::new();
        for mode in run.draw.unwrap_or_default().modes() {
            locks.push((mode, session.lock_as(&name, mode).await?));
        }
        let (session, mutex) = (Arc::clone(session), Arc::clone(mutex));
        prepared.push(Arc::new(Entrance { session, locks, mutex }));
    }
    Ok(prepared)
}

pub(crate) async fn contest<S: Session>(entrances: &[Arc<Entrance<S>>], run: Run) -> Outcome {
    let left = Arc::new(AtomicU64::new(if run.cycles == 0 { u64::MAX } else { run.cycles }));
    let run = Arc::new(Run { start: run.start.max(now()), ..run });
    let (mut contenders, mut in_place) = (JoinSet::new(), Vec::new());
    let mut written = Vec::new();
    for (index, entrance) in (0..).zip(entrances) {
        let (entrance, run, left) = (Arc::clone(entrance), Arc::clone(&run), Arc::clone(&left));
        let cycles = Cycles::default();
        written.push(Cycles::clone(&cycles));
        let is_in_place = run.in_place;
        let contender = async move { go_through(index, &entrance, &run, &left, &cycles).await };
        if is_in_place {
            in_place.push(Box::pin(contender));
        } else {
            contenders.spawn(contender);
        }
    }
    let mut failures = Vec::new();
    let everybody = async {
        for contender in in_place {
            failures.extend(contender.await.err());
        }
        while let Some(ended) = contenders.join_next().await {
            failures.extend(ended.map_err(Failure::from).flatten().err());
        }
    };
    // INVARIANT(contest-4)
    let until_start = Duration::from_nanos(run.start.saturating_sub(now()));
    let patience = if run.bound.is_zero() { FOREVER } else { until_start + run.bound + GRACE };
    let is_late = timeout(patience, everybody).await.is_err();
    // Who is polled in place is no task.
    let unserved = contenders.len().max(usize::from(is_late));
    failures.extend((0..unserved).map(|_| Failure::new(UNSERVED)));
    contenders.shutdown().await;
    let mut cycles = Vec::new();
    for written in written {
        cycles.append(&mut written.lock().unwrap_or_else(PoisonError::into_inner));
    }
    Outcome { cycles, failures }
}

/// What a contender has written down; outlives it.
type Cycles = Arc<std::sync::Mutex<Vec<Cycle>>>;

async fn go_through<S: Session>(
    contender: u32,
    Entrance { session, locks, mutex }: &Entrance<S>,
    run: &Run,
    left: &AtomicU64,
    cycles: &Cycles,
) -> Result<(), Failure> {
    let draw = run.draw.unwrap_or_default();
    let counter = run.counter.as_deref().map(Number::open).transpose()?;
    let bound = if run.bound.is_zero() { u64::MAX } else { nanos(run.bound) };
    tokio::time::sleep(Duration::from_nanos(run.start.saturating_sub(now()))).await;
    let mut ran_since = now();
    loop {
        if run.apart && now() - ran_since > SLICE {
            tokio::task::yield_now().await;
            ran_since = now();
        }
        let requested = now();
        if requested.saturating_sub(run.start) >= bound || !take_one(left) {
            return Ok(());
        }
        let _first = if run.front { Some(mutex.lock().await) } else { None };
        let (mode, lock) = &locks[draw.drawn(contender, requested)];
        let held = session.acquire(lock).await?;
        let granted = now();
        let worked = work(run, counter.as_ref()).await;
        let token = S::token(&held);
        let releasing = now();
        let released = match worked {
            Ok(()) => session.release(held).await.map(|()| now()),
            Err(failure) => Err(failure),
        };
        let (released, failed) = match released {
            Ok(released) => (Some(released), Ok(())),
            Err(failure) => (None, Err(failure)),
        };
        let cycle = Cycle { contender, requested, granted, releasing, released, token, mode: *mode };
        cycles.lock().unwrap_or_else(PoisonError::into_inner).push(cycle);
        failed?;
    }
}

/// What is done while the lock is held.
async fn work(run: &Run, counter: Option<&Number>) -> Result<(), Failure> {
    if let Some(number) = counter {
        number.add_one()?;
    }
    if !run.hold.is_zero() && run.draw.is_some() {
        exactly(run.hold).await?;
    } else if !run.hold.is_zero() {
        tokio::time::sleep(run.hold).await;
    } else if run.contenders > 1 && !run.apart {
        // INVARIANT(contest-3)
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Where several hold, the rate is that of the holds: tokio's timer adds up to a millisecond, and those of other
/// languages do not.
#[expect(clippy::disallowed_methods, reason = "a hold is a time, and nothing is waited for")]
async fn exactly(span: Duration) -> Result<(), Failure> {
    Ok(tokio::task::spawn_blocking(move || std::thread::sleep(span)).await?)
}

fn take_one(left: &AtomicU64) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

/// A number in a file that nothing but the lock protects.
struct Number(File);

impl Number {
    fn open(path: &Path) -> Result<Self, Failure> {
        Ok(Self(OpenOptions::new().read(true).write(true).open(path)?))
    }

    /// Reads, adds, writes: two at once lose one.
    fn add_one(&self) -> Result<(), Failure> {
        let mut text = [0; 20];
        let length = self.0.read_at(&mut text, 0)?;
        let text = String::from_utf8_lossy(&text[..length]);
        let number: u64 = text.trim().parse()?;
        self.0.write_all_at((number + 1).to_string().as_bytes(), 0)?;
        Ok(())
    }
}

pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// How long, in nanoseconds, one runs whose library waits for nothing, while others have names of their own.
const SLICE: u64 = 100_000;

/// How long after its bound a contest goes on for those who wait.
const GRACE: Duration = Duration::from_secs(10);

/// Of a contest without a bound.
const FOREVER: Duration = Duration::from_secs(86_400);

/// Who was not served in time says so.
const UNSERVED: &str = "unserved";

#[cfg(test)]
mod tests;
