//! Processes of one implementation that go for the same lock.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::driver::worker::{Orders, Worker};
use crate::error::Result;
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

/// How long they contend: until the first bound is met. Zero is no bound.
#[derive(Clone, Debug)]
pub(crate) struct Effort {
    /// Of all together.
    pub(crate) cycles: u64,
    pub(crate) span: Duration,
    pub(crate) hold: Duration,
    pub(crate) counter: Option<PathBuf>,
}

impl Effort {
    pub(crate) fn cycles(cycles: u64) -> Self {
        Self { cycles, span: Duration::ZERO, hold: Duration::ZERO, counter: None }
    }

    pub(crate) fn until(self, span: Duration) -> Self {
        Self { span, ..self }
    }
}

/// Such processes, with their sessions open.
#[derive(Debug)]
pub(crate) struct Team {
    pub(crate) who: Implementation,
    pub(crate) shape: Shape,
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
        Ok(Self { who, shape, workers })
    }

    /// All of them go for the lock `name`.
    pub(crate) async fn contest(&mut self, name: &str, effort: &Effort) -> Result<History> {
        self.go(name, effort, true).await?;
        let journals = self.workers.iter().map(Worker::journal);
        Ok(History::new(journals.collect::<Result<Vec<_>>>()?))
    }

    /// The same without a journal, for what a cycle costs; how many they made.
    pub(crate) async fn unwatched(&mut self, name: &str, effort: &Effort) -> Result<u64> {
        self.go(name, effort, false).await
    }

    /// The processor time that all of them have used, in nanoseconds.
    pub(crate) fn cpu_nanos(&self) -> Option<u64> {
        self.workers.iter().map(Worker::cpu_nanos).sum()
    }

    async fn go(&mut self, name: &str, effort: &Effort, journal: bool) -> Result<u64> {
        let share = effort.cycles.div_ceil(self.shape.processes as u64);
        let orders = Orders {
            name,
            contenders: self.shape.contenders,
            cycles: share,
            span: effort.span,
            hold: effort.hold,
            start: contender_protocol::now() + ON_YOUR_MARKS,
            counter: effort.counter.as_deref(),
            journal,
        };
        for worker in &mut self.workers {
            worker.begin(&orders).await?;
        }
        let mut cycles = 0;
        for worker in &mut self.workers {
            cycles += worker.end().await?;
        }
        Ok(cycles)
    }
}

/// Long enough that no renewal falls into a run.
const TTL: Duration = Duration::from_secs(30);

/// What the orders need to reach all of them, in nanoseconds.
const ON_YOUR_MARKS: u64 = 20_000_000;
