//! Operations by hand, which chance seldom finds.

use super::*;

#[test]
fn another_format_is_answered_and_left_alone() {
    let mut real = Real::start();
    let space = real.space.clone();
    for (format, is_ours) in [("1", true), ("2", false)] {
        real.ask(redis::cmd("HSET").arg(&space).arg("format").arg(format));
        let before = real.ask(redis::cmd("HGETALL").arg(&space));
        let (pause, episode) = (Duration::ZERO, OwnerId::from_random([1; 16]));
        let looker = Looker { run: "1", has_followed: false, terms: TERMS, pause, episode, met: None };
        let answer = real.run(&scripts::admit(&space, &looker));
        let admitted = scripts::known(&answer, ("p", "1"), Moment::from_nanos(0));
        let is_changed = real.ask(redis::cmd("HGETALL").arg(&space)) != before;
        assert_eq!((admitted.is_ok(), is_changed), (is_ours, is_ours), "{format}: {admitted:?}");
        real.ask(redis::cmd("DEL").arg(&space));
    }
}

/// A number is remembered until the clock has passed it, also if that was set back since.
#[test]
fn numbers_grow_past_a_clock_that_is_set_back() {
    let mut real = Real::start();
    let mut model = begin(&mut real);
    let (mut last, day) = (0, 86_400_000_000);
    for (owner, now, above) in [
        (1, BEGIN, 400_000),
        // By a manager that knows the other servers' clocks.
        (2, BEGIN - 2 * day, 2 * day + 500_000),
        (3, BEGIN - day / 2, 20_000),
    ] {
        real.stand_at(now);
        let (proposal, round, ttl) = (Proposal::Is(now + above), 1, 900);
        let vote = Operation::Vote { owner, round, ttl, proposal, waits: false, again: false };
        let (answered, _) = step(&mut real, &mut model, &vote);
        let n = model.count.unwrap().n;
        assert_eq!(answered, format!("{:?}", Some(VoteReply::Voted { n })));
        assert!(n > last, "{n} after {last}");
        last = n;
        step(&mut real, &mut model, &Operation::Release { owner, round, ttl, waits: false });
    }
}

/// If the last number is lost, or is that of the same ballot, the short path has set the vote and leaves the number to the rest.
/// Random operations seldom find these mutants.
#[test]
fn lost_hold_is_counted_again() {
    let vote = |owner: u64, above: u64| {
        let (round, ttl, proposal) = (1, 3_000, Proposal::Is(BEGIN + above));
        Operation::Vote { owner, round, ttl, proposal, waits: false, again: false }
    };
    let number = vec![Operation::Lose(0), Operation::Lose(1), Operation::Pass(900_000), vote(2, 500_000)];
    let ballot = vec![Operation::Lose(0), vote(1, 77)];
    let admit = |terms| Operation::Admit { terms, pause: 0, has_followed: false, clocks: &[], stale: 9 };
    let proposed = vec![Operation::Lose(3), admit(TERMS), admit("others")];
    let firm = vec![Operation::Restart(false), admit("others")];
    let episode = vec![Operation::Restart(true), Operation::Lose(4), FIRST_MET];
    let renew = Operation::Renew { owner: 1, round: 1, ttl: 3_000, off: 1 };
    let confirm = Operation::Confirm { owner: 1, round: 1, ttl: 3_000, off: 1, token: BEGIN + 5_000_000 };
    for (then, mutant) in [
        (number, ("counted and counted < proposed then", "(counted or 0) < proposed then")),
        (ballot, ("if not last and type(voted)", "if type(voted)")),
        (proposed, ("and redis.sha1hex(terms) < redis.sha1hex(known[4])", "and false")),
        (firm, ("and not known[10] and", "and")),
        (episode, ("or not (whole or known[11]) then", "then")),
        (vec![Operation::Format, vote(1, 500_000)], ("(known[5] or FORMAT) ~= FORMAT", "false")),
        (vec![Operation::Format, confirm], ("(known[3] or FORMAT) ~= FORMAT", "false")),
        (vec![Operation::Format, renew], ("(known[2] or FORMAT) == FORMAT", "true")),
    ] {
        assert!(scripts::PROGRAM.text().contains(mutant.0), "{mutant:?}");
        for changes in [vec![], vec![mutant]] {
            let mut real = Real::start();
            let is_changed = !changes.is_empty();
            real.changes = changes;
            let mut model = begin(&mut real);
            let differs = |operation: &Operation| {
                let (answered, expected) = step(&mut real, &mut model, operation);
                answered != expected
            };
            assert_eq!([vote(1, 400_000)].iter().chain(&then).any(differs), is_changed, "{mutant:?}");
        }
        ::model::caught("quorum scripts", mutant, "operations by hand");
    }
}

/// The key of a revocation is none of the request: it is made from that of the vote.
#[test]
fn release_ends_the_revocation() {
    let mut real = Real::start();
    let mut model = begin(&mut real);
    let (owner, round, ttl, waits) = (1, 1, 9_000, false);
    let proposal = Proposal::Is(BEGIN + 77);
    for mutant in [
        None,
        Some(("name .. 'waits', name .. 'asked') == 0", "name .. 'waits') == 0")),
        Some(("waits, asked = name .. 'waits', name .. 'asked'", "waits, asked = name .. 'waits', name")),
    ] {
        assert!(mutant.is_none_or(|(from, _)| scripts::PROGRAM.text().contains(from)), "{mutant:?}");
        real.changes = Vec::from_iter(mutant);
        step(&mut real, &mut model, &Operation::Vote { owner, round, ttl, proposal, waits, again: false });
        let asked = real.keys.asked.clone();
        real.ask(redis::cmd("SET").arg(&asked).arg("a grace"));
        let (answered, expected) =
            step(&mut real, &mut model, &Operation::Release { owner, round, ttl, waits });
        assert_eq!(answered, expected);
        let is_left = real.ask(redis::cmd("EXISTS").arg(&asked)) == redis::Value::Int(1);
        assert_eq!(is_left, mutant.is_some(), "{mutant:?}");
        mutant.into_iter().for_each(|mutant| ::model::caught("quorum scripts", mutant, "operations by hand"));
    }
}

#[test]
fn leaving_entry_passes_on_its_message() {
    let mut real = Real::start();
    let mut model = begin(&mut real);
    let vote = |owner| {
        let (round, ttl, proposal) = (1, 9_000, Proposal::Is(BEGIN + 77));
        Operation::Vote { owner, round, ttl, proposal, waits: true, again: false }
    };
    let leave = |owner| Operation::Release { owner, round: 1, ttl: 9_000, waits: false };
    // The fourth comes before the first.
    for operation in [vote(3), vote(4), vote(1)] {
        step(&mut real, &mut model, &operation);
    }
    for (leaves, told) in [(3, 4), (4, 1)] {
        let (answered, _) = step(&mut real, &mut model, &leave(leaves));
        assert!(answered.contains(&ticket(told).owner.to_hex()), "{leaves} has left: {answered}");
    }
}
