//! Pauses between tries: each twice as long as the one before it, up to a longest.

use std::time::Duration;

use crate::backend::env::Env;

/// How long to wait before the next try.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    next: Duration,
    longest: Duration,
}

impl Backoff {
    /// Pauses that begin at `first` and end at `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, next: first, longest }
    }

    /// Pauses between requests that failed: from a thirty-second of a request's bound to all of it.
    pub fn of_requests(env: &Env) -> Self {
        let bound = env.timing().op_timeout;
        Self::new(bound / 32, bound)
    }

    /// Pauses between waits that ended without the lock: up to four times as long as a request may take. A server that answers
    /// none in time gets fewer requests than it could answer.
    pub fn of_waits(env: &Env) -> Self {
        let bound = env.timing().op_timeout;
        Self::new(bound / 32, bound * 4)
    }

    /// Notes how long the last try lasted. A try that lasted for a whole lease has worked, so the pauses begin anew. Requests
    /// that time out take less.
    pub fn went_on(&mut self, span: Duration, env: &Env) {
        if env.timing().ttl <= span {
            self.reset();
        }
    }

    /// Returns the next pause and uses it up: between half of it and all, so that clients that failed at the same time
    /// do not return at the same time.
    pub fn next(&mut self, env: &Env) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        env.jittered(pause)
    }

    /// Waits for the next pause.
    ///
    /// # Cancel safety
    ///
    /// The pause is used up.
    pub async fn pause(&mut self, env: &Env) {
        let pause = self.next(env);
        env.sleep(pause).await;
    }

    /// Begins anew after a try that succeeded.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timing;

    /// Each request that is not answered makes the next pause longer; a wait for a whole lease makes it short.
    #[tokio::test]
    async fn time_outs_do_not_shorten_pauses() {
        let env = Env::new(Timing::for_ttl(Timing::DEFAULT_TTL)).unwrap();
        let (mut backoff, bound) = (Backoff::of_waits(&env), env.timing().op_timeout);
        for twice in [0, 1, 2, 3, 4, 5, 6, 7, 7] {
            backoff.went_on(bound * 4, &env);
            let (pause, whole) = (backoff.next(&env), bound / 32 * (1 << twice));
            assert!((whole / 2..=whole).contains(&pause), "{pause:?} of {whole:?}");
        }
        backoff.went_on(Timing::DEFAULT_TTL, &env);
        assert!(backoff.next(&env) <= bound / 32);
    }

    /// They double up to the longest, and begin anew after a reset.
    #[tokio::test]
    async fn pauses_grow_to_a_bound() {
        let env = Env::new(Timing::for_ttl(Timing::DEFAULT_TTL)).unwrap();
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(50));
        for _ in 0..2 {
            for millis in [10, 20, 40, 50, 50] {
                let (pause, whole) = (backoff.next(&env), Duration::from_millis(millis));
                assert!((whole / 2..=whole).contains(&pause), "{pause:?} of {whole:?}");
            }
            backoff.reset();
        }
    }
}
