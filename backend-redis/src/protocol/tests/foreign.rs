//! A lock that foreign clients take too, against the model of the scripts: how soon ours follow one, and that one that
//! polls has its turn while many of ours contend.

use super::*;

impl World {
    /// A foreign client takes the lock if it can, or releases it, with a message or without.
    pub(super) fn foreign(&mut self, pick: usize) {
        let lease = pick as u64 % (2 * TTL);
        let lease = (lease > 0).then_some(lease);
        if self.server.shared.is_none() {
            // It is ours alone.
        } else if self.foreign.take().is_some() {
            self.server.expire(micros(self.now));
            if self.server.is_held_by(FOREIGN_OWNER) {
                self.server.lock = None;
            }
            self.flying.extend(pick.is_multiple_of(2).then_some(Message::Signal));
        } else if self.server.taken_by(micros(self.now), FOREIGN_OWNER, lease) {
            self.foreign = Some(lease.map_or(u64::MAX, |lease| self.now + lease));
        }
    }
}

/// Contenders of ours that hold for some milliseconds, again and again, beside one foreign client that polls.
struct Beside {
    ours: usize,
    holds: u64,
    /// How often the foreign client tries.
    polls: u64,
    shared: Shared,
    fault: Fault,
}

/// What became of them in a while.
#[derive(Debug)]
struct Shares {
    ours: u64,
    foreign: u64,
    /// The longest time for which the foreign client has tried.
    longest: u64,
    /// For how long the lock was free.
    free: u64,
}

const WHILE: u64 = 20_000;

impl Beside {
    fn play(&self) -> Shares {
        let shared = Some(self.shared.clone());
        let mut server = Server { fault: self.fault, shared, ..Server::default() };
        let mut clients: Vec<_> = (0..self.ours).map(|id| (id as Owner + 1, contender(), None)).collect();
        let mut owners = self.ours as Owner;
        let mut shares = Shares { ours: 0, foreign: 0, longest: 0, free: 0 };
        let (mut tries_since, mut holds_until, mut renewed) = (1_000, None, vec![1_000; self.ours]);
        for now in 1_000..1_000 + WHILE {
            let mut said = Vec::new();
            server.expire(micros(now));
            if holds_until.is_some_and(|until| until <= now) {
                (server.lock, holds_until, tries_since) = (None, None, now);
            }
            shares.longest = shares.longest.max(if holds_until.is_none() { now - tries_since } else { 0 });
            let tries = holds_until.is_none() && now > tries_since && (now - tries_since) % self.polls == 0;
            if tries && server.taken_by(micros(now), FOREIGN_OWNER, Some(self.holds + TTL)) {
                holds_until = Some(now + self.holds);
                shares.foreign += 1;
            }
            for (id, (owner, contender, held_since)) in clients.iter_mut().enumerate() {
                let asker = Asker::new(*owner, id, TTL);
                let is_due = renewed[id] + TTL / 3 <= now;
                let answer = match contender.step(at(now)) {
                    Step::Enter => Some(server.acquire(micros(now), asker, true, &mut said)),
                    Step::Take { .. } => {
                        let since = *held_since.get_or_insert(now);
                        if since + self.holds <= now {
                            server.release(micros(now), *owner, &mut said);
                            shares.ours += 1;
                            owners += 1;
                            (*owner, *contender, *held_since) = (owners, super::contender(), None);
                        }
                        None
                    }
                    Step::Refresh => Some(server.refresh(micros(now), asker, &mut said)),
                    Step::Wait(_) if is_due => Some(server.refresh(micros(now), asker, &mut said)),
                    Step::Wait(_) => None,
                    Step::Over(reason) => panic!("{owner} is over, {reason:?}: {server:?}"),
                };
                if let Some(answer) = answer {
                    renewed[id] = now;
                    contender.answered(at(now), at(now), answer);
                }
            }
            for message in said {
                let of = |owner| clients.iter().position(|(its, ..)| *its == owner);
                match message {
                    Message::Push { owner, counter, .. } => {
                        if let Some(id) = of(owner) {
                            clients[id].1.told(at(now), counter);
                        }
                    }
                    Message::Due { owner, ask_in, .. } => {
                        if let Some(id) = of(owner) {
                            clients[id].1.due(at(now), Duration::from_millis(ask_in));
                        }
                    }
                    _ => unreachable!("nobody revokes"),
                }
            }
            shares.free += u64::from(server.lock.is_none());
        }
        shares
    }
}

/// Eight of ours that leave the lock no gap, and a foreign client that polls as most libraries do: it has its turn within
/// what the options say. Without turns it has none.
#[test]
fn polling_client_has_its_turn_beside_many_of_ours() {
    let Shared { every, after, rest, .. } = Shared::STRINGS;
    for (holds, after, bound) in
        [(5, 8, 9 * 5 + rest), (5, after, every + 2 * 5 + rest), (400, after, every + 2 * 400 + rest)]
    {
        let shared = || Shared { after, ..Shared::STRINGS };
        let beside = |fault| Beside { ours: 8, holds, polls: 100, shared: shared(), fault };
        let shares = beside(Fault::None).play();
        assert!(shares.longest <= bound + 9 * 5, "{shares:?} where each holds for {holds} ms");
        assert!(shares.ours > 0);
        let without = beside(Fault::NoTurns).play();
        assert!(without.longest > 5 * bound, "{without:?} where each holds for {holds} ms");
    }
}

/// One of ours that acquires again at once leaves a foreign client its turns, as many of ours do.
#[test]
fn a_client_that_polls_has_its_turn_beside_one_of_ours() {
    let Shared { every, rest, .. } = Shared::STRINGS;
    let beside = |fault| Beside { ours: 1, holds: 150, polls: 100, shared: Shared::STRINGS, fault };
    let (shares, without) = (beside(Fault::None).play(), beside(Fault::ForgetsTurns).play());
    assert!(shares.longest <= every + 2 * 150 + rest && shares.ours > 0, "{shares:?}");
    assert!(without.longest > 2 * (every + rest), "{without:?}");
}

/// A foreign client that a try meets has had its turn: what was counted before it brings no rest later.
#[test]
fn try_behind_a_foreign_holder_ends_the_count() {
    let Shared { every, .. } = Shared::STRINGS;
    let mut server = Server { shared: Some(Shared::STRINGS), ..Server::default() };
    let mut said = Vec::new();
    let tries = |server: &mut Server, now, owner| {
        server.acquire(micros(now), Asker::new(owner, 0, 2 * every), false, &mut Vec::new())
    };
    assert!(matches!(tries(&mut server, 1_000, 1), ScriptReply::Holds { .. }));
    server.release(micros(1_001), 1, &mut said);
    assert!(server.taken_by(micros(1_002), FOREIGN_OWNER, None));
    assert!(matches!(tries(&mut server, 1_003, 2), ScriptReply::Waits { .. }));
    server.lock = None;
    assert!(matches!(tries(&mut server, 1_004, 3), ScriptReply::Holds { .. }));
    server.release(micros(1_004 + every), 3, &mut said);
    assert!(matches!(tries(&mut server, 1_005 + every, 4), ScriptReply::Holds { .. }));
}

/// Without a foreign client, the lock rests for an eighth of the time, with the times of Spring for a third; where hand-overs
/// are counted too and holds are short, for three fifths.
#[test]
fn turns_that_nobody_takes_cost_what_the_page_says() {
    let Shared { after: only_time, every, .. } = Shared::STRINGS;
    let by_time = [(150, only_time, every, 13), (10, only_time, every, 13), (10, only_time, 300, 32)];
    let counted = [(150, 8, every, 13), (10, 8, every, 62)];
    for (holds, after, every, percent) in by_time.into_iter().chain(counted) {
        let shared = Shared { after, every, ..Shared::STRINGS };
        let free = Beside { ours: 8, holds, polls: 2 * WHILE, shared, fault: Fault::None }.play().free;
        let share = 100 * free / WHILE;
        assert!(share.abs_diff(percent) <= 2, "{share} % where holds take {holds} ms, after {after}");
    }
}

/// A foreign client releases early: the first of ours has the lock within a poll, not at the end of the lease; with a
/// message, at once.
#[test]
fn the_first_of_ours_follows_a_foreign_client_within_a_poll() {
    let shared = || Some(Shared { signals: true, ..Shared::STRINGS });
    let follows = |fault, speaks| {
        let mut server = Server { fault, shared: shared(), ..Server::default() };
        assert!(server.taken_by(micros(1_000), FOREIGN_OWNER, None));
        let (mut waiter, mut said) = (contender(), Vec::new());
        let asker = Asker::new(1, 0, TTL);
        let answer = server.acquire(micros(1_000), asker, true, &mut said);
        waiter.answered(at(1_000), at(1_000), answer);
        for now in 1_001..1_000 + TTL / 3 {
            if now == 1_150 {
                server.lock = None;
                if speaks {
                    waiter.spoken(at(now));
                }
            }
            match waiter.step(at(now)) {
                Step::Refresh => {
                    let answer = server.refresh(micros(now), asker, &mut said);
                    waiter.answered(at(now), at(now), answer);
                }
                Step::Take { .. } => return Some(now - 1_150),
                _ => {}
            }
        }
        None
    };
    assert!(follows(Fault::None, false).is_some_and(|waited| waited <= Shared::STRINGS.poll + 2));
    assert!(follows(Fault::None, true).is_some_and(|waited| waited <= 1));
    assert_eq!(follows(Fault::NoPoll, false), None);
}

/// A message counts only for the first waiter behind a foreign client, and at most so often.
#[test]
fn only_who_is_first_behind_a_foreign_client_hears_it() {
    let waits = |behind_foreign| ScriptReply::Waits { seen: 5, ask_in: None, behind_foreign };
    let mut waiter = contender();
    waiter.spoken(at(0));
    assert_eq!(waiter.step(at(0)), Step::Enter);
    waiter.answered(at(10), at(0), waits(false));
    waiter.spoken(at(20));
    assert_eq!(waiter.step(at(20)), Step::Wait(at(TTL - MARGIN)));
    waiter.answered(at(40), at(30), waits(true));
    waiter.spoken(at(35));
    assert_eq!(waiter.step(at(39)), Step::Wait(at(40)));
    assert_eq!(waiter.step(at(40)), Step::Refresh);
    // An answer to what was asked before does not undo it.
    waiter.answered(at(41), at(34), waits(false));
    assert_eq!(waiter.step(at(41)), Step::Refresh);
    waiter.answered(at(60), at(45), waits(false));
    waiter.spoken(at(70));
    assert!(matches!(waiter.step(at(100)), Step::Wait(_)), "somebody of ours holds");
}
