//! Processes of one implementation that go for the same lock.

use std::path::Path;
use std::time::Duration;

use crate::driver::worker::{Effort, Ended, Worker};
use crate::error::{Error, Result};
use crate::history::History;
use crate::implementation::Implementation;

/// How many contend, and how they are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) processes: usize,
    /// In each process.
    pub(crate) contenders: u32,
    /// In each process; contenders share them evenly.
    pub(crate) sessions: usize,
}

/// What came of a contest.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) history: History,
    /// Why contenders gave up, if any did. What they did before that is in the history.
    pub(crate) gave_up: Option<Error>,
}

impl Outcome {
    /// The history, if nobody gave up.
    pub(crate) fn whole(self) -> Result<History> {
        match self.gave_up {
            None => Ok(self.history),
            Some(gave_up) => Err(gave_up),
        }
    }
}

impl Shape {
    /// How many there are in all.
    pub(crate) fn everyone(self) -> u64 {
        self.processes as u64 * u64::from(self.contenders)
    }
}

/// Such processes, with their sessions open.
#[derive(Debug)]
pub(crate) struct Team {
    pub(crate) shape: Shape,
    /// Whether it has been given the time to get as fast as it gets.
    is_warm: bool,
    workers: Vec<Worker>,
}

impl Team {
    pub(crate) async fn start(
        who: Implementation,
        urls: &[String],
        shape: Shape,
        room: &Path,
    ) -> Result<Self> {
        let mut workers = Vec::new();
        for _ in 0..shape.processes {
            let mut worker = Worker::start(&who, urls, room).await?;
            worker.open(shape.sessions, TTL).await?;
            workers.push(worker);
        }
        Ok(Self { shape, is_warm: false, workers })
    }

    /// The same process for more contenders, or fewer: who goes for a lock next to idle sessions does not notice them.
    pub(crate) async fn reshape(mut self, shape: Shape) -> Result<Self> {
        for worker in &mut self.workers {
            worker.open(shape.sessions, TTL).await?;
        }
        Ok(Self { shape, ..self })
    }

    /// All of them go for the lock `name`, and write it down.
    pub(crate) async fn contest(&mut self, name: &str, effort: &Effort) -> Result<Outcome> {
        let Ended { gave_up, .. } = self.go(name, effort).await?;
        let journals = self.workers.iter().map(Worker::journal);
        let history = History::new(journals.collect::<Result<Vec<_>>>()?);
        Ok(Outcome { history, gave_up })
    }

    /// They go until they are compiled, if that takes so long, and a part of that if they have been before.
    pub(crate) async fn warm(&mut self, name: &str, effort: Effort, most: Duration) -> Result<Outcome> {
        let span = if self.is_warm { most / 4 } else { most };
        self.is_warm = true;
        self.contest(name, &effort.until(span)).await
    }

    /// Of all of them.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.workers.iter().map(Worker::pid).collect()
    }

    /// All of them go for the lock `name`.
    pub(crate) async fn go(&mut self, name: &str, effort: &Effort) -> Result<Ended> {
        let share = effort.cycles.div_ceil(self.shape.processes as u64);
        let effort = Effort { cycles: share, ..effort.clone() };
        // One alone needs no common start.
        let marks = if self.workers.len() == 1 { 0 } else { ON_YOUR_MARKS };
        let start = contender_protocol::now() + marks;
        for (index, worker) in (0_u32..).zip(&mut self.workers) {
            let draw = effort.draw.map(|draw| draw.of_process(index, self.shape.contenders));
            let effort = Effort { draw, ..effort.clone() };
            worker.begin(name, self.shape.contenders, start, &effort).await?;
        }
        let mut all = Ended { cycles: 0, gave_up: None };
        for worker in &mut self.workers {
            let Ended { cycles, gave_up } = worker.end(&effort).await?;
            all = Ended { cycles: all.cycles + cycles, gave_up: all.gave_up.or(gave_up) };
        }
        Ok(all)
    }
}

/// Long enough that renewals, at a third of it, fall into no run; ZooKeeper's servers here allow a minute.
const TTL: Duration = Duration::from_secs(60);

/// What the orders need to reach all of them, in nanoseconds.
const ON_YOUR_MARKS: u64 = 5_000_000;
