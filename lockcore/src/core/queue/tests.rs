use super::*;
use proptest::prelude::*;

type Queue = LocalQueue<u64, u32>;

const BUDGET: HandoffBudget = HandoffBudget { limit: 2, window: Duration::from_nanos(100) };

fn at(nanos: u64) -> Moment {
    Moment::from_nanos(nanos)
}

fn token(counter: u64, index: u16) -> FencingToken {
    FencingToken::new(counter, index).unwrap()
}

fn held(counter: u64) -> Queue {
    let mut queue = Queue::new();
    assert_eq!(queue.claim(), Reply::Drive);
    assert_eq!(queue.adopt(counter, counter, at(0), BUDGET), Ok(token(counter, 0)));
    queue
}

/// The first caller asks the store, those behind it wait, and a `try` does not.
#[test]
fn one_caller_drives_and_the_others_wait() {
    let mut queue = Queue::new();
    assert_eq!(queue.claim(), Reply::Drive);
    assert_eq!(queue.claim(), Reply::Wait);
    assert_eq!(queue.try_claim(), Reply::Busy);
}

/// Within the budget the lock passes on with a larger token; then it goes to the store, and the
/// next waiter asks for it again.
#[test]
fn hand_offs_end_with_the_limit() {
    let mut queue = held(7);
    for waiter in 1..=3 {
        queue.enqueue(WaiterId(waiter.into()), waiter);
    }
    assert_eq!(queue.release(at(1), || true), Release::HandOn(7, token(7, 1), 1));
    assert_eq!(queue.release(at(2), || true), Release::HandOn(7, token(7, 2), 2));
    assert_eq!(queue.release(at(3), || true), Release::Store);
    assert_eq!(queue.next(), Some(3));
    assert!(queue.is_acquiring());
}

/// After its tenure a lock goes to the store even if the limit is not reached.
#[test]
fn hand_offs_end_with_the_tenure() {
    let mut queue = held(7);
    queue.enqueue(WaiterId(1), 1);
    assert_eq!(queue.release(at(100), || true), Release::Store);
}

/// A lease that may not live long enough never passes on.
#[test]
fn an_unhealthy_hold_is_never_handed_on() {
    let mut queue = held(7);
    queue.enqueue(WaiterId(1), 1);
    assert_eq!(queue.release(at(1), || false), Release::Store);
}

/// A `try` waits for the confirmation of a release, and for nobody who waits.
#[test]
fn a_try_waits_for_a_release_alone() {
    let mut queue = held(7);
    assert_eq!(queue.try_claim(), Reply::Busy);
    assert_eq!(queue.release(at(1), || true), Release::Store);
    assert_eq!(queue.try_claim(), Reply::Wait);
    queue.enqueue(WaiterId(1), 1);
    assert_eq!(queue.try_claim(), Reply::Busy);
}

/// A counter that does not grow, or does not fit, is refused.
#[test]
fn a_counter_that_goes_back_is_refused() {
    for counter in [7, 6, FencingToken::MAX_COUNTER + 1] {
        let mut queue = held(7);
        queue.release(at(1), || true);
        assert_eq!(queue.next(), None);
        queue.claim();
        assert_eq!(queue.adopt(1, counter, at(2), BUDGET), Err(Regressed { last: 7 }));
        assert_eq!(queue.next(), None);
        assert!(queue.is_idle());
    }
}

/// Only the hold that was lost is given up, and only once.
#[test]
fn a_loss_ends_only_its_own_hold() {
    let mut queue = held(7);
    assert!(!queue.forfeit(6));
    assert!(queue.forfeit(7));
    assert!(!queue.forfeit(7));
    assert_eq!(queue.release(at(1), || true), Release::NotHeld);
}

proptest! {
    /// Random schedules: tokens grow (queue-2), waiters are called in order and none is forgotten (queue-3),
    /// no grant passes on more often than allowed (queue-4).
    #[test]
    fn random_schedules_keep_the_invariants(steps in prop::collection::vec((0_u8..6, 0_u64..40), 1..200)) {
        let mut queue = Queue::new();
        let (mut now, mut counter, mut next_waiter) = (0, 0, 0_u32);
        let mut last_token = None;
        let mut waiting: Vec<(WaiterId, u32)> = Vec::new();
        let mut passed = 0;
        let grew = |last: &mut Option<FencingToken>, token: FencingToken| {
            let grew = Some(token) > *last;
            *last = Some(token);
            grew
        };
        for (step, pause) in steps {
            now += pause;
            let called = match step {
                0 | 1 => match queue.claim() {
                    Reply::Wait => {
                        let id = WaiterId(next_waiter.into());
                        queue.enqueue(id, next_waiter);
                        waiting.push((id, next_waiter));
                        next_waiter += 1;
                        None
                    }
                    Reply::Drive => None,
                    Reply::Busy => unreachable!("claim waits"),
                },
                2 if queue.is_acquiring() => {
                    counter += 1;
                    passed = 0;
                    let token = queue.adopt(counter, counter, at(now), BUDGET).unwrap();
                    prop_assert!(grew(&mut last_token, token));
                    None
                }
                3 if matches!(queue.phase, Phase::Acquiring | Phase::Releasing) => queue.next(),
                4 => match queue.release(at(now), || pause % 5 != 0) {
                    Release::HandOn(_, token, waiter) => {
                        prop_assert!(grew(&mut last_token, token));
                        passed += 1;
                        Some(waiter)
                    }
                    Release::Store | Release::NotHeld => None,
                },
                5 if pause % 2 == 0 => { queue.forfeit(counter); None }
                5 if !waiting.is_empty() => {
                    let (id, waiter) = waiting.remove(pause as usize % waiting.len());
                    prop_assert_eq!(queue.leave(id), Some(waiter));
                    None
                }
                _ => None,
            };
            if let Some(waiter) = called {
                prop_assert_eq!(waiter, waiting.remove(0).1);
            }
            prop_assert!(passed <= BUDGET.limit);
            prop_assert!(!queue.is_idle() || queue.waiters().next().is_none());
            prop_assert_eq!(queue.waiters().count(), waiting.len());
        }
    }
}
