//! The requests of one connection in flight: which one the next answer belongs to, who moves the bytes, and the bytes that
//! are not sent yet.
//!
//! Pure: it knows neither socket nor clock. Each step returns whom to wake.
//!
//! # Invariants
//! - **redis.wire-1** Answers belong to requests in the order in which those were packed; a caller that has gone keeps its
//!   place in that order.
//! - **redis.wire-2** Each byte leaves once, in the order of the places: [`Places::take_out`] is called under the lock of the
//!   socket, when all that was taken before is written.
//! - **redis.wire-3** What is in flight has a driver. A request that is alone is driven by its caller, in its own poll. With
//!   the second one, or when its caller goes or its bound is reached, the task drives, until nothing is in flight. So a
//!   future that its owner does not poll delays no other request.
//! - **redis.wire-4** What happens after a caller or the task has looked wakes it: a waker is stored before the look, and the
//!   task is woken once for all that happens until it looks again.
//! - **redis.wire-5** The task looks at the earliest bound, and reads before it calls the connection silent: the answer may
//!   lie unread because its caller is not polled.
//!
//! Checked by `model`, in every order of steps.

use std::collections::VecDeque;

use leasehold_core::clock::Moment;

/// The places of requests, with wakers of type `W` and answers of type `A`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Places<W, A> {
    slots: Vec<Slot<W, A>>,
    free: Vec<usize>,
    /// The slots of the requests without an answer, in the order of their bytes; `None` for one that is not waited for.
    order: VecDeque<Option<usize>>,
    driver: Driver,
    out: Vec<u8>,
    /// The task was woken, and has not looked since.
    is_told: bool,
    begun: u64,
    answers: u64,
    /// When the task has to look without being woken.
    looks_at: Option<Moment>,
    /// Callers that wait for room.
    crowd: Vec<W>,
    is_over: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Driver {
    Nobody,
    /// The caller of the request in that slot, which is alone in flight.
    Caller(usize),
    Task,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Slot<W, A> {
    Free,
    Waiting(Waiter<W>),
    Ended(Outcome<A>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiter<W> {
    number: u64,
    waker: Option<W>,
    give_up_at: Moment,
    /// How many answers had come when it began.
    answers: u64,
}

/// How a request has ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Outcome<A> {
    Answered(A),
    /// Its bound was reached.
    Overdue,
    /// The connection has ended before the answer.
    Lost,
}

/// A request that was packed.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) slot: usize,
    /// The task is to be woken.
    pub(super) wakes: bool,
    /// So much is to be sent that the caller writes it, if the socket is free.
    pub(super) writes: bool,
}

/// What a caller that polls its request does next.
#[derive(Debug)]
pub(super) enum Polled<A> {
    Ready(Outcome<A>),
    /// Writes and reads.
    Drives,
    /// Is woken.
    Waits,
}

/// An answer that belongs to no request.
#[derive(Debug)]
pub(super) struct Unasked;

impl<W: Clone, A> Places<W, A> {
    pub(super) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            order: VecDeque::new(),
            driver: Driver::Nobody,
            out: Vec::new(),
            is_told: false,
            begun: 0,
            answers: 0,
            looks_at: None,
            crowd: Vec::new(),
            is_over: false,
        }
    }

    /// Whether one more may be packed.
    pub(super) fn has_room(&self) -> bool {
        self.order.len() < MOST_PLACES && self.out.len() < MOST_BYTES
    }

    /// Wakes the caller when there may be room, or at the end.
    pub(super) fn wait_for_room(&mut self, waker: W) {
        self.crowd.push(waker);
    }

    /// Gives the next place to the request that `pack` appends, which gets its number; `None` at the end.
    pub(super) fn begin(
        &mut self,
        give_up_at: Moment,
        pack: impl FnOnce(&mut Vec<u8>, u64),
    ) -> Option<Begun> {
        if self.is_over {
            return None;
        }
        let number = self.begun;
        self.begun += 1;
        pack(&mut self.out, number);
        let waiter = Waiter { number, waker: None, give_up_at, answers: self.answers };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::Free);
            self.slots.len() - 1
        });
        self.slots[slot] = Slot::Waiting(waiter);
        self.order.push_back(Some(slot));
        let is_earlier = self.looks_at.is_none_or(|at| give_up_at < at);
        if is_earlier {
            self.looks_at = Some(give_up_at);
        }
        let is_alone = self.driver == Driver::Nobody;
        self.driver = if is_alone { Driver::Caller(slot) } else { Driver::Task };
        let wakes = (is_earlier || !is_alone) && self.tell();
        Some(Begun { slot, wakes, writes: !is_alone && self.out.len() >= WRITTEN_AT_ONCE })
    }

    /// The caller of `slot` looks. The slot is no longer its own when this is ready.
    pub(super) fn poll(&mut self, slot: usize, waker: &W) -> Polled<A> {
        match std::mem::replace(&mut self.slots[slot], Slot::Free) {
            Slot::Waiting(mut waiter) => {
                waiter.waker = Some(waker.clone());
                self.slots[slot] = Slot::Waiting(waiter);
                if self.driver == Driver::Caller(slot) { Polled::Drives } else { Polled::Waits }
            }
            Slot::Ended(outcome) => {
                self.release(slot);
                Polled::Ready(outcome)
            }
            Slot::Free => unreachable!("a caller has its slot until it is told how its request has ended"),
        }
    }

    /// The caller of `slot` goes; whether the task is to be woken.
    pub(super) fn leave(&mut self, slot: usize) -> bool {
        let left = std::mem::replace(&mut self.slots[slot], Slot::Free);
        self.release(slot);
        let Slot::Waiting(waiter) = left else { return false };
        self.give_up(waiter.number, slot)
    }

    fn release(&mut self, slot: usize) {
        self.free.push(slot);
        if self.free.len() == self.slots.len() && self.slots.len() > KEPT_PLACES {
            (self.slots, self.free) = (Vec::new(), Vec::new());
        }
    }

    /// Keeps the place of a request that is not waited for any more; whether the task is to be woken.
    fn give_up(&mut self, number: u64, slot: usize) -> bool {
        let first = self.begun - self.order.len() as u64;
        self.order[(number - first) as usize] = None;
        if self.driver == Driver::Caller(slot) {
            self.driver = Driver::Task;
            return self.tell();
        }
        false
    }

    /// Moves what is to be sent into `empty`, under the lock of the socket.
    pub(super) fn take_out(&mut self, empty: &mut Vec<u8>) {
        std::mem::swap(&mut self.out, empty);
    }

    /// The next answer has come: the slot that it belongs to, and the caller to wake, if it is waited for.
    pub(super) fn answer(&mut self, answer: A) -> Result<Option<(usize, Option<W>)>, Unasked> {
        let slot = self.order.pop_front().ok_or(Unasked)?;
        self.answers += 1;
        if self.order.is_empty() {
            self.driver = Driver::Nobody;
        }
        let Some(slot) = slot else { return Ok(None) };
        Ok(Some((slot, self.end_one(slot, Outcome::Answered(answer)))))
    }

    fn end_one(&mut self, slot: usize, outcome: Outcome<A>) -> Option<W> {
        match std::mem::replace(&mut self.slots[slot], Slot::Ended(outcome)) {
            Slot::Waiting(waiter) => waiter.waker,
            Slot::Free | Slot::Ended(_) => None,
        }
    }

    /// The callers to wake because there is room.
    pub(super) fn take_crowd(&mut self) -> Vec<W> {
        if self.has_room() || self.is_over { std::mem::take(&mut self.crowd) } else { Vec::new() }
    }

    /// Whether the task lets others run before it looks.
    pub(super) fn lets_others_pack(&self) -> bool {
        !self.out.is_empty() && self.order.len() >= MANY
    }

    /// The task looks, and moves bytes after that.
    pub(super) fn look(&mut self) {
        self.is_told = false;
    }

    /// Whether the task looks now, and when it has to if not. It registers its waker before it asks.
    pub(super) fn next_look(&self) -> (bool, Option<Moment>) {
        (self.is_told, self.looks_at)
    }

    /// Ends the requests whose bounds are reached, after the task has read: whom to wake, and whether the connection was
    /// silent since one of them began.
    pub(super) fn end_overdue(&mut self, now: Moment) -> (Vec<W>, bool) {
        let (mut wakers, mut is_silent) = (Vec::new(), false);
        self.looks_at = None;
        for slot in self.order.iter().flatten().copied().collect::<Vec<_>>() {
            let Slot::Waiting(Waiter { number, give_up_at, answers, .. }) = self.slots[slot] else {
                continue;
            };
            if now < give_up_at {
                self.looks_at = Some(self.looks_at.map_or(give_up_at, |at| at.min(give_up_at)));
                continue;
            }
            is_silent |= answers == self.answers;
            self.give_up(number, slot);
            wakers.extend(self.end_one(slot, Outcome::Overdue));
        }
        (wakers, is_silent)
    }

    /// Ends all, and whatever would begin.
    pub(super) fn end(&mut self) -> Vec<W> {
        self.is_over = true;
        self.driver = Driver::Nobody;
        self.out = Vec::new();
        let waiting: Vec<_> = std::mem::take(&mut self.order).into_iter().flatten().collect();
        let mut wakers: Vec<_> =
            waiting.into_iter().filter_map(|slot| self.end_one(slot, Outcome::Lost)).collect();
        wakers.append(&mut self.crowd);
        wakers
    }

    /// The socket can be read or written: the caller to wake, or whether to wake the task.
    pub(super) fn ready(&mut self) -> Result<Option<W>, bool> {
        match self.driver {
            Driver::Caller(slot) => match &self.slots[slot] {
                Slot::Waiting(waiter) => Ok(waiter.waker.clone()),
                Slot::Free | Slot::Ended(_) => Ok(None),
            },
            // Nothing is in flight: the peer has closed, or says what nobody has asked.
            Driver::Task | Driver::Nobody => Err(self.tell()),
        }
    }

    /// Whether the task is to be woken for what has happened.
    fn tell(&mut self) -> bool {
        !std::mem::replace(&mut self.is_told, true)
    }
}

/// More are not in flight at a time.
const MOST_PLACES: usize = 4096;
/// No more are kept when nothing is in flight.
const KEPT_PLACES: usize = 128;
/// More bytes do not wait to be sent.
const MOST_BYTES: usize = 1 << 20;
/// So many bytes are written by whoever packs them: the server begins while others still pack.
const WRITTEN_AT_ONCE: usize = 4096;
/// With so many in flight, the task lets others run first: they pack what it then writes in one go.
const MANY: usize = 16;
