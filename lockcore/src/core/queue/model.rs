//! Every schedule of four callers of one name, in all modes: they come, wait, request the lock at the store, share it,
//! release it and leave; the store grants, fails, confirms and loses; budgets run out at any time.

use std::collections::BTreeSet;

use ::model::{Explored, Search, assert_caught, explore};

use super::*;

const LIMIT: u16 = 2;
const READS: Wish = Wish { mode: Mode::SHARED, alone: false };
const READS_ALONE: Wish = Wish { mode: Mode::SHARED, alone: true };
const WRITES: Wish = Wish { mode: Mode::EXCLUSIVE, alone: false };

fn some(weight: u32, capacity: u32) -> Wish {
    Wish { mode: Mode::permits(weight, capacity).unwrap(), alone: false }
}

/// What is done wrong, if anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
enum Mutant {
    None,
    /// The next waiter is not called after that.
    NoCall(After),
    JoinsPastTheQueue,
    JoinsBeyondTheLimit,
    JoinsBeyondTheWindow,
    InheritsAnyWish,
    AsksForWhatDoesNotFit,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
enum After {
    Adopted,
    HandedOn,
    Confirmed,
    NotGranted,
    LostWithItsSession,
    Left,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Caller {
    Outside,
    Waits(WaiterId),
    Asks,
    Holds(FencingToken),
    Gone,
}

/// The queue and its callers.
#[derive(Clone, Hash)]
struct World {
    wishes: [Wish; 4],
    mutant: Mutant,
    queue: NameQueue<u64, usize>,
    callers: [Caller; 4],
    /// The waiters in order of arrival.
    line: Vec<usize>,
    arrivals: u64,
    counter: u64,
    /// Grants whose window is over.
    over: BTreeSet<u64>,
    wrong: Option<&'static str>,
}

impl World {
    fn new(wishes: [Wish; 4]) -> Self {
        Self {
            wishes,
            mutant: Mutant::None,
            queue: NameQueue::new(),
            callers: [Caller::Outside; 4],
            line: Vec::new(),
            arrivals: 0,
            counter: 0,
            over: BTreeSet::new(),
            wrong: None,
        }
    }

    fn joins(&self) -> impl FnMut(&u64, Moment) -> bool + use<> {
        let (ignores, over) = (self.mutant == Mutant::JoinsBeyondTheWindow, self.over.clone());
        move |counter, _| ignores || !over.contains(counter)
    }

    fn comes(&mut self, who: usize) {
        let (wish, joins) = (self.wishes[who], self.joins());
        let claim = match self.mutant {
            Mutant::JoinsPastTheQueue => match self.queue.join(wish, joins) {
                Some((held, token)) => Claim::Hold(held, token),
                None => self.queue.claim(wish, |_, _| false),
            },
            Mutant::AsksForWhatDoesNotFit if self.queue.acquiring.is_none() => {
                self.queue.acquiring = Some(wish.mode);
                Claim::Lead
            }
            _ => self.queue.claim(wish, joins),
        };
        match claim {
            Claim::Wait => {
                self.arrivals += 1;
                let id = WaiterId(self.arrivals);
                self.queue.enqueue(id, wish, who);
                self.line.push(who);
                self.callers[who] = Caller::Waits(id);
            }
            Claim::Hold(..) if !self.line.is_empty() || self.callers.contains(&Caller::Asks) => {
                self.wrong = Some("a newcomer passes a waiter");
            }
            claim => self.has(who, &claim),
        }
    }

    fn leaves_queue(&mut self, who: usize, id: WaiterId) {
        if self.queue.leave(id) != Some(who) {
            self.wrong = Some("a waiter is not in the queue");
        }
        self.line.retain(|waiting| *waiting != who);
        self.callers[who] = Caller::Gone;
        self.call_next(After::Left);
    }

    fn is_granted(&mut self, who: usize) {
        self.counter += 1;
        let beyond = u16::from(self.mutant == Mutant::JoinsBeyondTheLimit);
        let budget = HandoffBudget { limit: LIMIT + beyond, window: Duration::from_nanos(1) };
        let token = self.queue.adopt(self.counter, self.wishes[who], Moment::from_nanos(0), budget);
        self.callers[who] = Caller::Holds(token.expect("it grows"));
        self.call_next(After::Adopted);
    }

    fn leaves_request(&mut self, who: usize) {
        self.callers[who] = Caller::Gone;
        let wish = self.wishes[who];
        let heir = match self.mutant {
            Mutant::InheritsAnyWish => self.queue.pop(),
            _ => self.queue.inherit(wish),
        };
        let Some(heir) = heir else {
            self.queue.not_granted();
            return self.call_next(After::NotGranted);
        };
        self.is_called(heir, &Claim::Lead);
        if self.wishes[heir] != wish {
            self.wrong = Some("a waiter goes on with what it did not ask for");
        }
    }

    fn lets_go(&mut self, who: usize, token: FencingToken) {
        self.callers[who] = Caller::Gone;
        let in_window = !self.over.contains(&token.counter());
        match self.queue.release(token.counter(), Moment::from_nanos(0), || in_window) {
            (Released::Stays, Some((claim, heir))) => {
                if self.callers.contains(&Caller::Asks) {
                    self.wrong = Some("a waiter passes a caller that asks the store");
                }
                self.is_called(heir, &claim);
                self.call_next(After::HandedOn);
            }
            (Released::NotHeld, _) => self.wrong = Some("a hold is not known"),
            (Released::Stays | Released::Store, _) => {}
        }
    }

    fn is_lost(&mut self, counter: u64) {
        if !self.queue.lose(|held| *held == counter) {
            self.wrong = Some("a hold is not known");
        }
        for caller in &mut self.callers {
            if caller.token().is_some_and(|token| token.counter() == counter) {
                *caller = Caller::Gone;
            }
        }
    }

    fn is_confirmed(&mut self, counter: u64, after: After) {
        self.queue.released(|held| *held == counter);
        self.call_next(after);
    }

    fn call_next(&mut self, after: After) {
        if self.mutant == Mutant::NoCall(after) {
            return;
        }
        while self.queue.may_call()
            && let Some((claim, who)) = self.queue.call_next(self.joins())
        {
            self.is_called(who, &claim);
        }
    }

    fn is_called(&mut self, who: usize, claim: &Claim<u64>) {
        if self.line.first() != Some(&who) {
            self.wrong = Some("not in the order of arrival (queue-3)");
        }
        self.line.retain(|waiting| *waiting != who);
        self.has(who, claim);
    }

    fn has(&mut self, who: usize, claim: &Claim<u64>) {
        self.callers[who] = match *claim {
            Claim::Hold(counter, token) => {
                if token.counter() != counter || self.over.contains(&counter) {
                    self.wrong = Some("a hand-off outside of the window (queue-4)");
                }
                Caller::Holds(token)
            }
            Claim::Lead => Caller::Asks,
            Claim::Wait | Claim::Busy => unreachable!("nothing here tries, and a waiter waits once"),
        };
    }
}

impl ::model::World for World {
    type Step = String;

    fn steps(&self, found: &mut Vec<(String, Self)>) {
        let mut may = |label: String, act: &dyn Fn(&mut Self)| {
            let mut after = self.clone();
            act(&mut after);
            found.push((label, after));
        };
        for (who, caller) in self.callers.iter().enumerate() {
            let named = |what: &str| format!("{who} ({}) {what}", self.wishes[who].mode);
            match *caller {
                Caller::Outside => may(named("comes"), &|world| world.comes(who)),
                Caller::Waits(id) => may(named("leaves the queue"), &|world| world.leaves_queue(who, id)),
                Caller::Asks => {
                    may(named("is granted"), &|world| world.is_granted(who));
                    may(named("leaves its request"), &|world| world.leaves_request(who));
                    may(named("is refused"), &|world| {
                        world.callers[who] = Caller::Gone;
                        world.queue.not_granted();
                        world.call_next(After::NotGranted);
                    });
                    may(named("is granted too late"), &|world| {
                        world.callers[who] = Caller::Gone;
                        world.counter += 1;
                        world.queue.give_back(world.counter);
                        world.call_next(After::NotGranted);
                    });
                }
                Caller::Holds(token) => may(named("lets go"), &|world| world.lets_go(who, token)),
                Caller::Gone => {}
            }
        }
        for grant in self.queue.grants() {
            let counter = grant.held;
            if !grant.is_held() {
                may(format!("{counter} is confirmed"), &|world| {
                    world.is_confirmed(counter, After::Confirmed)
                });
                continue;
            }
            if !self.over.contains(&counter) {
                may(format!("{counter} comes to the end of its window"), &|world| {
                    world.over.insert(counter);
                });
            }
            may(format!("{counter} is lost"), &|world| world.is_lost(counter));
            may(format!("{counter} is lost with its session"), &|world| {
                world.is_lost(counter);
                world.is_confirmed(counter, After::LostWithItsSession);
            });
        }
    }

    fn broken(&self) -> Option<&'static str> {
        let Self { queue, callers, line, wishes, .. } = self;
        let asking = callers.iter().filter(|caller| **caller == Caller::Asks).count();
        let tokens: Vec<_> = callers.iter().filter_map(Caller::token).collect();
        let holders = |counter| tokens.iter().filter(|token| token.counter() == counter).count();
        let has_company = callers.iter().zip(wishes).any(|(caller, wish)| {
            caller.token().is_some_and(|token| wish.alone && holders(token.counter()) > 1)
        });
        let is_stuck =
            !line.is_empty() && queue.clone().call_next(|held, _| !self.over.contains(held)).is_some();
        let load = queue.load();
        let mut held = queue.grants().filter(|grant| grant.is_held());
        let wrongs = [
            (asking > 1, "two ask the store (queue-1)"),
            (asking != usize::from(queue.acquiring.is_some()), "the request at the store is not known"),
            (queue.acquiring.is_some_and(|mode| !load.admits(mode)), "its own process excludes it (queue-1)"),
            (
                tokens.iter().collect::<BTreeSet<_>>().len() != tokens.len(),
                "a token was given twice (queue-2)",
            ),
            (is_stuck, "it is the turn of the first waiter, and it is not called (queue-3)"),
            (!line.is_empty() && queue.is_idle(), "a waiter will never be called (queue-3)"),
            (queue.grants().any(|grant| grant.index > LIMIT), "a grant passed on too often (queue-4)"),
            (held.any(|grant| usize::from(grant.guards) != holders(grant.held)), "guards are miscounted"),
            (has_company, "a lone holder is joined"),
            (!line.iter().eq(queue.waiters()), "a waiter is forgotten"),
        ];
        self.wrong.or_else(|| wrongs.iter().find(|(is_wrong, _)| *is_wrong).map(|(_, rule)| *rule))
    }
}

impl Caller {
    fn token(&self) -> Option<FencingToken> {
        match self {
            Self::Holds(token) => Some(*token),
            _ => None,
        }
    }
}

/// More states than any of them has.
const ALL: Search = Search::States(1_000_000);

/// All schedules of four callers keep the invariants, whatever they want.
#[test]
fn every_schedule_keeps_the_invariants() {
    for wishes in [
        [READS, WRITES, READS, READS],
        [WRITES, READS, READS, WRITES],
        [READS_ALONE, READS, READS, WRITES],
        [READS_ALONE, some(1, 2), READS, READS],
        [some(1, 2), some(1, 2), some(1, 2), READS],
        [some(1, 2), some(2, 2), some(1, 2), WRITES],
        [some(1, 2), some(1, 3), READS, some(2, 3)],
    ] {
        let Explored { states, all, wrong } = explore(&World::new(wishes), ALL);
        assert!(wrong.is_none(), "{wishes:?}: {}", wrong.unwrap());
        assert!(all && states > 1_000, "{wishes:?}: {states} states");
    }
}

/// Each call is needed, and each rule of joining, of taking over a request, and of what is requested.
#[test]
fn mutants_of_the_queue_are_caught() {
    let mixed = [READS, WRITES, READS, READS];
    let mutants = [
        (Mutant::NoCall(After::Adopted), mixed, "queue-3"),
        (Mutant::NoCall(After::Confirmed), mixed, "queue-3"),
        (Mutant::NoCall(After::NotGranted), mixed, "queue-3"),
        (Mutant::NoCall(After::LostWithItsSession), mixed, "queue-3"),
        (Mutant::NoCall(After::Left), mixed, "queue-3"),
        (Mutant::NoCall(After::HandedOn), [READS_ALONE, some(1, 2), READS, READS], "queue-3"),
        (Mutant::JoinsPastTheQueue, mixed, "passes a waiter"),
        (Mutant::JoinsBeyondTheLimit, [READS; 4], "queue-4"),
        (Mutant::JoinsBeyondTheWindow, [READS, READS, WRITES, READS], "queue-4"),
        (Mutant::InheritsAnyWish, mixed, "did not ask for"),
        (Mutant::AsksForWhatDoesNotFit, mixed, "queue-1"),
    ];
    let row = |(mutant, wishes, rule)| (mutant, World { mutant, ..World::new(wishes) }, ALL, rule);
    assert_caught("local queue", mutants.map(row));
}
