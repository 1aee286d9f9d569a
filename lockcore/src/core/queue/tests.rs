use super::*;

type Queue = NameQueue<u64, u32>;

impl Counted for u64 {
    fn counter(&self) -> u64 {
        *self
    }
}

const BUDGET: HandoffBudget = HandoffBudget { limit: 2, window: Duration::from_nanos(100) };
const WRITES: Wish = Wish { mode: Mode::EXCLUSIVE, alone: false };
const READS: Wish = Wish { mode: Mode::SHARED, alone: false };

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
    assert_eq!(queue.adopt(counter, wish, at(0), BUDGET), Ok(token(counter, 0)));
    queue
}

fn waiting(queue: &mut Queue, wish: Wish, waiter: u32) {
    assert_eq!(queue.claim(wish, by(0)), Claim::Wait);
    queue.enqueue(WaiterId(waiter.into()), wish, waiter);
}

/// The first caller asks the store, those behind it wait, and a `try` does not.
#[test]
fn one_caller_drives_and_the_others_wait() {
    for wish in [WRITES, READS] {
        let mut queue = Queue::new();
        assert_eq!(queue.claim(wish, by(0)), Claim::Lead);
        assert_eq!(queue.claim(wish, by(0)), Claim::Wait);
        assert_eq!(queue.try_claim(wish, by(0)), Claim::Busy);
    }
}

/// Within the budget the lock passes on with a larger token; then it goes to the store, and the
/// next waiter asks for it again.
#[test]
fn hand_offs_end_with_the_limit() {
    let mut queue = held(WRITES, 7);
    (1..=3).for_each(|waiter| waiting(&mut queue, WRITES, waiter));
    assert_eq!(queue.release(7, at(1), || true), (Released::Stays, Some((Claim::Hold(7, token(7, 1)), 1))));
    assert_eq!(queue.release(7, at(2), || true), (Released::Stays, Some((Claim::Hold(7, token(7, 2)), 2))));
    assert_eq!(queue.release(7, at(3), || true), (Released::Store, None));
    assert_eq!(queue.call_next(by(3)), None);
    queue.released(|held| *held == 7);
    assert_eq!(queue.call_next(by(3)), Some((Claim::Lead, 3)));
    assert!(queue.is_acquiring());
}

/// After its window a lock goes to the store even if the limit is not reached.
#[test]
fn hand_offs_end_with_the_window() {
    let mut queue = held(WRITES, 7);
    waiting(&mut queue, WRITES, 1);
    assert_eq!(queue.release(7, at(100), || true), (Released::Store, None));
}

/// A `try` waits for the confirmation of a release, not for a waiter.
#[test]
fn a_try_waits_for_a_release_alone() {
    let mut queue = held(WRITES, 7);
    assert_eq!(queue.try_claim(WRITES, by(0)), Claim::Busy);
    assert_eq!(queue.release(7, at(1), || true), (Released::Store, None));
    assert_eq!(queue.try_claim(WRITES, by(1)), Claim::Wait);
    queue.enqueue(WaiterId(1), WRITES, 1);
    assert_eq!(queue.try_claim(WRITES, by(1)), Claim::Busy);
}

/// A counter that does not grow, or does not fit, is refused.
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

/// Readers join a grant with tokens of their own, as often and for as long as it may pass on; the last one
/// to let go tells the store.
#[test]
fn readers_join_within_the_budget() {
    let mut queue = held(READS, 7);
    assert_eq!(queue.claim(READS, by(100)), Claim::Lead, "its window is over");
    queue.not_granted();
    assert_eq!(queue.claim(READS, by(1)), Claim::Hold(7, token(7, 1)));
    assert_eq!(queue.release(7, at(2), || true), (Released::Stays, None));
    assert_eq!(queue.try_claim(READS, by(2)), Claim::Hold(7, token(7, 2)));
    assert_eq!(queue.claim(READS, by(3)), Claim::Lead, "it has passed on twice");
    assert_eq!(queue.adopt(8, READS, at(3), BUDGET), Ok(token(8, 0)));
    assert_eq!(queue.held().map(|(counter, _)| *counter).collect::<Vec<_>>(), [7, 8]);
    assert_eq!(queue.release(7, at(4), || true), (Released::Stays, None));
    assert_eq!(queue.release(7, at(4), || true), (Released::Store, None));
    assert_eq!(queue.release(7, at(4), || true), (Released::NotHeld, None));
}

/// No caller joins past a waiter, nor beside a guard that holds alone. A `try` for permits waits for a release, not
/// for a holder.
#[test]
fn unfit_caller_does_not_join() {
    let mut queue = held(READS, 7);
    waiting(&mut queue, WRITES, 1);
    assert_eq!(queue.claim(READS, by(1)), Claim::Wait);
    assert_eq!(queue.try_claim(READS, by(1)), Claim::Busy);
    let alone = Wish { alone: true, ..READS };
    assert_eq!(held(alone, 7).claim(READS, by(1)), Claim::Lead);
    assert_eq!(held(READS, 7).claim(alone, by(1)), Claim::Lead);
    let some = |weight, capacity| Wish { mode: Mode::permits(weight, capacity).unwrap(), alone: false };
    let mut queue = held(some(2, 3), 7);
    assert_eq!(queue.try_claim(some(2, 3), by(1)), Claim::Busy);
    assert_eq!(queue.try_claim(some(1, 3), by(1)), Claim::Lead);
    assert_eq!(queue.adopt(8, some(1, 3), at(1), BUDGET), Ok(token(8, 0)));
    assert_eq!(queue.release(7, at(1), || true), (Released::Store, None));
    assert_eq!(queue.try_claim(some(2, 3), by(1)), Claim::Wait);
}

/// A request passes only to the first waiter, and only if that has the same wish.
#[test]
fn a_request_is_inherited_by_its_like() {
    let mut queue = Queue::new();
    assert_eq!(queue.claim(READS, by(0)), Claim::Lead);
    waiting(&mut queue, READS, 1);
    waiting(&mut queue, WRITES, 2);
    assert_eq!(queue.inherit(READS), Some(1));
    assert_eq!(queue.inherit(READS), None);
    queue.not_granted();
    assert_eq!(queue.call_next(by(0)), Some((Claim::Lead, 2)));
}
