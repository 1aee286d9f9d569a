//! A process that counts: it acquires the lock, adds one, releases it, and pauses, again and again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use contender_protocol::Cycle;
use testbed::{Beside, pass};

use crate::contender::{Contender, Effort};

/// One process that counts until it is stopped.
#[derive(Debug)]
pub(crate) struct Hand {
    stop: Arc<AtomicBool>,
    turns: Arc<AtomicUsize>,
    work: Beside<(Contender, Vec<Cycle>)>,
}

impl Hand {
    pub(crate) fn start(mut contender: Contender, counter: &Path) -> Self {
        let (stop, turns) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (stopped, made, counter) = (Arc::clone(&stop), Arc::clone(&turns), PathBuf::from(counter));
        let work = Beside::start(async move {
            let mut all = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let one = Effort { contenders: 1, cycles: 1, ..Effort::default() };
                contender.contends(one, &counter).await;
                all.extend(contender.cycles(Duration::ZERO).await);
                made.store(all.len(), Ordering::Relaxed);
                pass(THINKS).await;
            }
            (contender, all)
        });
        Self { stop, turns, work }
    }

    /// How often it has counted.
    pub(crate) fn turns(&self) -> usize {
        self.turns.load(Ordering::Relaxed)
    }

    /// Lets it finish what it has begun; what it did.
    pub(crate) async fn ends(self) -> (Contender, Vec<Cycle>) {
        self.stop.store(true, Ordering::Relaxed);
        self.work.end("the last count").await
    }
}

/// Between two counts of one.
const THINKS: Duration = Duration::from_millis(10);
