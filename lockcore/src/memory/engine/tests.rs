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

    fn acquire(&mut self, who: u8, seconds: u64) -> EngineReply {
        self.asks(who, Mode::EXCLUSIVE, seconds)
    }

    fn asks(&mut self, who: u8, mode: Mode, seconds: u64) -> EngineReply {
        let (session, request) = (SessionId(who.into()), AcquireRequest { mode, ..request(who) });
        self.engine.acquire(at(seconds), session, &request, true, &mut self.pushes)
    }

    /// Of the entry of `who`, which holds.
    fn lease(&self, who: u8) -> Option<LeaseId> {
        let mut holders = self.engine.names.get(&name())?.holders.iter();
        Some(holders.find(|held| held.entry.owner == owner(who))?.entry.lease)
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

impl Push {
    fn counter(&self) -> Option<u64> {
        match self {
            Self::Granted(granted) => Some(granted.counter),
            Self::Dropped(_) => None,
        }
    }
}

/// Waiters are granted in order, each with a larger counter, and nothing stays behind.
#[test]
fn a_release_grants_the_first_who_waits() {
    let mut bench = Bench::new();
    assert!(matches!(bench.acquire(1, 0), EngineReply::Granted(Granted { counter: 1, .. })));
    assert!(matches!(bench.acquire(2, 0), EngineReply::Queued { .. }));
    assert!(matches!(bench.acquire(3, 0), EngineReply::Queued { .. }));
    assert!(bench.release(1, 1));
    assert_eq!(bench.granted(), [(owner(2), 2)]);
    assert!(bench.release(2, 1));
    assert_eq!(bench.granted(), [(owner(3), 3)]);
    assert!(bench.release(3, 1));
    assert!(bench.engine.is_empty());
}

/// At its expiry a holder is replaced by the first waiter with a live lease.
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

/// A release or renewal of another owner does not touch a hold.
#[test]
fn only_the_owner_acts_on_an_entry() {
    let mut bench = Bench::new();
    let EngineReply::Granted(granted) = bench.acquire(1, 0) else { panic!("the lock is free") };
    assert!(!bench.release(2, 1));
    let stranger = SessionId(9);
    assert_eq!(bench.engine.renew(at(1), stranger, granted.lease, &mut bench.pushes), None);
    assert_eq!(bench.engine.next_expiry(&name(), at(1)), Some(at(10).store));
    let session = SessionId(1);
    assert_eq!(bench.engine.renew(at(1), session, granted.lease, &mut bench.pushes), Some(TTL));
    assert_eq!(bench.engine.next_expiry(&name(), at(1)), Some(at(11).store));
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

/// Readers hold at the same time, and wait for an earlier writer, also while that waits; when the writer ends, every
/// entry that fits is granted at once.
#[test]
fn readers_wait_for_a_writer_in_front() {
    for dies in [false, true] {
        let mut bench = Bench::new();
        bench.asks(1, Mode::SHARED, 0);
        assert!(matches!(bench.asks(2, Mode::EXCLUSIVE, 0), EngineReply::Queued { .. }));
        for reader in [3, 4] {
            assert!(matches!(bench.asks(reader, Mode::SHARED, 5), EngineReply::Queued { .. }));
        }
        let Some(lease) = bench.lease(1) else { panic!("it holds") };
        assert!(bench.engine.renew(at(5), SessionId(1), lease, &mut bench.pushes).is_some());
        assert_eq!(bench.engine.next_expiry(&name(), at(5)), Some(at(10).store), "of who waits in front");
        if dies {
            bench.engine.settle(&name(), at(10), &mut bench.pushes);
        } else {
            assert!(bench.release(2, 6));
        }
        assert_eq!(bench.granted(), [(owner(3), 2), (owner(4), 3)]);
        assert_eq!(bench.engine.targets(&name()).len(), 3);
    }
}

/// The smallest capacity of the holders and the new entry counts.
#[test]
fn the_smallest_capacity_counts() {
    let mut bench = Bench::new();
    let some = |weight, capacity| Mode::permits(weight, capacity).unwrap();
    assert!(matches!(bench.asks(1, some(2, 3), 0), EngineReply::Granted(_)));
    assert!(matches!(bench.asks(2, some(2, 9), 0), EngineReply::Queued { .. }));
    assert!(
        matches!(bench.asks(3, some(1, 3), 0), EngineReply::Queued { .. }),
        "not past the one that waits"
    );
    assert!(bench.release(1, 1));
    assert_eq!(bench.granted(), [(owner(2), 2), (owner(3), 3)]);
}

proptest! {
    /// Random requests in all modes, and pauses: the holders are the entries that the rule admits (memory-1, memory-3),
    /// counters grow (memory-2), and after the last release nothing is left (memory-5).
    #[test]
    fn random_requests_keep_the_invariants(
        steps in prop::collection::vec((0_u8..3, 0_u8..5, 0_u64..4, 0_usize..5), 1..120),
    ) {
        let some = |weight, capacity| Mode::permits(weight, capacity).unwrap();
        let modes = [Mode::EXCLUSIVE, Mode::SHARED, some(1, 2), some(2, 3), some(1, 3)];
        let mut bench = Bench::new();
        let (mut now, mut last) = (0, 0);
        let mut arrived: Vec<(OwnerId, Mode)> = Vec::new();
        for (kind, who, pause, mode) in steps {
            now += pause;
            let known = arrived.iter().any(|(other, _)| *other == owner(who));
            match kind {
                0 if !known => {
                    if let EngineReply::Granted(granted) = bench.asks(who, modes[mode], now) {
                        prop_assert!(bench.pushes.iter().all(|push| push.counter() < Some(granted.counter)));
                        bench.pushes.push(Push::Granted(granted));
                    }
                    arrived.push((owner(who), modes[mode]));
                }
                1 => { bench.release(who, now); arrived.retain(|(other, _)| *other != owner(who)); }
                _ => bench.engine.settle(&name(), at(now), &mut bench.pushes),
            }
            for push in std::mem::take(&mut bench.pushes) {
                match push {
                    Push::Granted(granted) => {
                        prop_assert!(granted.counter > last);
                        last = granted.counter;
                    }
                    Push::Dropped(owner) => arrived.retain(|(other, _)| *other != owner),
                }
            }
            // A holder learns of its expiry from its own lease, not from a push.
            let held: Vec<_> = bench.engine.targets(&name()).iter().map(|target| target.owner).collect();
            let waiting: Vec<_> = bench.engine.names.get(&name())
                .map(|contest| contest.queue.iter().map(|entry| entry.owner).collect()).unwrap_or_default();
            arrived.retain(|(owner, _)| held.contains(owner) || waiting.contains(owner));
            let all = held.iter().chain(&waiting);
            prop_assert!(arrived.iter().map(|(owner, _)| owner).eq(all));
            let mut load = Load::NONE;
            let admitted = arrived.iter().take_while(|(_, mode)| {
                let admits = load.admits(*mode);
                load = load.and(*mode);
                admits
            });
            prop_assert_eq!(admitted.count(), held.len());
        }
        for who in 0..5 {
            bench.release(who, now);
        }
        prop_assert!(bench.engine.is_empty());
    }
}
