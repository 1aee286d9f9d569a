//! One timer for many waiters. Timers of the runtime cost more, and few of these fire.
//!
//! # Invariants
//! - **redis.timer-1** A waiter checks again when its moment is reached: it subscribes before it registers the moment, and
//!   the timer never fires later than the earliest moment that was registered since it fired last.
//!
//! Checked by the tests of its users on real servers.

use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::Env;
use leasehold_core::clock::Moment;
use tokio::sync::Notify;

#[derive(Debug)]
pub(crate) struct Timer {
    env: Env,
    /// When the timer fires, on `Env`'s clock.
    fires_at: AtomicU64,
    /// It is to fire earlier.
    earlier: Notify,
    fired: Notify,
}

/// Without a timer.
const NEVER: u64 = u64::MAX;

impl Timer {
    pub(crate) fn new(env: Env) -> Self {
        Self { env, fires_at: AtomicU64::new(NEVER), earlier: Notify::new(), fired: Notify::new() }
    }

    /// Fires, or returns if it has to fire earlier; a task calls it in a loop.
    pub(crate) async fn watch(&self) {
        let fires_at = self.fires_at.load(Ordering::SeqCst);
        tokio::select! {
            () = self.earlier.notified() => {}
            () = self.env.sleep_until(Moment::from_nanos(fires_at)), if fires_at != NEVER => {
                self.fires_at.store(NEVER, Ordering::SeqCst);
                self.fired.notify_waiters();
            }
        }
    }

    /// That moment has come.
    pub(crate) async fn reached(&self, at: Moment) {
        loop {
            let fired = self.fired.notified();
            self.look_again_at(at);
            fired.await;
            if at <= self.env.now() {
                return;
            }
        }
    }

    fn look_again_at(&self, at: Moment) {
        let at = at.as_nanos();
        if at < self.fires_at.load(Ordering::SeqCst) && at < self.fires_at.fetch_min(at, Ordering::SeqCst) {
            self.earlier.notify_one();
        }
    }
}
