//! A switch that tasks wait for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// On or off; clones are the same switch.
///
/// Wakes waiting tasks in the order in which they came, so that a seed decides what follows;
/// tokio's own watch channel wakes them in a random one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Switch {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    on: AtomicBool,
    turned: Notify,
}

impl Switch {
    pub(crate) fn turn(&self, on: bool) {
        self.shared.on.store(on, Ordering::Relaxed);
        self.shared.turned.notify_waiters();
    }

    pub(crate) fn is_on(&self) -> bool {
        self.shared.on.load(Ordering::Relaxed)
    }

    /// Waits until it is as asked.
    pub(crate) async fn wait_for(&self, on: bool) {
        loop {
            // RACE: listen before looking, so that no turn is missed.
            let turned = self.shared.turned.notified();
            if self.is_on() == on {
                return;
            }
            turned.await;
        }
    }
}
