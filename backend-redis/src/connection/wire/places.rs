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
//! - **redis.wire-5** A bound ends a request after the task has read all that came before the bound: the task reads, lets the
//!   I/O driver run, and reads again. A runtime that was blocked, or a caller that is not polled, has left the answer unread.
//!   A peer that sends without end delays that by `patience`.
//! - **redis.wire-7** A bound ends the connection only if no byte came since its request began, and the request began at least
//!   `patience` before, whether or not its caller still waits. Otherwise the request ends alone, and its place takes the
//!   answer that comes later.
//!
//! Checked by `model`, in every order of steps.

use std::collections::VecDeque;
use std::time::Duration;

use leasehold_core::clock::Moment;

/// The places of requests, with wakers of type `W` and answers of type `A`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Places<W, A> {
    slots: Vec<SlotState<W, A>>,
    free: Vec<usize>,
    /// The requests without an answer, in the order of their bytes.
    order: VecDeque<Place>,
    driver: Driver,
    out: Vec<u8>,
    /// The task was woken, and has not looked since.
    is_told: bool,
    begun: u64,
    /// How many bytes have come.
    heard: u64,
    /// For how long a connection that brings no byte may be alive.
    patience: Duration,
    /// When the task has to look without being woken.
    looks_at: Option<Moment>,
    /// The task has found a bound reached at that moment, and reads once more.
    due_at: Option<Moment>,
    /// A caller found no room, and waits for it.
    is_crowded: bool,
    is_over: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Driver {
    Nobody,
    /// The caller of the request in that slot, which is alone in flight.
    Caller(usize),
    Task,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    /// `None` for one that is not waited for.
    slot: Option<usize>,
    begun_at: Moment,
    give_up_at: Moment,
    /// How many bytes had come when it began.
    heard: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum SlotState<W, A> {
    Free,
    Waiting(Waiter<W>),
    Ended(Outcome<A>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiter<W> {
    number: u64,
    waker: Option<W>,
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

/// Why a request was not packed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The connection has ended.
    Over,
    /// Its bound was reached before.
    Late,
}

/// A request that was packed.
#[derive(Debug)]
pub(super) struct PackedRequest {
    pub(super) slot: usize,
    /// The task is to be woken.
    pub(super) wakes: bool,
    /// So much is to be sent that the caller writes it, if the socket is free.
    pub(super) writes: bool,
}

/// The next step of a caller that polls its request.
#[derive(Debug)]
pub(super) enum Polled<A> {
    Ready(Outcome<A>),
    /// Writes and reads.
    Drives,
    /// Is woken.
    Waits,
}

/// The consequences of a reply that the task has read.
#[derive(Debug)]
pub(super) enum Moved<W> {
    /// The task waits for its next look.
    Waits,
    /// The task lets others and the I/O driver run, and looks again.
    LooksAgain,
    /// Bounds were reached: the callers to wake, and whether the connection is silent.
    Ended(Vec<W>, bool),
}

/// An answer that belongs to no request.
#[derive(Debug)]
pub(super) struct Unasked;

impl<W: Clone, A> Places<W, A> {
    /// Without requests. The task is to look once, so that the end of the peer wakes it.
    pub(super) const fn new(patience: Duration) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            order: VecDeque::new(),
            driver: Driver::Nobody,
            out: Vec::new(),
            is_told: true,
            begun: 0,
            heard: 0,
            patience,
            looks_at: None,
            due_at: None,
            is_crowded: false,
            is_over: false,
        }
    }

    /// Whether one more may be packed.
    pub(super) fn has_room(&mut self) -> bool {
        let has_room = self.order.len() < MOST_PLACES && self.out.len() < MOST_BYTES;
        self.is_crowded |= !has_room;
        has_room
    }

    /// Gives the next place to the request that `pack` appends, which gets its number.
    pub(super) fn begin(
        &mut self,
        (now, give_up_at): (Moment, Moment),
        pack: impl FnOnce(&mut Vec<u8>, u64),
    ) -> Result<PackedRequest, Refused> {
        if self.is_over {
            return Err(Refused::Over);
        }
        if give_up_at <= now {
            return Err(Refused::Late);
        }
        let number = self.begun;
        // What a panic leaves of a request is the last that is sent.
        self.is_over = true;
        pack(&mut self.out, number);
        self.is_over = false;
        self.begun += 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(SlotState::Free);
            self.slots.len() - 1
        });
        self.slots[slot] = SlotState::Waiting(Waiter { number, waker: None });
        self.order.push_back(Place { slot: Some(slot), begun_at: now, give_up_at, heard: self.heard });
        let is_earlier = self.looks_at.is_none_or(|at| give_up_at < at);
        if is_earlier {
            self.looks_at = Some(give_up_at);
        }
        let is_alone = self.driver == Driver::Nobody;
        self.driver = if is_alone { Driver::Caller(slot) } else { Driver::Task };
        let wakes = (is_earlier || !is_alone) && self.tell();
        Ok(PackedRequest { slot, wakes, writes: !is_alone && self.out.len() >= WRITTEN_AT_ONCE })
    }

    /// The caller of `slot` looks, and is woken by `waker` from now on; the waker that it had is to be dropped without the lock.
    /// The slot is no longer its own when this is ready.
    pub(super) fn poll(&mut self, slot: usize, waker: &W) -> (Polled<A>, Option<W>) {
        if let Some(outcome) = self.outcome(slot) {
            return (Polled::Ready(outcome), None);
        }
        let SlotState::Waiting(waiter) = &mut self.slots[slot] else {
            unreachable!("a caller has its slot until it receives the outcome of its request")
        };
        let old = waiter.waker.replace(waker.clone());
        let drives = self.driver == Driver::Caller(slot);
        (if drives { Polled::Drives } else { Polled::Waits }, old)
    }

    /// Takes the outcome of `slot` if it has ended, which is not the caller's own after that; else its waker stays.
    pub(super) fn outcome(&mut self, slot: usize) -> Option<Outcome<A>> {
        if !matches!(self.slots[slot], SlotState::Ended(_)) {
            return None;
        }
        let ended = std::mem::replace(&mut self.slots[slot], SlotState::Free);
        self.release(slot);
        if let SlotState::Ended(outcome) = ended { Some(outcome) } else { None }
    }

    /// The caller of `slot` goes: whether the task is to be woken, and the waker that it had.
    pub(super) fn leave(&mut self, slot: usize) -> (bool, Option<W>) {
        let left = std::mem::replace(&mut self.slots[slot], SlotState::Free);
        self.release(slot);
        let SlotState::Waiting(waiter) = left else { return (false, None) };
        let first = self.begun - self.order.len() as u64;
        (self.give_up((waiter.number - first) as usize, slot), waiter.waker)
    }

    fn release(&mut self, slot: usize) {
        self.free.push(slot);
        if self.free.len() == self.slots.len() && self.slots.len() > KEPT_PLACES {
            (self.slots, self.free) = (Vec::new(), Vec::new());
        }
    }

    /// Keeps the place of a request that is not waited for any more; whether the task is to be woken.
    fn give_up(&mut self, place: usize, slot: usize) -> bool {
        self.order[place].slot = None;
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
        let slot = self.order.pop_front().ok_or(Unasked)?.slot;
        if self.order.is_empty() {
            self.driver = Driver::Nobody;
        }
        let Some(slot) = slot else { return Ok(None) };
        Ok(Some((slot, self.end_one(slot, Outcome::Answered(answer)))))
    }

    fn end_one(&mut self, slot: usize, outcome: Outcome<A>) -> Option<W> {
        match std::mem::replace(&mut self.slots[slot], SlotState::Ended(outcome)) {
            SlotState::Waiting(waiter) => waiter.waker,
            SlotState::Free | SlotState::Ended(_) => None,
        }
    }

    /// So many bytes have come, and their answers were taken: whether to tell callers that wait for room.
    pub(super) fn heard(&mut self, bytes: usize) -> bool {
        self.heard += bytes as u64;
        std::mem::take(&mut self.is_crowded) && self.has_room()
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

    /// The task has moved bytes, at `now`; `has_more` if the socket may have more to read.
    pub(super) fn moved(&mut self, now: Moment, has_more: bool) -> Moved<W> {
        let is_due = self.looks_at.is_some_and(|at| at <= now);
        let is_endless = self.due_at.is_some_and(|at| at + self.patience < now);
        if (has_more && !is_endless) || (is_due && self.due_at.is_none()) {
            if is_due {
                self.due_at.get_or_insert(now);
            }
            self.is_told = true;
            return Moved::LooksAgain;
        }
        self.is_told |= has_more;
        self.due_at.take().map_or(Moved::Waits, |at| self.end_overdue(at))
    }

    /// Ends the requests whose bounds were reached at `now`.
    fn end_overdue(&mut self, now: Moment) -> Moved<W> {
        let (mut wakers, mut is_silent, mut looks_at) = (Vec::new(), false, None);
        for place in 0..self.order.len() {
            let Place { slot, begun_at, give_up_at, heard } = self.order[place];
            // redis.wire-7
            let silent_at = (heard == self.heard).then(|| give_up_at.max(begun_at + self.patience));
            let next = match slot {
                Some(_) if now < give_up_at => Some(give_up_at),
                Some(slot) => {
                    self.give_up(place, slot);
                    wakers.extend(self.end_one(slot, Outcome::Overdue));
                    silent_at
                }
                None => silent_at,
            };
            is_silent |= silent_at.is_some_and(|at| at <= now);
            looks_at = looks_at.into_iter().chain(next).min();
        }
        self.looks_at = looks_at;
        Moved::Ended(wakers, is_silent)
    }

    /// Ends all, and whatever would begin.
    pub(super) fn end(&mut self) -> Vec<W> {
        self.is_over = true;
        self.driver = Driver::Nobody;
        self.out = Vec::new();
        let waiting: Vec<_> =
            std::mem::take(&mut self.order).into_iter().filter_map(|place| place.slot).collect();
        waiting.into_iter().filter_map(|slot| self.end_one(slot, Outcome::Lost)).collect()
    }

    /// The socket can be read or written: the caller to wake, or whether to wake the task.
    pub(super) fn ready(&mut self) -> Result<Option<W>, bool> {
        match self.driver {
            Driver::Caller(slot) => match &self.slots[slot] {
                SlotState::Waiting(waiter) => Ok(waiter.waker.clone()),
                SlotState::Free | SlotState::Ended(_) => Ok(None),
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
pub(in crate::connection) const MOST_PLACES: usize = 4096;
/// No more are kept when nothing is in flight.
const KEPT_PLACES: usize = 128;
/// More bytes do not wait to be sent.
const MOST_BYTES: usize = 1 << 20;
/// With so many bytes to send, the caller that packed the last ones writes: the server begins while others still pack.
const WRITTEN_AT_ONCE: usize = 4096;
/// With so many in flight, the task lets others run first: they pack what it then writes in one go.
const MANY: usize = 16;
