//! Contenders in one process that go through a lock again and again.
//!
//! # Invariants
//! - **R1** `granted` is read after the library has given the lock and `releasing` before it is asked to
//!   let it go, so two cycles that overlap between those are two holders at once.
//! - **R2** Nothing is written while the contest runs.
//! - **R3** Contenders of one process meet: a holder lets the others run once, as work that waits for
//!   anything does. Otherwise one thread would never see two of them want the lock at a time.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::clock::now;
use crate::journal::Cycle;
use crate::order::Run;
use crate::session::{Failure, Session};

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) cycles: Vec<Cycle>,
    /// What a contender stopped on.
    pub(crate) failures: Vec<Failure>,
}

pub(crate) async fn contest<S: Session>(sessions: &[Arc<S>], run: Run) -> Outcome {
    let left = Arc::new(AtomicU64::new(if run.cycles == 0 { u64::MAX } else { run.cycles }));
    let run = Arc::new(run);
    let mut outcome = Outcome::default();
    let mut contenders = JoinSet::new();
    for index in 0..run.contenders {
        let session = Arc::clone(&sessions[index as usize % sessions.len()]);
        let (run, left) = (Arc::clone(&run), Arc::clone(&left));
        contenders.spawn(async move {
            let mut cycles = Vec::with_capacity(1024);
            let failure = go_through(index, &*session, &run, &left, &mut cycles).await.err();
            (cycles, failure)
        });
    }
    while let Some(ended) = contenders.join_next().await {
        match ended {
            Ok((cycles, failure)) => {
                outcome.cycles.extend(cycles);
                outcome.failures.extend(failure);
            }
            Err(panicked) => outcome.failures.push(Failure::from(panicked)),
        }
    }
    outcome
}

async fn go_through<S: Session>(
    index: u32,
    session: &S,
    run: &Run,
    left: &AtomicU64,
    cycles: &mut Vec<Cycle>,
) -> Result<(), Failure> {
    let lock = session.lock(&run.name).await?;
    let counter = run.counter.as_deref().map(Number::open).transpose()?;
    let bound = if run.bound.is_zero() { u64::MAX } else { nanos(run.bound) };
    tokio::time::sleep(Duration::from_nanos(run.start.saturating_sub(now()))).await;
    let start = now();
    let mut token = None;
    loop {
        let requested = now();
        if requested - start >= bound || !take_one(left) {
            return Ok(());
        }
        let held = session.acquire(&lock).await?;
        let granted = now();
        if let Some(number) = &counter {
            number.add_one()?;
        }
        if !run.hold.is_zero() {
            tokio::time::sleep(run.hold).await;
        } else if run.contenders > 1 {
            // INVARIANT(R3)
            tokio::task::yield_now().await;
        }
        token = S::token(&held).or(token);
        let releasing = now();
        session.release(held).await?;
        cycles.push(Cycle { contender: index, requested, granted, releasing, released: now(), token });
    }
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
