use std::sync::atomic::{AtomicBool, AtomicU32};

use super::*;

/// A lock of one process that can be told to misbehave.
#[derive(Default)]
struct Toy {
    held: Arc<Mutex<()>>,
    prepared: AtomicU32,
    names: std::sync::Mutex<Vec<String>>,
    fails_to_release: AtomicBool,
    never_grants: AtomicBool,
    /// How many were inside of `acquire` at once, and the most.
    inside: AtomicU32,
    most: AtomicU32,
}

impl Session for Toy {
    type Lock = ();
    type Held = tokio::sync::OwnedMutexGuard<()>;

    const VERSION: &'static str = "toy";

    async fn open(_urls: &[String], _ttl: Duration) -> Result<Self, Failure> {
        Ok(Self::default())
    }

    async fn lock(&self, name: &str) -> Result<(), Failure> {
        self.names.lock().expect("nobody panics").push(name.to_owned());
        self.prepared.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn lock_as(&self, name: &str, _mode: Mode) -> Result<(), Failure> {
        self.lock(name).await
    }

    async fn acquire(&self, (): &()) -> Result<Self::Held, Failure> {
        if self.never_grants.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        let inside = self.inside.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(inside, Ordering::Relaxed);
        let held = Arc::clone(&self.held).lock_owned().await;
        self.inside.fetch_sub(1, Ordering::Relaxed);
        Ok(held)
    }

    async fn release(&self, _held: Self::Held) -> Result<(), Failure> {
        if self.fails_to_release.load(Ordering::Relaxed) {
            return Err(Failure::new("the lock was lost"));
        }
        Ok(())
    }
}

fn run(contenders: u32, cycles: u64) -> Run {
    Run { contenders, cycles, ..Run::default() }
}

async fn toy() -> [Arc<Toy>; 1] {
    [Arc::new(Toy::open(&[], Duration::ZERO).await.expect("it opens"))]
}

async fn entered(sessions: &[Arc<Toy>], contenders: u32) -> Vec<Arc<Entrance<Toy>>> {
    entrances(sessions, "toy", &run(contenders, 0)).await.expect("all are prepared")
}

/// A hold that ended with a failure is one nonetheless: it is what another hold may overlap with.
#[tokio::test]
async fn a_hold_whose_release_failed_is_written_down() {
    let sessions = toy().await;
    sessions[0].fails_to_release.store(true, Ordering::Relaxed);
    let outcome = contest(&entered(&sessions, 1).await, run(1, 10)).await;
    assert_eq!((outcome.cycles.len(), outcome.failures.len()), (1, 1));
    assert_eq!(outcome.cycles[0].released, None);
    assert!(outcome.cycles[0].releasing >= outcome.cycles[0].granted);
}

/// What prepares a lock is done once per contender and in no contest.
#[tokio::test]
async fn locks_are_prepared_before_the_contest() {
    let sessions = toy().await;
    let entrances = entered(&sessions, 4).await;
    assert_eq!(sessions[0].prepared.load(Ordering::Relaxed), 4);
    for _ in 0..3 {
        assert_eq!(contest(&entrances, run(4, 20)).await.cycles.len(), 20);
    }
    assert_eq!(sessions[0].prepared.load(Ordering::Relaxed), 4);
}

/// Where names are apart, each contender has one of its own.
#[tokio::test]
async fn names_are_of_one_contender_each() {
    let sessions = toy().await;
    let apart = Run { apart: true, ..run(3, 0) };
    let entrances = entrances(&sessions, "toy", &apart).await.expect("all are prepared");
    assert_eq!(entrances.len(), 3);
    assert_eq!(*sessions[0].names.lock().expect("nobody panics"), ["toy-0", "toy-1", "toy-2"]);
}

/// Who is polled in place has its turns as a task has.
#[tokio::test]
async fn contender_in_place_makes_its_cycles() {
    let in_place = Run { in_place: true, ..run(1, 3) };
    let outcome = contest(&entered(&toy().await, 1).await, in_place).await;
    assert_eq!((outcome.cycles.len(), outcome.failures.len()), (3, 0));
}

/// With a mutex in front, one contender of a session asks at a time.
#[tokio::test]
async fn a_mutex_in_front_lets_one_ask_at_a_time() {
    for (front, most) in [(false, 2..=4), (true, 1..=1)] {
        let sessions = toy().await;
        contest(&entered(&sessions, 4).await, Run { front, ..run(4, 40) }).await;
        let found = sessions[0].most.load(Ordering::Relaxed);
        assert!(most.contains(&found), "{front}: {found}");
    }
}

/// Each goes for the lock that was drawn, and the journal says which; each holds for as long as was asked for.
#[tokio::test]
async fn contenders_go_for_the_lock_that_was_drawn() {
    let sessions = toy().await;
    let draw = Draw::Writers(1);
    let drawn = Run { draw: Some(draw), ..run(3, 30) };
    let entrances = entrances(&sessions, "toy", &drawn).await.expect("all are prepared");
    assert_eq!(sessions[0].prepared.load(Ordering::Relaxed), 6, "each may draw two");
    let hold = Duration::from_micros(300);
    let outcome = contest(&entrances, Run { hold, ..drawn }).await;
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    for cycle in &outcome.cycles {
        let mode = if cycle.contender == 0 { Mode::EXCLUSIVE } else { Mode::SHARED };
        assert_eq!(cycle.mode, mode, "{cycle:?}");
        assert!(cycle.releasing - cycle.granted >= 300_000, "{cycle:?}");
    }
    let modes: std::collections::BTreeSet<_> = outcome.cycles.iter().map(|cycle| cycle.mode).collect();
    assert_eq!(modes.len(), 2, "both were drawn");
}

/// Who is never served does not keep the contest.
#[tokio::test(start_paused = true)]
async fn a_contest_ends_though_somebody_waits() {
    let sessions = toy().await;
    sessions[0].never_grants.store(true, Ordering::Relaxed);
    let bounded = Run { bound: Duration::from_millis(100), ..run(3, 0) };
    let outcome = contest(&entered(&sessions, 3).await, bounded).await;
    assert_eq!((outcome.cycles.len(), outcome.failures.len()), (0, 3));
    assert_eq!(outcome.failures[0].to_string(), UNSERVED);
}
