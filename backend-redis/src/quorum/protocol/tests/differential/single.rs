//! What single scripts do besides, which the model of a server does not know.

use redis::Value;

use super::*;

/// Whoever has agreed on something else gets no vote, and hears on what.
#[test]
fn a_server_votes_on_its_terms() {
    let mut real = Real::start();
    let (space, keys) = (real.space.clone(), real.keys.clone());
    begin(&mut real, "others");
    let ballot = Ballot { ticket: ticket(1), round: 1 };
    let (proposal, since) = (0, BEGIN);
    let asker = Asker { ballot, ttl: 900, proposal, since, inbox: "0", info: "1 x", terms: TERMS };
    let asked = |asker| scripts::vote_at(&scripts::vote(&keys, &space, asker), (true, false), "1");
    for proposal in [0, BEGIN + 77] {
        let value = real.run(&asked(Asker { proposal, ..asker }));
        let refused = scripts::voted(&value).unwrap_err();
        assert_eq!(*refused.kind(), leasehold_core::ErrorKind::InvalidOption);
        assert!(refused.to_string().contains("used with others"), "{refused}");
    }
    assert_eq!(admit(&mut real, "1", TERMS).terms, "others");
    let asker = Asker { terms: "others", ..asker };
    let value = real.run(&asked(asker));
    assert!(matches!(scripts::voted(&value).unwrap().answer, Some(Answer::Voted { .. })));
}

/// A namespace of another format is left as it is, and its format is the answer.
#[test]
fn another_format_is_answered_and_left_alone() {
    let mut real = Real::start();
    let all = |real: &mut Real| real.ask(redis::cmd("HGETALL").arg(real.space.clone()));
    for format in ["1", "2"] {
        real.ask(redis::cmd("HSET").arg(real.space.clone()).arg("format").arg(format));
        let (before, admitted) = (all(&mut real), try_admit(&mut real, "1", TERMS));
        let is_ours = format == "1";
        assert_eq!(
            (admitted.is_ok(), all(&mut real) != before),
            (is_ours, is_ours),
            "{format}: {admitted:?}"
        );
        real.ask(redis::cmd("DEL").arg(real.space.clone()));
    }
}

/// A number is remembered until the clock has passed it, also where that was set back since.
#[test]
fn numbers_grow_past_a_clock_that_is_set_back() {
    let mut real = Real::start();
    let (space, keys) = (real.space.clone(), real.keys.clone());
    begin(&mut real, TERMS);
    let mut last = 0;
    let day = 86_400_000_000;
    for (owner, now, proposal) in [
        (1, BEGIN, BEGIN + 400_000),
        // By whoever has heard of the other servers' clocks.
        (2, BEGIN - 2 * day, BEGIN + 500_000),
        (3, BEGIN - day / 2, BEGIN - day / 2 + 20_000),
    ] {
        real.stand_at(now);
        let ballot = Ballot { ticket: ticket(owner), round: 1 };
        let asker = Asker { ballot, ttl: 900, proposal, since: now, inbox: "0", info: "1 x", terms: TERMS };
        let call = scripts::vote_at(&scripts::vote(&keys, &space, asker), (false, false), "1");
        let voted = scripts::voted(&real.run(&call)).unwrap().answer;
        assert!(matches!(voted, Some(Answer::Voted { n }) if n > last), "{voted:?} after {last}");
        let Some(Answer::Voted { n }) = voted else { unreachable!() };
        last = n;
        real.run(&scripts::release(&keys, &inboxes(), ballot, "0", None));
    }
}

/// What was asked of a holder is gone when it has let go.
#[test]
fn an_ask_ends_with_the_vote() {
    let mut real = Real::start();
    let (space, keys) = (real.space.clone(), real.keys.clone());
    begin(&mut real, TERMS);
    let ballot = Ballot { ticket: ticket(1), round: 1 };
    let (proposal, since) = (BEGIN + 77, BEGIN);
    let asker = Asker { ballot, ttl: 900, proposal, since, inbox: "0", info: "1 x", terms: TERMS };
    real.run(&scripts::vote_at(&scripts::vote(&keys, &space, asker), (false, false), "1"));
    let how = leasehold_core::Revoke::AT_ONCE;
    real.run(&scripts::revoke(&keys, &inboxes(), ballot.ticket.owner, how));
    let exist = redis::cmd("EXISTS").arg(&keys.vote).arg(&keys.asked).to_owned();
    assert_eq!(real.ask(&exist), Value::Int(2));
    let had = real.run(&scripts::release(&keys, &inboxes(), ballot, "0", None));
    assert!(scripts::was_there(&had).unwrap());
    assert_eq!(real.ask(&exist), Value::Int(0));
}

fn admit(real: &mut Real, run: &str, terms: &str) -> Standing {
    try_admit(real, run, terms).unwrap()
}

fn try_admit(real: &mut Real, run: &str, terms: &str) -> leasehold_core::Result<Standing> {
    let (has_followed, pause, episode, met) = (false, Duration::ZERO, OwnerId::from_random([1; 16]), None);
    let looker = Looker { run, has_followed, terms, pause, episode, met };
    let call = scripts::admit(&real.space, &looker);
    scripts::known(&real.run(&call), ("p", run), Moment::from_nanos(0))
}

/// The server votes on those terms.
fn begin(real: &mut Real, terms: &str) {
    let own = admit(real, "1", terms);
    let call = scripts::install(&real.space, &own, &told(0, &[]), terms);
    assert!(scripts::was_there(&real.run(&call)).unwrap());
}
