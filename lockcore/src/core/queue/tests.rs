use super::*;

type Queue = NameQueue<u64, u32>;

impl Counted for u64 {
    fn counter(&self) -> u64 {
        *self
    }
}

const BUDGET: HandoffBudget = HandoffBudget { limit: 2, window: Duration::from_nanos(100) };
const WRITES: Wish = Wish { mode: Mode::EXCLUSIVE, alone: false };

fn at(nanos: u64) -> Moment {
    Moment::from_nanos(nanos)
}

fn token(counter: u64, index: u16) -> FencingToken {
    FencingToken::new(counter, index).unwrap()
}

/// A grant in good health may be joined until its window is over.
fn by(now: u64) -> impl Fn(&u64, Moment) -> bool {
    move |_, until| at(now) < until
}

fn held(wish: Wish, counter: u64) -> Queue {
    let mut queue = Queue::new();
    assert_eq!(queue.claim(wish, by(0)), Claim::Lead);
    assert_eq!(queue.try_claim(wish, by(0)), Claim::Busy);
    assert_eq!(queue.adopt(counter, wish, at(0), BUDGET), Ok(token(counter, 0)));
    queue
}

#[test]
fn a_try_waits_for_a_release_alone() {
    let mut queue = held(WRITES, 7);
    assert_eq!(queue.try_claim(WRITES, by(0)), Claim::Busy);
    assert_eq!(queue.release(7, at(1), || true), (Released::Store, None));
    assert_eq!(queue.try_claim(WRITES, by(1)), Claim::Wait);
    queue.enqueue(WaiterId(1), WRITES, 1);
    assert_eq!(queue.try_claim(WRITES, by(1)), Claim::Busy);
    let some = |weight| Wish { mode: Mode::permits(weight, 3).unwrap(), alone: false };
    let mut queue = held(some(2), 7);
    assert_eq!(queue.try_claim(some(2), by(1)), Claim::Busy);
    assert_eq!(queue.try_claim(some(1), by(1)), Claim::Lead);
    assert_eq!(queue.adopt(8, some(1), at(1), BUDGET), Ok(token(8, 0)));
    assert_eq!(queue.release(7, at(1), || true), (Released::Store, None));
    assert_eq!(queue.try_claim(some(2), by(1)), Claim::Wait);
}

#[test]
fn a_counter_that_goes_back_is_refused() {
    for counter in [7, 6, FencingToken::MAX_COUNTER + 1] {
        let mut queue = held(WRITES, 7);
        queue.release(7, at(1), || true);
        queue.released(|held| *held == 7);
        assert!(queue.is_idle());
        queue.claim(WRITES, by(1));
        assert_eq!(queue.adopt(counter, WRITES, at(2), BUDGET), Err(7));
        assert_eq!(queue.claim(WRITES, by(2)), Claim::Wait);
        queue.released(|held| *held == counter);
        assert!(queue.is_idle());
    }
}
