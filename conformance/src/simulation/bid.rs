//! One acquisition by a task, from asking to letting go, with everything recorded.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::{Clock, Deadline};
use leasehold_core::{Error, LockGuard, LockName, LostReason, Mode, Result};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::history::{Attempt, Outcome, Recorder, What};
use crate::host::HostClock;

/// An acquisition, later a hold.
///
/// Dropped before it is granted, it is cancelled; dropped later, it has let go. So it is to be
/// dropped just before its guard.
pub(super) struct Bid {
    recorder: Recorder,
    clock: HostClock,
    name: LockName,
    attempt: Attempt,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Asking,
    Holding,
    Over,
}

/// Tasks that wait for the loss of a hold.
pub(super) type Listeners = Arc<Mutex<JoinSet<()>>>;

impl Bid {
    pub(super) fn ask(
        recorder: &Recorder,
        clock: &HostClock,
        name: &LockName,
        mode: Mode,
        waits: bool,
    ) -> Self {
        let attempt = recorder.attempt();
        recorder.on(name, What::Invoked { attempt, mode, waits });
        Self {
            recorder: recorder.clone(),
            clock: clock.clone(),
            name: name.clone(),
            attempt,
            stage: Stage::Asking,
        }
    }

    /// It is to hold the lock for that long at most.
    pub(super) fn bounded(&self, span: Duration) {
        self.recorder.on(&self.name, What::Bounded { attempt: self.attempt, span });
    }

    /// It did not get the lock.
    pub(super) fn refused(mut self, reason: String) {
        self.stage = Stage::Over;
        self.recorder.on(&self.name, What::Refused { attempt: self.attempt, reason });
    }

    /// It did not get the lock, or lost it.
    pub(super) fn failed(self, error: &Error) {
        match error.lost_reason() {
            Some(reason) if self.stage != Stage::Asking => {
                let attempt = self.attempt;
                self.recorder.on(&self.name, What::LostTold { attempt, reason });
            }
            _ => self.refused(error.to_string()),
        }
    }

    pub(super) fn granted(&mut self, guard: &LockGuard) {
        self.stage = Stage::Holding;
        let (attempt, token, deadline) = (self.attempt, guard.token(), self.deadline(guard));
        self.recorder.on(&self.name, What::Granted { attempt, token, deadline });
    }

    /// Waits for the loss besides. At most one waits for each guard: which of two tokio wakes first
    /// is not up to a seed.
    pub(super) fn listens(&self, guard: &LockGuard, listeners: &Listeners) {
        let attempt = self.attempt;
        self.recorder.on(&self.name, What::Listens { attempt });
        let (recorder, name, lost) = (self.recorder.clone(), self.name.clone(), guard.lost());
        listeners.lock().spawn(async move {
            let reason = lost.await;
            if reason != LostReason::Released {
                recorder.on(&name, What::LostTold { attempt, reason });
            }
        });
    }

    /// Asks the guard whether it is held.
    pub(super) fn sees(&self, guard: &LockGuard) -> bool {
        let held = guard.ensure_held().is_ok();
        if held {
            let (attempt, deadline) = (self.attempt, self.deadline(guard));
            self.recorder.on(&self.name, What::HeldSeen { attempt, deadline });
        }
        held
    }

    pub(super) fn wrote(&self, guard: &LockGuard, accepted: bool) {
        let (attempt, token) = (self.attempt, guard.token());
        self.recorder.on(&self.name, What::Wrote { attempt, token, accepted });
    }

    pub(super) fn lets_go(&mut self) {
        if self.stage == Stage::Holding {
            self.stage = Stage::Over;
            self.recorder.on(&self.name, What::ReleaseInvoked { attempt: self.attempt });
        }
    }

    pub(super) fn released(&self, answer: &Result<()>) {
        let outcome = match answer {
            Ok(()) => Outcome::Released,
            Err(error) if error.lost_reason().is_some() => Outcome::Lost,
            Err(_) => Outcome::Unknown,
        };
        self.recorder.on(&self.name, What::ReleaseEnded { attempt: self.attempt, outcome });
    }

    fn deadline(&self, guard: &LockGuard) -> Deadline {
        self.clock.truth_of_deadline(Deadline::At(self.clock.now() + guard.remaining()))
    }
}

impl Drop for Bid {
    fn drop(&mut self) {
        self.lets_go();
        if self.stage == Stage::Asking {
            self.recorder.on(&self.name, What::Cancelled { attempt: self.attempt });
        }
    }
}
