//! The places with callers, the task, the socket and the server, in every order of steps.

use std::time::Duration;

use ::model::{Search, assert_caught, explore};
use leasehold_core::clock::Moment;

use super::places::{Moved, Outcome, Places, Polled};

/// What is done wrong, if anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Mutant {
    None,
    /// The task is not woken when it takes over.
    TakesOverAsleep,
    /// What the task was told stays true after it has looked.
    StaysTold,
    /// An answer that nobody waits for is taken for the next one's.
    SkipsAPlace,
    /// The bytes are taken by one that does not have the socket.
    TakesOutside,
    /// A caller looks before it stores its waker.
    LooksFirst,
    /// The task does not read again after the driver has run, before it ends what is overdue.
    EndsUnread,
    /// The task ends what is overdue while it can read more.
    EndsWithMore,
    /// A request that began late ends a connection that nothing came over since.
    SilentTooEarly,
    /// The task does not look before it is woken.
    NeverListens,
    /// A caller that goes leaves its request without a driver.
    LeavesUndriven,
    /// A caller takes a waker that was called for one that is still at the socket.
    TrustsACalledWaker,
    /// A reader says that the waker is at the socket after it has read.
    ListensLate,
    /// A waker that is called wakes the driver before it says that it is not at the socket.
    ForgetsLate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Caller {
    New,
    /// Its request has a slot.
    Waits(usize),
    /// It is about to take the socket, or has it.
    Drives(usize),
    Answered,
    Failed,
    Gone,
}

/// Who has the lock of the socket, and what comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Write,
    Read,
    /// Whether there may be more to read.
    HasRead(bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Who {
    Caller(usize),
    Task,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    mutant: Mutant,
    places: Places<usize, u8>,
    callers: Vec<Caller>,
    /// When each has begun.
    begun: Vec<u64>,
    /// The callers that are to be polled.
    called: Vec<bool>,
    /// One that is not polled any more.
    asleep: Option<usize>,
    /// The task: woken, and when it looks by itself.
    woken: bool,
    armed: Option<Moment>,
    is_running: bool,
    /// So many of the answers are unread that had come when the task found a bound reached.
    unread: Option<usize>,
    socket: Option<(Who, Stage)>,
    writing: Vec<u8>,
    is_full: bool,
    /// The peer has a byte of a request, or answers that are not read.
    half: Option<u8>,
    served: Vec<u8>,
    /// Answers that the I/O driver has not seen, and those that it has.
    arrived: Vec<u8>,
    replies: Vec<u8>,
    /// Whom the socket wakes is decided when it does.
    registered: bool,
    /// That is so since the last read.
    listens: bool,
    /// The call of the waker has begun.
    is_called: bool,
    now: u64,
    /// The peer has closed, before all requests.
    is_closed: bool,
    is_over: bool,
    wrong: Option<&'static str>,
}

/// The bound of all requests, and for how long a connection may be silent.
const BOUND: u64 = 2;

impl World {
    fn new(callers: usize, mutant: Mutant) -> Self {
        let patience = if mutant == Mutant::SilentTooEarly { 0 } else { BOUND };
        let mut places = Places::new(Duration::from_nanos(patience));
        if mutant == Mutant::NeverListens {
            places.look();
        }
        Self {
            mutant,
            woken: places.next_look().0,
            places,
            callers: vec![Caller::New; callers],
            begun: vec![0; callers],
            called: vec![false; callers],
            asleep: None,
            armed: None,
            is_running: false,
            unread: None,
            socket: None,
            writing: Vec::new(),
            is_full: false,
            half: None,
            served: Vec::new(),
            arrived: Vec::new(),
            replies: Vec::new(),
            registered: false,
            listens: false,
            is_called: false,
            now: 0,
            is_closed: false,
            is_over: false,
            wrong: None,
        }
    }

    /// With two callers, steps are small: the driver sees answers when it runs, more than one is more than is read at once,
    /// time passes in between, the peer may close.
    fn is_fine(&self) -> bool {
        self.callers.len() < 3
    }

    fn now(&self) -> Moment {
        Moment::from_nanos(self.now)
    }

    fn wake(&mut self, caller: usize) {
        if let Some(called) = self.called.get_mut(caller) {
            *called = true;
        }
    }

    fn tell(&mut self, wakes: bool) {
        self.woken |= wakes;
    }

    fn ask(&mut self, caller: usize) {
        let tag = u8::try_from(caller).unwrap();
        let was_driven = self.places_are_driven_by_a_caller();
        let times = (self.now(), Moment::from_nanos(BOUND));
        self.begun[caller] = self.now;
        let Ok(begun) = self.places.begin(times, |out, _| out.extend([tag, tag | 0x80])) else {
            self.callers[caller] = Caller::Failed;
            return;
        };
        let takes_over = was_driven && !self.places_are_driven_by_a_caller();
        self.tell(begun.wakes && !(takes_over && self.mutant == Mutant::TakesOverAsleep));
        (self.callers[caller], self.called[caller]) = (Caller::Waits(begun.slot), true);
        if self.mutant == Mutant::TakesOutside && self.socket.is_some() {
            self.places.take_out(&mut self.writing);
        }
    }

    fn places_are_driven_by_a_caller(&self) -> bool {
        self.places.clone().ready().is_ok()
    }

    fn poll(&mut self, caller: usize, slot: usize) {
        let waker = if self.mutant == Mutant::LooksFirst { usize::MAX } else { caller };
        self.callers[caller] = match self.places.poll(slot, &waker).0 {
            Polled::Ready(Outcome::Answered(tag)) => {
                if usize::from(tag) != caller {
                    self.wrong = Some("an answer of another request");
                }
                Caller::Answered
            }
            Polled::Ready(Outcome::Overdue | Outcome::Lost) => Caller::Failed,
            Polled::Drives => Caller::Drives(slot),
            Polled::Waits => Caller::Waits(slot),
        };
    }

    fn fire(&mut self) {
        if !std::mem::take(&mut self.registered) {
            return;
        }
        self.is_called = true;
        match self.mutant {
            Mutant::ForgetsLate => self.wake_driver(),
            Mutant::TrustsACalledWaker => {}
            _ => self.listens = false,
        }
    }

    fn wake_driver(&mut self) {
        match self.places.ready() {
            Ok(Some(caller)) => self.wake(caller),
            Ok(None) => {}
            Err(wakes) => self.tell(wakes),
        }
    }

    /// One turn of the one that has the socket; `room` bytes of it are taken by the peer.
    fn turn(&mut self, room: usize) {
        let Some((who, stage)) = self.socket else { return };
        if stage == Stage::Write {
            for _ in 0..room {
                if self.writing.is_empty() {
                    self.places.take_out(&mut self.writing);
                }
                let Some(byte) = self.writing.first().copied() else { break };
                self.writing.remove(0);
                match (self.half.take(), byte) {
                    (None, first) if first < 0x80 => self.half = Some(first),
                    (Some(first), last) if last == first | 0x80 => self.served.push(first),
                    _ => self.wrong = Some("torn bytes"),
                }
            }
            self.is_full = !self.writing.is_empty();
            self.registered |= self.is_full;
            self.socket = Some((who, Stage::Read));
            if let (Who::Caller(caller), true) = (who, self.listens) {
                if !self.registered {
                    self.wrong = Some("trusts a waker that was called");
                }
                self.has_moved(caller, false);
            }
            return;
        }
        if let Stage::HasRead(has_more) = stage {
            self.listens = !has_more && (self.listens || self.mutant == Mutant::ListensLate);
            if let Who::Caller(caller) = who {
                return self.has_moved(caller, has_more);
            }
            (self.socket, self.is_running) = (None, false);
            return self.moved(has_more && self.mutant != Mutant::EndsWithMore);
        }
        (self.registered, self.listens) = (true, self.mutant != Mutant::ListensLate);
        if self.is_closed {
            self.end();
        }
        while !self.replies.is_empty() {
            let tag = self.replies.remove(0);
            self.unread = self.unread.map(|unread| unread.saturating_sub(1));
            match self.places.answer(tag) {
                Ok(None) if self.mutant == Mutant::SkipsAPlace => drop(self.places.answer(tag)),
                Ok(Some((_, Some(caller)))) => self.wake(caller),
                Ok(_) => {}
                Err(_) => self.wrong = Some("an answer to nothing"),
            }
            self.places.heard(1);
            if self.is_fine() {
                break;
            }
        }
        self.socket = Some((who, Stage::HasRead(!self.replies.is_empty())));
    }

    /// A caller has moved bytes, and reads its outcome.
    fn has_moved(&mut self, caller: usize, has_more: bool) {
        self.socket = None;
        let Caller::Drives(slot) = self.callers[caller] else { unreachable!() };
        self.poll(caller, slot);
        if self.callers[caller] == Caller::Drives(slot) {
            self.callers[caller] = Caller::Waits(slot);
        }
        if has_more {
            self.fire();
        }
    }

    /// The task has moved bytes.
    fn moved(&mut self, has_more: bool) {
        let is_due = self.places.next_look().1.is_some_and(|at| at <= self.now());
        if is_due {
            self.unread.get_or_insert(self.arrived.len() + self.replies.len());
        }
        match self.places.moved(self.now(), has_more) {
            Moved::LooksAgain if self.mutant == Mutant::EndsUnread && is_due => self.moved(has_more),
            Moved::LooksAgain => self.see(),
            Moved::Waits => {}
            Moved::Ended(wakers, is_silent) => {
                if self.unread.take().is_some_and(|unread| unread > 0) {
                    self.wrong = Some("ended with an answer unread");
                }
                wakers.into_iter().for_each(|caller| self.wake(caller));
                if is_silent {
                    let asked = |id: usize| !matches!(self.callers[id], Caller::New | Caller::Answered);
                    if !(0..self.callers.len()).any(|id| asked(id) && self.begun[id] + BOUND <= self.now) {
                        self.wrong = Some("silent too early");
                    }
                    self.end();
                }
            }
        }
        let (is_told, armed) = self.places.next_look();
        (self.woken, self.armed) = (self.woken | is_told, armed);
    }

    /// The I/O driver sees the answers that have come.
    fn see(&mut self) {
        if !self.arrived.is_empty() {
            self.replies.append(&mut self.arrived);
            self.fire();
        }
    }

    fn end(&mut self) {
        self.places.end().into_iter().for_each(|caller| self.wake(caller));
        for bytes in [&mut self.writing, &mut self.served, &mut self.arrived, &mut self.replies] {
            bytes.clear();
        }
        (self.is_over, self.is_full, self.half) = (true, false, None);
    }

    fn is_done(&self, caller: usize) -> bool {
        self.asleep == Some(caller) || !matches!(self.callers[caller], Caller::Waits(_) | Caller::Drives(_))
    }
}

impl ::model::World for World {
    /// Its name, and whose it is.
    type Step = (&'static str, usize);

    fn steps(&self, found: &mut Vec<(Self::Step, Self)>) {
        let mut step = |name, id, change: &dyn Fn(&mut Self)| {
            let mut next = self.clone();
            change(&mut next);
            found.push(((name, id), next));
        };
        for (id, caller) in self.callers.iter().enumerate() {
            match *caller {
                // Callers differ only in their order.
                Caller::New if id > 0 && self.callers[id - 1] == Caller::New => {}
                Caller::New => step("asks", id, &|world| world.ask(id)),
                Caller::Waits(slot) => {
                    if self.called[id] && self.asleep != Some(id) {
                        step("polls", id, &|world| {
                            world.called[id] = false;
                            world.poll(id, slot);
                        });
                    }
                    step("leaves", id, &|world| {
                        let (wakes, _) = world.places.leave(slot);
                        world.tell(wakes && world.mutant != Mutant::LeavesUndriven);
                        world.callers[id] = Caller::Gone;
                    });
                    if id == 0 && self.asleep.is_none() {
                        step("sleeps", id, &|world| world.asleep = Some(id));
                    }
                }
                Caller::Drives(_) if self.socket.is_none() => {
                    step("takes the socket", id, &|world| {
                        world.socket = Some((Who::Caller(id), Stage::Write));
                    });
                }
                _ => {}
            }
        }
        let is_due = self.armed.is_some_and(|at| at <= self.now());
        if self.is_over {
            // The task has ended.
        } else if !self.is_running {
            if self.woken || is_due {
                step("the task looks", 0, &|world| {
                    (world.woken, world.is_running) = (false, true);
                    if world.mutant != Mutant::StaysTold {
                        world.places.look();
                    }
                });
            }
        } else if self.socket.is_none() {
            step("the task takes the socket", 0, &|world| world.socket = Some((Who::Task, Stage::Write)));
        }
        if self.socket.is_some() {
            step("all bytes move", 0, &|world| world.turn(usize::MAX));
            if matches!(self.socket, Some((_, Stage::Write))) && !self.is_full && self.half.is_none() {
                step("a byte moves", 0, &|world| world.turn(1));
            }
        }
        if self.is_called {
            step("the waker wakes the driver", 0, &|world| {
                world.is_called = false;
                match world.mutant {
                    Mutant::ForgetsLate => world.listens = false,
                    _ => world.wake_driver(),
                }
            });
        }
        if self.is_full {
            step("there is room", 0, &|world| {
                world.is_full = false;
                world.fire();
            });
        }
        if !self.served.is_empty() {
            step("a request is served", 0, &|world| {
                let tag = world.served.remove(0);
                world.arrived.push(tag);
                if !world.is_fine() {
                    world.see();
                }
            });
        }
        if !self.arrived.is_empty() {
            step("the driver runs", 0, &Self::see);
        }
        if self.now < BOUND {
            step("time passes", 0, &|world| world.now += if world.is_fine() { 1 } else { BOUND });
        }
        if self.is_fine() && !self.is_closed && self.callers.iter().all(|caller| *caller == Caller::New) {
            step("the peer closes", 0, &|world| {
                world.is_closed = true;
                world.fire();
            });
        }
    }

    fn broken(&self) -> Option<&'static str> {
        self.wrong
    }

    /// Nothing is in flight, every caller that is polled knows how its request has ended, and the task waits.
    fn is_at_rest(&self) -> bool {
        let is_idle = self.places.clone().answer(0).is_err();
        (0..self.callers.len()).all(|caller| self.is_done(caller))
            && (is_idle || self.only_sleeps())
            && self.is_closed <= self.is_over
            && (self.is_over || !(self.woken || self.is_running))
    }

    /// Neither new requests, nor callers that go or sleep, nor the time.
    fn goes_by_itself(&self, next: &Self) -> bool {
        let gone = |world: &Self| world.callers.iter().filter(|caller| **caller == Caller::Gone).count();
        let new = |world: &Self| world.callers.iter().filter(|caller| **caller == Caller::New).count();
        (gone(self), new(self), self.asleep, self.now, self.is_closed)
            == (gone(next), new(next), next.asleep, next.now, next.is_closed)
    }
}

impl World {
    /// The only request in flight is that of a caller that is not polled: the task reads at its bound.
    fn only_sleeps(&self) -> bool {
        self.now < BOUND && self.places_are_driven_by_a_caller()
    }
}

/// In every order of steps, each answer goes to its request, no byte is torn, and whatever is in flight ends.
#[test]
fn every_order_of_steps_keeps_the_places() {
    for callers in [2, 3] {
        let explored = explore(&World::new(callers, Mutant::None), Search::ToRest(6_000_000));
        assert!(explored.wrong.is_none(), "{}", explored.wrong.unwrap());
        assert!(explored.all && explored.states > 10_000, "{} states", explored.states);
        println!("{callers} callers: {} states", explored.states);
    }
}

#[test]
fn mutants_of_the_places_are_caught() {
    let rests = "cannot come to rest";
    let mutants = [
        (Mutant::TakesOverAsleep, rests),
        (Mutant::StaysTold, rests),
        (Mutant::SkipsAPlace, "an answer"),
        (Mutant::TakesOutside, "an answer"),
        (Mutant::LooksFirst, rests),
        (Mutant::EndsUnread, "unread"),
        (Mutant::EndsWithMore, "unread"),
        (Mutant::SilentTooEarly, "silent too early"),
        (Mutant::NeverListens, rests),
        (Mutant::LeavesUndriven, rests),
        (Mutant::TrustsACalledWaker, "trusts a waker"),
        (Mutant::ListensLate, "trusts a waker"),
        (Mutant::ForgetsLate, "trusts a waker"),
    ];
    let worlds =
        mutants.map(|(mutant, rule)| (mutant, World::new(2, mutant), Search::ToRest(4_000_000), rule));
    assert_caught("redis wire", worlds);
}
