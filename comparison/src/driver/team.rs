//! Processes of one implementation that go for the same lock.

use std::path::Path;
use std::time::Duration;

use crate::driver::worker::{Effort, Worker};
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

    /// All of them go for the lock `name`, and write it down.
    pub(crate) async fn contest(&mut self, name: &str, effort: &Effort) -> Result<History> {
        self.go(name, effort).await?;
        let journals = self.workers.iter().map(Worker::journal);
        Ok(History::new(journals.collect::<Result<Vec<_>>>()?))
    }

    /// The processor time that all of them have used, in nanoseconds.
    pub(crate) fn cpu_nanos(&self) -> Option<u64> {
        self.workers.iter().map(Worker::cpu_nanos).sum()
    }

    /// All of them go for the lock `name`; how many cycles they make.
    pub(crate) async fn go(&mut self, name: &str, effort: &Effort) -> Result<u64> {
        let share = effort.cycles.div_ceil(self.shape.processes as u64);
        let effort = Effort { cycles: share, ..effort.clone() };
        let start = contender_protocol::now() + ON_YOUR_MARKS;
        for worker in &mut self.workers {
            worker.begin(name, self.shape.contenders, start, &effort).await?;
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
