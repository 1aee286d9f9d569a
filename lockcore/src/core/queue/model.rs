//! Every schedule of a few callers of one name, in all modes: they come, wait, ask the store, hold beside others,
//! let go and leave; the store grants, fails, confirms and loses; budgets run out at any time.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::*;

const LIMIT: u16 = 2;
const READS: Wish = Wish { mode: Mode::SHARED, alone: false };
const READS_ALONE: Wish = Wish { mode: Mode::SHARED, alone: true };
const WRITES: Wish = Wish { mode: Mode::EXCLUSIVE, alone: false };

fn some(weight: u32, capacity: u32) -> Wish {
    Wish { mode: Mode::permits(weight, capacity).unwrap(), alone: false }
}

/// After what nobody is called, or which other mistake is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mistake {
    NoCall(After),
    JoinsPastTheQueue,
    JoinsBeyondTheLimit,
    JoinsBeyondTheWindow,
    InheritsAnyWish,
    AsksForWhatDoesNotFit,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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

/// The queue, whoever has to do with it, and what the model knows besides.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    queue: NameQueue<u64, usize>,
    callers: Vec<Caller>,
    /// Who waits, in order of arrival.
    line: Vec<usize>,
    arrivals: u64,
    counter: u64,
    /// Grants whose window is over.
    over: BTreeSet<u64>,
    wrong: Option<&'static str>,
}

struct Model {
    wishes: Vec<Wish>,
    mistake: Option<Mistake>,
}

impl Model {
    fn next(&self, world: &World) -> Vec<(String, World)> {
        let mut next = Vec::new();
        for (who, caller) in world.callers.iter().enumerate() {
            let mut step = |what: &str, act: &dyn Fn(&mut World)| {
                let mut after = world.clone();
                act(&mut after);
                next.push((format!("{who} ({}) {what}", self.wishes[who].mode), after));
            };
            match *caller {
                Caller::Outside => step("comes", &|world| self.comes(world, who)),
                Caller::Waits(id) => step("leaves the queue", &|world| {
                    if world.queue.leave(id) != Some(who) {
                        world.wrong = Some("who waits is not in the queue");
                    }
                    world.line.retain(|waiting| *waiting != who);
                    world.callers[who] = Caller::Gone;
                    self.call_next(world, After::Left);
                }),
                Caller::Asks => {
                    step("is granted", &|world| self.is_granted(world, who));
                    step("leaves what it asks for", &|world| self.leaves_request(world, who));
                    step("is refused", &|world| {
                        world.callers[who] = Caller::Gone;
                        world.queue.not_granted();
                        self.call_next(world, After::NotGranted);
                    });
                    step("is granted what nobody wants", &|world| {
                        world.callers[who] = Caller::Gone;
                        world.counter += 1;
                        world.queue.give_back(world.counter);
                        self.call_next(world, After::NotGranted);
                    });
                }
                Caller::Holds(token) => step("lets go", &|world| self.lets_go(world, who, token)),
                Caller::Gone => {}
            }
        }
        for grant in world.queue.grants() {
            let counter = grant.held;
            let mut step = |what: &str, act: &dyn Fn(&mut World)| {
                let mut after = world.clone();
                act(&mut after);
                next.push((format!("{counter} {what}"), after));
            };
            if !grant.is_held() {
                step("is confirmed", &|world| {
                    world.queue.released(|held| *held == counter);
                    self.call_next(world, After::Confirmed);
                });
                continue;
            }
            if !world.over.contains(&counter) {
                step("may not pass on any more", &|world| {
                    world.over.insert(counter);
                });
            }
            step("is lost", &|world| world.loses(counter));
            step("is lost with its session", &|world| {
                world.loses(counter);
                world.queue.released(|held| *held == counter);
                self.call_next(world, After::LostWithItsSession);
            });
        }
        next
    }

    fn joins(&self, over: BTreeSet<u64>) -> impl FnMut(&u64, Moment) -> bool + use<> {
        let ignores = self.mistake == Some(Mistake::JoinsBeyondTheWindow);
        move |counter, _| ignores || !over.contains(counter)
    }

    fn comes(&self, world: &mut World, who: usize) {
        let wish = self.wishes[who];
        let joins = self.joins(world.over.clone());
        let reply = match self.mistake {
            Some(Mistake::JoinsPastTheQueue) => match world.queue.join(wish, joins) {
                Some((held, token)) => Claim::Hold(held, token),
                None => world.queue.claim(wish, |_, _| false),
            },
            Some(Mistake::AsksForWhatDoesNotFit) if world.queue.acquiring.is_none() => {
                world.queue.acquiring = Some(wish.mode);
                Claim::Lead
            }
            _ => world.queue.claim(wish, joins),
        };
        match reply {
            Claim::Hold(counter, token) => {
                if !world.line.is_empty() || world.callers.contains(&Caller::Asks) {
                    world.wrong = Some("a newcomer passes somebody who waits");
                }
                world.holds(who, counter, token);
            }
            Claim::Lead => world.callers[who] = Caller::Asks,
            Claim::Wait => {
                world.arrivals += 1;
                let id = WaiterId(world.arrivals);
                world.queue.enqueue(id, wish, who);
                world.line.push(who);
                world.callers[who] = Caller::Waits(id);
            }
            Claim::Busy => unreachable!("only a `try` is refused"),
        }
    }

    fn is_granted(&self, world: &mut World, who: usize) {
        world.counter += 1;
        let beyond = self.mistake == Some(Mistake::JoinsBeyondTheLimit);
        let limit = if beyond { LIMIT + 1 } else { LIMIT };
        let budget = HandoffBudget { limit, window: Duration::from_nanos(1) };
        let (wish, now) = (self.wishes[who], Moment::from_nanos(0));
        let token = world.queue.adopt(world.counter, wish, now, budget).expect("it grows");
        world.callers[who] = Caller::Holds(token);
        self.call_next(world, After::Adopted);
    }

    fn leaves_request(&self, world: &mut World, who: usize) {
        world.callers[who] = Caller::Gone;
        let heir = if self.mistake == Some(Mistake::InheritsAnyWish) {
            world.queue.pop()
        } else {
            world.queue.inherit(self.wishes[who])
        };
        match heir {
            Some(heir) => {
                if self.wishes[heir] != self.wishes[who] {
                    world.wrong = Some("somebody goes on with what it did not ask for");
                }
                world.is_called(heir);
                world.callers[heir] = Caller::Asks;
            }
            None => {
                world.queue.not_granted();
                self.call_next(world, After::NotGranted);
            }
        }
    }

    fn lets_go(&self, world: &mut World, who: usize, token: FencingToken) {
        world.callers[who] = Caller::Gone;
        let counter = token.counter();
        let in_window = !world.over.contains(&counter);
        match world.queue.release(counter, Moment::from_nanos(0), || in_window) {
            (Released::Stays, Some((Claim::Hold(counter, token), heir))) => {
                if world.callers.contains(&Caller::Asks) {
                    world.wrong = Some("a waiter passes somebody who asks the store");
                }
                world.is_called(heir);
                world.holds(heir, counter, token);
                self.call_next(world, After::HandedOn);
            }
            (Released::NotHeld, _) => world.wrong = Some("what is held is not known"),
            (Released::Stays | Released::Store, _) => {}
        }
    }

    fn call_next(&self, world: &mut World, after: After) {
        if self.mistake == Some(Mistake::NoCall(after)) {
            return;
        }
        while world.queue.may_call()
            && let Some(call) = world.queue.call_next(self.joins(world.over.clone()))
        {
            match call {
                (Claim::Hold(counter, token), who) => {
                    world.is_called(who);
                    world.holds(who, counter, token);
                }
                (_, who) => {
                    world.is_called(who);
                    world.callers[who] = Caller::Asks;
                }
            }
        }
    }

    /// What is wrong with it, if anything is.
    fn judge(&self, world: &World) -> Option<&'static str> {
        let World { queue, callers, line, .. } = world;
        let asking: Vec<_> = (0..callers.len()).filter(|who| callers[*who] == Caller::Asks).collect();
        let tokens: Vec<_> = callers.iter().filter_map(|caller| caller.token()).collect();
        let holders = |counter| tokens.iter().filter(|token| token.counter() == counter).count();
        let has_company = (0..callers.len()).any(|who| {
            let token = callers[who].token().filter(|_| self.wishes[who].alone);
            token.is_some_and(|token| holders(token.counter()) > 1)
        });
        let load = queue.load();
        let mut front = queue.clone();
        let first = line.first().map(|who| self.wishes[*who]);
        let is_stuck =
            first.is_some_and(|_| front.call_next(|counter, _| !world.over.contains(counter)).is_some());
        let held = || queue.grants().filter(|grant| grant.is_held());
        let wrongs = [
            (asking.len() > 1, "two ask the store (queue-1)"),
            (asking.len() != usize::from(queue.acquiring.is_some()), "nobody asks the store, or unknown"),
            (queue.acquiring.is_some_and(|mode| !load.admits(mode)), "its own process excludes it (queue-1)"),
            (
                tokens.iter().collect::<BTreeSet<_>>().len() != tokens.len(),
                "a token was given twice (queue-2)",
            ),
            (is_stuck, "it is the turn of the first who waits, and nobody calls it (queue-3)"),
            (first.is_some() && queue.is_idle(), "somebody waits, and nobody will call it (queue-3)"),
            (queue.grants().any(|grant| grant.index > LIMIT), "a grant passed on too often (queue-4)"),
            (held().any(|grant| usize::from(grant.guards) != holders(grant.held)), "guards are miscounted"),
            (has_company, "who wants no other has one"),
            (!line.iter().eq(queue.waiters()), "who waits is forgotten"),
        ];
        world.wrong.or_else(|| wrongs.iter().find(|(is_wrong, _)| *is_wrong).map(|(_, what)| *what))
    }

    /// Looks at every schedule: how many states there are, or what goes wrong on the shortest way to it.
    fn explore(wishes: &[Wish], mistake: Option<Mistake>) -> Result<usize, String> {
        let model = Self { wishes: wishes.to_vec(), mistake };
        let first = World {
            queue: NameQueue::new(),
            callers: vec![Caller::Outside; wishes.len()],
            line: Vec::new(),
            arrivals: 0,
            counter: 0,
            over: BTreeSet::new(),
            wrong: None,
        };
        let mut from = HashMap::from([(first.clone(), None)]);
        let mut todo = VecDeque::from([first]);
        while let Some(world) = todo.pop_front() {
            if let Some(wrong) = model.judge(&world) {
                let mut steps = Vec::new();
                let mut at = &world;
                while let Some((before, step)) = &from[at] {
                    steps.insert(0, String::clone(step));
                    at = before;
                }
                return Err(format!("{wrong}: {}", steps.join("; ")));
            }
            for (step, next) in model.next(&world) {
                if !from.contains_key(&next) {
                    from.insert(next.clone(), Some((world.clone(), step)));
                    todo.push_back(next);
                }
            }
        }
        Ok(from.len())
    }
}

impl World {
    fn holds(&mut self, who: usize, counter: u64, token: FencingToken) {
        if token.counter() != counter || self.over.contains(&counter) {
            self.wrong = Some("what may not pass on has passed on (queue-4)");
        }
        self.callers[who] = Caller::Holds(token);
    }

    fn is_called(&mut self, who: usize) {
        if self.line.first() != Some(&who) {
            self.wrong = Some("not in the order of arrival (queue-3)");
        }
        self.line.retain(|waiting| *waiting != who);
    }

    fn loses(&mut self, counter: u64) {
        if !self.queue.lose(|held| *held == counter) {
            self.wrong = Some("what is held is not known");
        }
        for caller in &mut self.callers {
            if caller.token().is_some_and(|token| token.counter() == counter) {
                *caller = Caller::Gone;
            }
        }
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
        let states = Model::explore(&wishes, None);
        assert!(states.as_ref().is_ok_and(|states| *states > 1_000), "{wishes:?}: {states:?}");
    }
}

/// Whatever changes the queue may make it somebody's turn: forgotten at any one place, somebody waits for ever.
#[test]
fn no_call_may_be_forgotten() {
    use After::{Adopted, Confirmed, HandedOn, Left, LostWithItsSession, NotGranted};
    let joined = [READS, WRITES, READS, READS];
    for after in [Adopted, Confirmed, NotGranted, LostWithItsSession, Left] {
        let found = Model::explore(&joined, Some(Mistake::NoCall(after))).unwrap_err();
        assert!(found.contains("queue-3"), "{after:?}: {found}");
    }
    let passed = [READS_ALONE, some(1, 2), READS, READS];
    let found = Model::explore(&passed, Some(Mistake::NoCall(HandedOn))).unwrap_err();
    assert!(found.contains("queue-3"), "{found}");
}

/// Who joins, who goes on with a request, and what is asked for: each rule of it is needed.
#[test]
fn mistakes_are_found() {
    for (wishes, mistake, word) in [
        ([READS, WRITES, READS, READS], Mistake::JoinsPastTheQueue, "passes somebody"),
        ([READS; 4], Mistake::JoinsBeyondTheLimit, "queue-4"),
        ([READS, READS, WRITES, READS], Mistake::JoinsBeyondTheWindow, "queue-4"),
        ([READS, WRITES, READS, READS], Mistake::InheritsAnyWish, "did not ask for"),
        ([READS, WRITES, READS, READS], Mistake::AsksForWhatDoesNotFit, "queue-1"),
    ] {
        let found = Model::explore(&wishes, Some(mistake)).unwrap_err();
        assert!(found.contains(word), "{mistake:?}: {found}");
    }
}
