//! Each rule by itself, where the random schedules would say only that something is wrong.

use super::*;

fn waits(seen: u64) -> ScriptReply {
    ScriptReply::Waits { seen, ask_in: None, behind_foreign: false }
}

/// A waiter asks when the holder's lease ends, if that is before its next renewal; not otherwise (redis.protocol-5).
#[test]
fn a_waiter_asks_when_the_holders_lease_ends() {
    let mut waiter = contender();
    let waits = |left| ScriptReply::Waits {
        seen: 5,
        ask_in: Some(Duration::from_millis(left)),
        behind_foreign: false,
    };
    waiter.answered(at(10), at(0), waits(TTL));
    assert_eq!(waiter.step(at(10)), Step::Wait(at(TTL - MARGIN)));
    waiter.answered(at(310), at(300), waits(100));
    assert_eq!(waiter.step(at(310)), Step::Wait(at(411)));
    assert_eq!(waiter.step(at(411)), Step::Refresh);
    waiter.unanswered(at(500));
    assert_eq!(waiter.step(at(500)), Step::Wait(at(537) + Duration::from_micros(500)));
    waiter.answered(at(520), at(515), ScriptReply::Holds { counter: 6 });
    let deadline = Deadline::At(at(515 + TTL - MARGIN));
    assert_eq!(waiter.step(at(520)), Step::Take { counter: 6, deadline });
}

/// A message is believed only if it is news, and counts from the latest answered request (redis.protocol-1, redis.protocol-2).
#[test]
fn a_message_counts_from_the_latest_answered_request() {
    let mut waiter = contender();
    waiter.told(at(0), 5);
    assert_eq!(waiter.step(at(0)), Step::Enter, "granted before anything was answered");
    waiter.answered(at(10), at(0), waits(5));
    waiter.answered(at(310), at(300), waits(5));
    waiter.told(at(400), 5);
    assert!(waiter.is_waiting(), "believed what was answered already");
    waiter.told(at(500), 6);
    let deadline = Deadline::At(at(300 + TTL - MARGIN));
    assert_eq!(waiter.step(at(500)), Step::Take { counter: 6, deadline });
    assert_eq!(waiter.answered(at(510), at(305), waits(5)), Verdict::Until(deadline));
    waiter.answered(at(520), at(506), waits(6));
    assert_eq!(waiter.step(at(520)), Step::Over(LostReason::Gone), "waits although it was granted");
}

/// What is past its deadline is over, whatever arrives then (redis.protocol-3).
#[test]
fn an_expired_entry_is_over() {
    let mut waiter = contender();
    waiter.answered(at(10), at(0), waits(5));
    waiter.told(at(TTL - MARGIN), 6);
    assert_eq!(waiter.step(at(TTL - MARGIN)), Step::Over(LostReason::Expired));
    let late = waiter.answered(at(TTL), at(TTL - 20), ScriptReply::Holds { counter: 6 });
    assert_eq!(late, Verdict::Gone(LostReason::Expired));
}

/// A grant that is past its deadline when it arrives is none, by whichever way it comes (redis.protocol-3).
#[test]
fn a_grant_that_comes_too_late_is_over() {
    for by_message in [false, true] {
        let mut late = contender();
        match by_message {
            true => {
                late.told(at(5), 6);
                late.answered(at(TTL), at(0), waits(5));
            }
            false => _ = late.answered(at(TTL), at(0), ScriptReply::Holds { counter: 6 }),
        }
        assert_eq!(late.step(at(TTL)), Step::Over(LostReason::Expired), "by message: {by_message}");
        assert_eq!(late.held_as(), None);
    }
}

/// A holder whose grant the server has forgotten learns that from its next request;
/// an answer that was on its way when it was granted says nothing (redis.protocol-6).
#[test]
fn a_forgotten_grant_is_found_by_the_next_request() {
    let granted = |told_at| {
        let mut waiter = contender();
        waiter.answered(at(10), at(0), waits(5));
        waiter.told(at(told_at), 99);
        waiter
    };
    let kept = Verdict::Until(Deadline::At(at(TTL - MARGIN)));
    assert_eq!(granted(300).answered(at(310), at(290), waits(5)), kept);
    assert_eq!(granted(300).answered(at(330), at(320), waits(5)), Verdict::Gone(LostReason::Gone));
}

/// A grant that arrives before the answer to the request that has entered counts once that arrives, and from then
/// (redis.protocol-1).
#[test]
fn a_grant_may_come_before_the_answer() {
    let mut entering = contender();
    entering.told(at(2), 6);
    assert_eq!(entering.step(at(3)), Step::Enter);
    entering.answered(at(5), at(1), waits(5));
    let deadline = Deadline::At(at(1 + TTL - MARGIN));
    assert_eq!(entering.step(at(5)), Step::Take { counter: 6, deadline });

    // A server that has lost its data since answers the repeated request with a smaller counter.
    for sent_at in [2, 3] {
        let mut repeated = contender();
        repeated.told(at(2), 6);
        repeated.answered(at(5), at(sent_at), waits(0));
        assert!(repeated.is_waiting(), "believed what the server has forgotten");
    }
}

/// A counter far above what was answered is asked for, and no more often than any channel makes ask (redis.protocol-10).
#[test]
fn a_grant_far_ahead_is_asked_for() {
    for early in [false, true] {
        let mut waiter = contender();
        if early {
            waiter.told(at(1), 6 + LEAP);
        }
        waiter.answered(at(1), at(0), waits(5));
        waiter.told(at(4), 6 + LEAP);
        assert_eq!(waiter.step(at(4)), Step::Wait(at(10)));
        assert_eq!(waiter.step(at(10)), Step::Refresh);
        waiter.answered(at(12), at(11), waits(5));
        assert!(matches!(waiter.step(at(12)), Step::Wait(until) if until > at(TTL / 2)), "it was made up");
        waiter.told(at(20), 5 + LEAP);
        assert!(matches!(waiter.step(at(20)), Step::Take { .. }));
    }
}

/// A revocation is known with the grant; the earliest deadline counts, and the lease goes on (redis.protocol-7).
#[test]
fn an_ask_is_known_with_the_grant() {
    let millis = Duration::from_millis;
    let mut holder = contender();
    holder.asked(at(5), millis(700));
    assert_eq!(holder.wanted(at(5)), None);
    holder.answered(at(10), at(0), ScriptReply::Holds { counter: 6 });
    assert_eq!(holder.wanted(at(105)), Some((6, millis(600))));
    let again = ScriptReply::Revoked { counter: 6, grace: millis(700) };
    assert_eq!(
        holder.answered(at(310), at(300), again),
        Verdict::Until(Deadline::At(at(300 + TTL - MARGIN)))
    );
    assert_eq!(holder.wanted(at(310)), Some((6, millis(395))));
    holder.asked(at(320), Duration::ZERO);
    assert_eq!(holder.wanted(at(330)), Some((6, Duration::ZERO)));
    assert!(matches!(holder.step(at(330)), Step::Take { counter: 6, .. }));
    holder.end(LostReason::Released);
    assert_eq!(holder.wanted(at(330)), None);
}
