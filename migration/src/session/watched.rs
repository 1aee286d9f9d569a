//! Values that tasks wait for.

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

    /// Waits until `find` finds its value.
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
