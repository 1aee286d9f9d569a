//! What tasks wait for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Wakes the waiting tasks in the order in which they came, so that a seed decides what follows; tokio's own watch channel
/// wakes them in a random one.
#[derive(Debug, Default)]
pub(super) struct Watched<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T> Watched<T> {
    pub(super) fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        read(&self.value.lock())
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.value.lock());
        self.changed.notify_waiters();
    }

    /// What is found in it, as soon as it is there.
    pub(super) async fn until<R>(&self, mut find: impl FnMut(&T) -> Option<R>) -> R {
        loop {
            // RACE: listen before looking, so that no change is missed.
            let changed = self.changed.notified();
            if let Some(found) = self.read(&mut find) {
                return found;
            }
            changed.await;
        }
    }
}

/// Wakes one task to look again; a wake while it does not wait ends its next wait.
#[derive(Debug, Default)]
pub(super) struct Wake {
    told: AtomicBool,
    waiting: AtomicWaker,
}

impl Wake {
    pub(super) fn tell(&self) {
        self.told.store(true, Ordering::Release);
        self.waiting.wake();
    }

    pub(super) fn poll_told(&self, cx: &mut Context<'_>) -> Poll<()> {
        // RACE: listen before looking, as above.
        self.waiting.register(cx.waker());
        if self.told.swap(false, Ordering::AcqRel) { Poll::Ready(()) } else { Poll::Pending }
    }
}
