//! The state that the two parts of a connection share: whether it has ended.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::task::AtomicWaker;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The state of one connection, which its parts end together.
#[derive(Debug, Default)]
pub(crate) struct ConnectionState {
    is_over: AtomicBool,
    /// The server is a replica.
    is_at_replica: AtomicBool,
    /// Whether messages are passed on: a grant is counted with the base that was read over the connection. For those that are
    /// dropped before, there is `LinkEvent::UpAgain`.
    pub(super) is_admitted: AtomicBool,
    /// The user may not subscribe to the inbox, or not publish to it.
    pub(super) is_deaf: AtomicBool,
    /// Our empty message has come.
    pub(super) heard_itself: Notify,
    over: CancellationToken,
    /// The task of the wire.
    pub(super) task: AtomicWaker,
}

impl ConnectionState {
    /// The connection is not used any more, and brings no answers.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.over.cancel();
        self.task.wake();
    }

    /// The same because the server is a replica.
    pub(super) fn end_at_replica(&self) {
        self.is_at_replica.store(true, Ordering::Relaxed);
        self.end();
    }

    pub(super) fn is_at_replica(&self) -> bool {
        self.is_at_replica.load(Ordering::Relaxed)
    }

    pub(crate) fn is_deaf(&self) -> bool {
        self.is_deaf.load(Ordering::Relaxed)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Ends when the connection does.
    pub(super) async fn over(&self) {
        self.over.cancelled().await;
    }
}
