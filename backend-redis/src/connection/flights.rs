//! Requests of one connection that wait for their answers: one timer for all of them, and one end.
//!
//! # Invariants
//! - **redis.flights-1** A waiter checks again when its bound is reached (redis.timer-1), or when the connection is given
//!   up: it subscribes before it checks for either.
//!
//! Checked by the tests below.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::timer::Timer;
use leasehold_core::clock::Moment;
use leasehold_core::{Env, Result};

use crate::error;

/// What waits on one connection.
#[derive(Debug)]
pub(crate) struct Flights {
    given_up: AtomicBool,
    /// Whether messages are passed on: a grant is counted with the base that was read over the connection. For those that are
    /// dropped before, there is `LinkEvent::UpAgain`.
    pub(super) admitted: AtomicBool,
    /// A bound is reached, or the connection is given up.
    timer: Timer,
    /// How many answers were read.
    answers: AtomicU64,
}

impl Flights {
    pub(crate) fn new(env: Env, admitted: bool) -> Self {
        let (given_up, admitted) = (AtomicBool::new(false), AtomicBool::new(admitted));
        Self { given_up, admitted, timer: Timer::new(env), answers: AtomicU64::new(0) }
    }

    /// The connection is not used any more, and brings no answers.
    pub(crate) fn give_up(&self) {
        self.given_up.store(true, Ordering::SeqCst);
        self.timer.all_look();
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::SeqCst)
    }

    /// Wakes those whose bounds are reached, until the connection is given up.
    pub(super) async fn watch(&self) {
        while !self.is_given_up() {
            self.timer.watch().await;
        }
    }

    /// Until the answer, the end of the connection, or `give_up_at`; then the connection is given up
    /// too, if it was silent since the request was sent: a peer that vanished sends no word of it.
    pub(super) async fn bounded<T>(
        &self,
        give_up_at: Moment,
        mut answer: Pin<&mut impl Future<Output = Result<T>>>,
    ) -> Result<T> {
        let answered = self.answers.load(Ordering::Relaxed);
        loop {
            let fired = self.timer.fired();
            if self.is_given_up() {
                return Err(error::unanswered("the connection was lost before the answer"));
            }
            self.timer.look_again_at(give_up_at);
            tokio::select! {
                biased;
                answer = &mut answer => {
                    self.answers.fetch_add(1, Ordering::Relaxed);
                    return answer;
                }
                () = fired => {}
            }
            if give_up_at <= self.timer.env.now() && !self.is_given_up() {
                if self.answers.load(Ordering::Relaxed) == answered {
                    self.give_up();
                }
                return Err(error::unanswered("the server did not answer in time"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::pin::pin;
    use std::sync::Arc;
    use std::time::Duration;

    use futures_util::FutureExt;
    use leasehold_core::Timing;
    use leasehold_core::clock::ManualClock;
    use testbed::{BOUND, within};

    use super::*;

    /// Of a connection whose clock the test moves on.
    fn flights() -> (Arc<Flights>, ManualClock) {
        let clock = ManualClock::new();
        let env = Env::new(Timing::for_ttl(Timing::DEFAULT_TTL)).unwrap().with_clock(Arc::new(clock.clone()));
        let flights = Arc::new(Flights::new(env, true));
        let watching = Arc::clone(&flights);
        flights.timer.env.spawn(async move { watching.watch().await });
        (flights, clock)
    }

    fn begin(flights: &Arc<Flights>, seconds: u64) -> tokio::task::JoinHandle<String> {
        let (flights, at) = (Arc::clone(flights), flights.timer.env.now() + Duration::from_secs(seconds));
        #[expect(clippy::disallowed_methods, reason = "a test's own")]
        tokio::spawn(async move { flights.bounded::<()>(at, pin!(pending())).await.unwrap_err().to_string() })
    }

    async fn ended(flight: tokio::task::JoinHandle<String>) -> String {
        within(BOUND, "its bound is reached", flight).await.unwrap()
    }

    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    /// Each is overdue at its own bound, in whatever order they were begun; the first that is gives up a
    /// connection that was silent, and with it the others.
    #[tokio::test]
    async fn each_is_overdue_at_its_own_bound() {
        let (flights, clock) = flights();
        let (late, early) = (begin(&flights, 9), begin(&flights, 3));
        settle().await;
        clock.advance(Duration::from_secs(2));
        settle().await;
        assert!(!late.is_finished() && !early.is_finished() && !flights.is_given_up());
        clock.advance(Duration::from_secs(1));
        assert!(ended(early).await.starts_with("the server did not answer in time"));
        assert!(ended(late).await.starts_with("the connection was lost before the answer"));
        assert!(flights.is_given_up());
    }

    /// A reply shows that the connection is alive: the other requests wait on, each for its own time.
    #[tokio::test]
    async fn a_connection_that_answers_is_kept() {
        let (flights, clock) = flights();
        let (early, late) = (begin(&flights, 3), begin(&flights, 9));
        settle().await;
        flights.bounded(clock_in(&flights, 60), pin!(ready(Ok(())))).await.unwrap();
        clock.advance(Duration::from_secs(3));
        assert!(ended(early).await.starts_with("the server did not answer in time"));
        settle().await;
        assert!(!late.is_finished() && !flights.is_given_up());
        clock.advance(Duration::from_secs(6));
        ended(late).await;
        // Nothing waits: the next one sets the timer again.
        let next = begin(&flights, 1);
        settle().await;
        clock.advance(Duration::from_secs(1));
        ended(next).await;
        assert!(flights.is_given_up());
        let refused = flights.bounded::<()>(clock_in(&flights, 60), pin!(pending())).now_or_never();
        assert!(refused.is_some_and(|answer| answer.is_err()), "nothing is asked of it any more");
    }

    fn clock_in(flights: &Flights, seconds: u64) -> Moment {
        flights.timer.env.now() + Duration::from_secs(seconds)
    }
}
