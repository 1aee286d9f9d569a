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

    /// The next pause, which is used up: between half of it and all, so that many who failed together do not
    /// come back together.
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

    /// Begins anew: a try has succeeded.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timing;

    /// They double up to the longest, and begin anew when told so.
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
