//! The requests of one connection: they share a socket, on which answers come in the order of requests.
//!
//! A request that is alone in flight is written and read by its caller, without another task. From the second one on, the
//! task of the wire does that until nothing is in flight. Requests that are packed meanwhile leave together.
//!
//! | file | has |
//! |---|---|
//! | `places` | whose answer is next, and who moves the bytes; pure |
//! | `stream` | the socket |
//! | `answers` | answers from bytes |
//! | `request` | calls of scripts, which the server may not have |
//!
//! The locks are taken in the order `io`, `state`. The socket is called without `state`, and wakers without either. One
//! waker stands for the wire at the socket, whichever caller or task polled it last: it wakes the driver of that moment.
//!
//! # Invariants
//! - **redis.wire-8** While `is_listening` is set and `io` is free, the waker of the last read is at the socket, or its call has
//!   begun and clears `is_listening` before it reads the driver. So a caller that finds it set after its waker is in its slot
//!   is woken for its answer, and need not read. Checked by `model`.

mod answers;
#[cfg(test)]
mod model;
mod places;
mod request;
mod stream;
#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::future::FutureExt;
use leasehold_core::clock::Moment;
use leasehold_core::{Env, Error, ErrorKind, Result};
use parking_lot::Mutex;
use redis::{RedisError, Value};
use tokio::sync::Notify;

pub(super) use self::places::MOST_PLACES;
use self::places::{Moved, Outcome, PackedRequest, Places, Polled, Refused, Unasked};
use self::stream::Io;
use super::client::Stream;
use super::state::ConnectionState;
use crate::error;

pub(crate) use self::request::{Refusals, Texts};

/// The requests of one connection, and their socket.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(super) env: Env,
    connection: Arc<ConnectionState>,
    io: Mutex<Io>,
    state: Mutex<State>,
    /// There may be room, or the end has come.
    has_room: Notify,
    /// The last read has left the waker at the socket, which has not called it since (redis.wire-8).
    is_listening: AtomicBool,
}

#[derive(Debug)]
struct State {
    places: Places<Waker, Value>,
    texts: Texts,
    /// Why the wire has ended.
    why: Option<Error>,
}

impl Wire {
    /// Requests over `stream`, until `connection` is over. Its task ends with it.
    pub(crate) fn start(env: Env, stream: Box<dyn Stream>, connection: Arc<ConnectionState>) -> Arc<Self> {
        // A request has nine tenths of `op_timeout`, unless it had to wait for a connection.
        let patience = env.timing().op_timeout / 2;
        let state = State { places: Places::new(patience), texts: Texts::default(), why: None };
        let (io, state, has_room) = (Mutex::new(Io::new(stream)), Mutex::new(state), Notify::new());
        let is_listening = AtomicBool::new(false);
        let wire = Arc::new(Self { env, connection, io, state, has_room, is_listening });
        let task = WireTask(Arc::clone(&wire));
        wire.env.spawn(task.run());
        wire
    }

    /// Sends a request and waits for its answer, which may be an error of the server.
    ///
    /// # Errors
    ///
    /// - Not applied: the connection is over, or `give_up_at` was reached before the request was sent.
    /// - Unknown: the connection ends, or `give_up_at` is reached, before the answer. The connection ends, too, if it was
    ///   silent (redis.wire-7): a peer that vanished sends no word of it.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        give_up_at: Moment,
        mut pack: impl FnMut(&mut Vec<u8>, &mut Texts, u64) + Send,
    ) -> Result<Value> {
        loop {
            let begun = self.whole(|_| {
                let state = &mut *self.state.lock();
                let times = (self.now_or_over()?, give_up_at);
                state.places.has_room().then(|| state.begin(times, &mut pack)).transpose()
            });
            match begun? {
                Some(begun) => return self.answer_to(&begun).await,
                None => self.room(give_up_at).await?,
            }
        }
    }

    /// Sends so many requests in one piece; the answers in order.
    ///
    /// # Errors
    ///
    /// As [`Wire::ask`], for the first of them that has no answer.
    pub(crate) async fn ask_all(
        self: &Arc<Self>,
        give_up_at: Moment,
        count: usize,
        mut pack: impl FnMut(usize, &mut Vec<u8>, &mut Texts, u64) + Send,
    ) -> Result<Vec<Value>> {
        self.room(give_up_at).await?;
        let all = self.whole(|_| {
            let state = &mut *self.state.lock();
            // Read once, so that either all are refused or none is.
            let times = (self.now_or_over()?, give_up_at);
            let begin = |index| state.begin(times, &mut |out, texts, number| pack(index, out, texts, number));
            (0..count).map(begin).collect::<Result<Vec<_>>>()
        })?;
        let asks: Vec<_> = all.iter().map(|begun| self.answer_to(begun)).collect();
        let mut answers = Vec::with_capacity(count);
        for ask in asks {
            answers.push(ask.await?);
        }
        Ok(answers)
    }

    /// Now; refused if the connection is over, which its task may not have seen yet.
    fn now_or_over(&self) -> Result<Moment> {
        if self.connection.is_over() { Err(super::connected::ended()) } else { Ok(self.env.now()) }
    }

    /// Waits until one more request may be packed.
    async fn room(&self, give_up_at: Moment) -> Result<()> {
        let has_room = async {
            loop {
                let mut may_have = pin!(self.has_room.notified());
                may_have.as_mut().enable();
                if self.state.lock().places.has_room() {
                    return;
                }
                may_have.await;
            }
        };
        tokio::select! {
            biased;
            () = has_room => Ok(()),
            () = async { self.env.sleep_until(give_up_at).await } => {
                let full = "timed out before the request was sent: too many requests wait for the server";
                Err(Error::not_applied(ErrorKind::Unavailable, full))
            }
        }
    }

    /// Runs `step`, and wakes whom it names. A panic ends the wire: places and bytes may not fit together then.
    fn whole<T>(&self, step: impl FnOnce(&mut Vec<Waker>) -> T) -> T {
        let mut wakers = Vec::new();
        let done = catch_unwind(AssertUnwindSafe(|| step(&mut wakers)));
        wakers.into_iter().for_each(Waker::wake);
        done.unwrap_or_else(|panic| {
            self.end(lost());
            resume_unwind(panic)
        })
    }

    /// The answer to a request that was packed.
    fn answer_to<'w>(self: &'w Arc<Self>, begun: &PackedRequest) -> PendingAnswer<'w> {
        // Before the rest, which may find that the wire has ended.
        let ask = PendingAnswer { wire: self, slot: Some(begun.slot) };
        if begun.wakes {
            self.connection.task.wake();
        }
        let written = self.whole(|_| {
            let mut io = begun.writes.then(|| self.io.try_lock())??;
            Some(self.at_socket(|cx| io.write(cx, |empty| self.take_out(empty))))
        });
        self.end_if(written.transpose().map(|_| false).map_err(RedisError::from));
        ask
    }

    fn take_out(&self, empty: &mut Vec<u8>) {
        self.state.lock().places.take_out(empty);
    }

    /// Writes and reads what the socket takes and has; whether it may have more. The caller of `own` looks at its slot after
    /// that.
    fn move_bytes(self: &Arc<Self>, own: Option<usize>) -> bool {
        let mut has_room = false;
        let moved = self.whole(|wakers| {
            let io = &mut *self.io.lock();
            self.at_socket(|cx| self.write_and_read(io, cx, own, wakers, &mut has_room))
        });
        if has_room {
            self.has_room.notify_waiters();
        }
        self.end_if(moved)
    }

    fn write_and_read(
        &self,
        io: &mut Io,
        cx: &mut Context<'_>,
        own: Option<usize>,
        wakers: &mut Vec<Waker>,
        has_room: &mut bool,
    ) -> std::result::Result<bool, RedisError> {
        io.write(cx, |empty| self.take_out(empty))?;
        // A caller that has just sent its request finds no answer yet, and is woken for it.
        if own.is_some() && self.is_listening.load(Ordering::SeqCst) {
            return Ok(false);
        }
        let (mut read, mut is_empty) = (0, false);
        while read < READ_AT_ONCE && !is_empty {
            let found = |answer| {
                let answered = self.state.lock().places.answer(answer).map_err(unasked)?;
                wakers.extend(answered.filter(|(slot, _)| Some(*slot) != own).and_then(|(_, waker)| waker));
                Ok(())
            };
            // RACE: set before the waker is there. The socket may call it at once, and what that clears must stay cleared.
            self.is_listening.store(true, Ordering::SeqCst);
            match io.read(cx, found)? {
                Poll::Ready(count) => read += count,
                Poll::Pending => is_empty = true,
            }
        }
        if !is_empty {
            // The socket has not got the waker: it had bytes at the last read.
            self.is_listening.store(false, Ordering::SeqCst);
        }
        *has_room = read > 0 && self.state.lock().places.heard(read);
        Ok(!is_empty)
    }

    /// Calls the socket as the wire, whatever budget the task that polls has used up.
    fn at_socket<T>(self: &Arc<Self>, mut call: impl FnMut(&mut Context<'_>) -> T) -> T {
        let waker = Waker::from(Arc::clone(self));
        let called = tokio::task::unconstrained(poll_fn(|cx| Poll::Ready(call(cx))));
        let mut called = pin!(called);
        loop {
            // It is always ready.
            if let Poll::Ready(done) = called.as_mut().poll(&mut Context::from_waker(&waker)) {
                return done;
            }
        }
    }

    fn end_if(self: &Arc<Self>, moved: std::result::Result<bool, RedisError>) -> bool {
        moved.unwrap_or_else(|error| {
            self.end(error::of(error));
            false
        })
    }

    /// Ends the connection, and all requests in flight.
    pub(crate) fn end(&self, why: Error) {
        let wakers = {
            let state = &mut *self.state.lock();
            state.why.get_or_insert(why);
            state.places.end()
        };
        self.connection.end();
        self.has_room.notify_waiters();
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl State {
    fn begin(
        &mut self,
        times: (Moment, Moment),
        pack: &mut impl FnMut(&mut Vec<u8>, &mut Texts, u64),
    ) -> Result<PackedRequest> {
        let Self { places, texts, .. } = self;
        let begun = places.begin(times, |out, number| pack(out, texts, number));
        begun.map_err(|refused| match refused {
            Refused::Over => super::connected::ended(),
            Refused::Late => {
                Error::not_applied(ErrorKind::Unavailable, "timed out before the request was sent")
            }
        })
    }
}

/// The socket is ready.
impl Wake for Wire {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // RACE: cleared before the driver is read. A caller that stores its waker after that finds it cleared, and reads.
        self.is_listening.store(false, Ordering::SeqCst);
        let driver = self.state.lock().places.ready();
        match driver {
            Ok(caller) => caller.into_iter().for_each(Waker::wake),
            Err(true) => self.connection.task.wake(),
            Err(false) => {}
        }
    }
}

/// The answer to one request. Dropping it drops the answer: the request is sent all the same.
struct PendingAnswer<'w> {
    wire: &'w Arc<Wire>,
    slot: Option<usize>,
}

impl Future for PendingAnswer<'_> {
    type Output = Result<Value>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (wire, Some(slot)) = (self.wire, self.slot) else { return Poll::Pending };
        let (polled, old) = wire.state.lock().places.poll(slot, cx.waker());
        let (outcome, has_more) = match polled {
            Polled::Ready(outcome) => (Some(outcome), false),
            Polled::Waits => (None, false),
            Polled::Drives => {
                let has_more = wire.move_bytes(Some(slot));
                (wire.state.lock().places.outcome(slot), has_more)
            }
        };
        // Before wakers are called or dropped: if one panics, the slot may be another request's by then.
        self.slot = self.slot.filter(|_| outcome.is_none());
        if has_more {
            // The caller, or the task if the caller has its answer.
            wire.wake_by_ref();
        }
        drop(old);
        let Some(outcome) = outcome else { return Poll::Pending };
        Poll::Ready(match outcome {
            Outcome::Answered(answer) => Ok(answer),
            Outcome::Overdue => Err(overdue()),
            Outcome::Lost => Err(wire.state.lock().why.clone().unwrap_or_else(lost)),
        })
    }
}

impl Drop for PendingAnswer<'_> {
    fn drop(&mut self) {
        let Some(slot) = self.slot else { return };
        let (wakes, _waker) = self.wire.state.lock().places.leave(slot);
        if wakes {
            self.wire.connection.task.wake();
        }
    }
}

/// The task of a wire. Dropped, also by a runtime that ends, it ends the wire.
struct WireTask(Arc<Wire>);

impl WireTask {
    async fn run(self) {
        let Self(wire) = &self;
        let mut timer = None;
        loop {
            poll_fn(|cx| {
                // redis.wire-4
                wire.connection.task.register(cx.waker());
                let (is_told, looks_at) = wire.state.lock().places.next_look();
                if is_told || wire.connection.is_over() {
                    return Poll::Ready(());
                }
                timer = timer.take().filter(|(at, _)| Some(*at) == looks_at);
                let Some(at) = looks_at else { return Poll::Pending };
                let is_due = timer.get_or_insert_with(|| (at, wire.env.sleep_until(at))).1.poll_unpin(cx);
                if is_due.is_ready() {
                    timer = None;
                }
                is_due
            })
            .await;
            if wire.connection.is_over() {
                return;
            }
            if wire.state.lock().places.lets_others_pack() {
                tokio::task::yield_now().await;
            }
            wire.state.lock().places.look();
            let has_more = wire.move_bytes(None);
            let moved = wire.state.lock().places.moved(wire.env.now(), has_more);
            match moved {
                Moved::Waits => {}
                Moved::LooksAgain => tokio::task::yield_now().await,
                Moved::Ended(wakers, is_silent) => {
                    wakers.into_iter().for_each(Waker::wake);
                    if is_silent {
                        wire.end(lost());
                    }
                    tokio::task::yield_now().await;
                }
            }
        }
    }
}

impl Drop for WireTask {
    fn drop(&mut self) {
        self.0.end(lost());
        self.0.io.lock().close();
    }
}

pub(super) fn lost() -> Error {
    error::unanswered("the connection was lost before the answer")
}

pub(super) fn overdue() -> Error {
    error::unanswered("the server did not answer in time")
}

fn unasked(_: Unasked) -> RedisError {
    (redis::ErrorKind::Parse, "it has answered what was not asked").into()
}

/// The most bytes that are read before others have their turn.
const READ_AT_ONCE: usize = 256 << 10;
