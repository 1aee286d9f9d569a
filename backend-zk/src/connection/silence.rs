//! A watch without a waiter: it only remembers whether it has reported a change.
//!
//! # Invariants
//! - **zk.silence-1** When the answer to a request is there, every event that the server has sent before is noted. The client
//!   library delivers events and answers in the order of arrival, and each event is noted while it is delivered.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::task::AtomicWaker;

/// A watch, until it reports a change.
pub(crate) struct Silence {
    bell: Arc<Bell>,
    /// Dropped, it reports nothing any more.
    _watch: BoxFuture<'static, ()>,
}

/// The waker of a watch: rung when that has reported a change, or can report none any more.
#[derive(Default)]
pub(super) struct Bell {
    rung: AtomicBool,
    caller: AtomicWaker,
}

impl Silence {
    /// Of a future that ends when the watch reports, unless that `is_over` already.
    pub(crate) fn new(watch: impl Future<Output = ()> + Send + 'static, is_over: bool) -> Self {
        let (bell, mut watch) = (Arc::<Bell>::default(), watch.boxed());
        let waker = Waker::from(Arc::clone(&bell));
        // Polled once: from then on a report, or the end of the sender, wakes it.
        if is_over || watch.poll_unpin(&mut Context::from_waker(&waker)).is_ready() {
            waker.wake_by_ref();
        }
        Self { bell, _watch: watch }
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.bell.rung.load(Ordering::Acquire)
    }
}

impl Bell {
    /// Whether it has rung since the last call. From here on it wakes `caller`.
    pub(super) fn has_rung(&self, caller: &Waker) -> bool {
        self.caller.register(caller);
        self.rung.swap(false, Ordering::AcqRel)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.caller.wake();
    }
}

impl fmt::Debug for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Silence").field("is_broken", &self.is_broken()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::{pending, ready};
    use tokio::sync::oneshot;

    use super::*;

    /// A message is known at once, also without a task that waits for it; and so is the end of the sender.
    #[test]
    fn message_ends_the_silence_at_once() {
        for tells in [true, false] {
            let (teller, hears) = oneshot::channel();
            let silence = Silence::new(hears.map(drop), false);
            assert!(!silence.is_broken());
            if tells {
                teller.send(()).unwrap()
            } else {
                drop(teller)
            }
            assert!(silence.is_broken());
        }
        assert!(Silence::new(ready(()), false).is_broken());
        assert!(Silence::new(pending(), true).is_broken());
    }
}
