use super::*;
use proptest::prelude::*;

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

struct Bench {
    engine: Engine,
    pushes: Vec<Push>,
}

impl Bench {
    fn new() -> Self {
        Self { engine: Engine::default(), pushes: Vec::new() }
    }

    fn asks(&mut self, who: u8, mode: Mode, seconds: u64) -> EngineReply {
        let mut request = AcquireRequest::new(name(), owner(who), Duration::from_secs(10));
        request.mode = mode;
        self.engine.acquire(at(seconds), SessionId(who.into()), &request, true, &mut self.pushes)
    }

    fn release(&mut self, who: u8, seconds: u64) -> bool {
        self.engine.release(at(seconds), &name(), owner(who), &mut self.pushes)
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
