use super::*;
use proptest::prelude::*;

const TTL: Duration = Duration::from_secs(10);

fn at(seconds: u64) -> Now {
    let moment = Moment::from_nanos(seconds * 1_000_000_000);
    Now { store: moment, asker: moment }
}

fn name() -> LockName {
    LockName::new("a").unwrap()
}

fn owner(who: u8) -> OwnerId {
    OwnerId::from_random([who; 16])
}

fn request(who: u8) -> AcquireRequest {
    AcquireRequest::new(name(), owner(who), TTL)
}

struct Bench {
    engine: Engine,
    pushes: Vec<Push>,
}

impl Bench {
    fn new() -> Self {
        Self { engine: Engine::default(), pushes: Vec::new() }
    }

    fn acquire(&mut self, who: u8, seconds: u64) -> Answer {
        let session = SessionId(who.into());
        self.engine.acquire(at(seconds), session, &request(who), true, &mut self.pushes)
    }

    fn release(&mut self, who: u8, seconds: u64) -> bool {
        self.engine.release(at(seconds), &name(), owner(who), &mut self.pushes)
    }

    fn granted(&mut self) -> Vec<(OwnerId, u64)> {
        let granted = self.pushes.drain(..).filter_map(|push| match push {
            Push::Granted(granted) => Some((granted.owner, granted.counter)),
            Push::Dropped(_) => None,
        });
        granted.collect()
    }
}

/// Waiters are granted in order, each with a larger counter, and nothing stays behind.
#[test]
fn a_release_grants_the_first_who_waits() {
    let mut bench = Bench::new();
    assert!(matches!(bench.acquire(1, 0), Answer::Granted(Granted { counter: 1, .. })));
    assert!(matches!(bench.acquire(2, 0), Answer::Queued { .. }));
    assert!(matches!(bench.acquire(3, 0), Answer::Queued { .. }));
    assert!(bench.release(1, 1));
    assert_eq!(bench.granted(), [(owner(2), 2)]);
    assert!(bench.release(2, 1));
    assert_eq!(bench.granted(), [(owner(3), 3)]);
    assert!(bench.release(3, 1));
    assert!(bench.engine.is_empty());
}

/// At its expiry a holder is replaced by the first waiter who still lives.
#[test]
fn expiry_passes_over_the_dead() {
    let mut bench = Bench::new();
    bench.acquire(1, 0);
    bench.acquire(2, 0);
    bench.acquire(3, 5);
    bench.engine.settle(&name(), at(9), &mut bench.pushes);
    assert_eq!(bench.pushes, []);
    bench.engine.settle(&name(), at(10), &mut bench.pushes);
    assert_eq!(bench.pushes[0], Push::Dropped(owner(2)));
    assert_eq!(bench.granted(), [(owner(3), 2)]);
}

/// Nobody else's release or renewal touches a hold.
#[test]
fn only_the_owner_acts_on_an_entry() {
    let mut bench = Bench::new();
    let Answer::Granted(granted) = bench.acquire(1, 0) else { panic!("the lock is free") };
    assert!(!bench.release(2, 1));
    let stranger = SessionId(9);
    assert_eq!(bench.engine.renew(at(1), stranger, granted.lease, &mut bench.pushes), None);
    assert_eq!(bench.engine.holder_expires(&name()), Some(at(10).store));
    let session = SessionId(1);
    assert_eq!(bench.engine.renew(at(1), session, granted.lease, &mut bench.pushes), Some(TTL));
    assert_eq!(bench.engine.holder_expires(&name()), Some(at(11).store));
}

/// A closed session leaves nothing and passes on what it held.
#[test]
fn a_closed_session_leaves_nothing() {
    let mut bench = Bench::new();
    bench.acquire(1, 0);
    bench.acquire(2, 0);
    bench.engine.close(at(1), SessionId(1), &mut bench.pushes);
    assert_eq!(bench.granted(), [(owner(2), 2)]);
    bench.engine.close(at(1), SessionId(2), &mut bench.pushes);
    assert!(bench.engine.is_empty());
}

proptest! {
    /// Random requests and pauses: counters grow (memory-2), grants follow arrival (memory-3), and when all
    /// have gone nothing is left (memory-5).
    #[test]
    fn random_requests_keep_the_invariants(steps in prop::collection::vec((0_u8..3, 0_u8..5, 0_u64..4), 1..120)) {
        let mut bench = Bench::new();
        let (mut now, mut last) = (0, 0);
        let mut arrived: Vec<OwnerId> = Vec::new();
        for (kind, who, pause) in steps {
            now += pause;
            let known = arrived.contains(&owner(who));
            match kind {
                0 if !known => {
                    if let Answer::Granted(granted) = bench.acquire(who, now) {
                        prop_assert!(granted.counter > last);
                        last = granted.counter;
                    }
                    arrived.push(owner(who));
                }
                1 => { bench.release(who, now); arrived.retain(|other| *other != owner(who)); }
                _ => bench.engine.settle(&name(), at(now), &mut bench.pushes),
            }
            for push in std::mem::take(&mut bench.pushes) {
                match push {
                    Push::Granted(granted) => {
                        prop_assert!(granted.counter > last);
                        last = granted.counter;
                    }
                    Push::Dropped(owner) => arrived.retain(|other| *other != owner),
                }
            }
            // A holder that expired is told by its own lease, not by a push.
            let held = bench.engine.target(&name()).map(|target| target.owner);
            let waiting: Vec<_> = bench.engine.names.get(&name())
                .map(|contest| contest.queue.iter().map(|entry| entry.owner).collect()).unwrap_or_default();
            arrived.retain(|owner| Some(*owner) == held || waiting.contains(owner));
            prop_assert_eq!(&arrived, &held.into_iter().chain(waiting).collect::<Vec<_>>());
        }
        for who in 0..5 {
            bench.release(who, now);
        }
        prop_assert!(bench.engine.is_empty());
    }
}
