//! The way from a store's session to the core.

use futures_util::stream::{self, BoxStream, StreamExt};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::backend::StoreEvent;

/// The sender of a session's events; clones send to the same core.
#[derive(Clone, Debug)]
pub struct Events {
    sender: mpsc::UnboundedSender<StoreEvent>,
}

/// Events that were sent and not yet received; see [`LockBackend::events`](crate::backend::LockBackend::events).
#[derive(Debug)]
pub struct Inbox {
    receiver: Mutex<Option<mpsc::UnboundedReceiver<StoreEvent>>>,
}

impl Events {
    /// Both ends. The stream ends with the last clone of the sender.
    pub fn new() -> (Self, Inbox) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self { sender }, Inbox { receiver: Mutex::new(Some(receiver)) })
    }

    /// Sends an event to the core, unless the core has stopped listening: then the session is over.
    pub fn tell(&self, event: StoreEvent) {
        let _over = self.sender.send(event);
    }

    /// Whether the core listens, or is still to begin with it.
    pub fn is_heard(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Returns a sender that does not keep the stream from ending.
    pub fn downgrade(&self) -> WeakEvents {
        WeakEvents { sender: self.sender.downgrade() }
    }
}

/// [`Events`] that do not keep the stream from ending.
#[derive(Clone, Debug)]
pub struct WeakEvents {
    sender: mpsc::WeakUnboundedSender<StoreEvent>,
}

impl WeakEvents {
    /// Returns the sender, while another clone of it exists.
    pub fn upgrade(&self) -> Option<Events> {
        self.sender.upgrade().map(|sender| Events { sender })
    }
}

impl Inbox {
    /// Returns the events from the beginning; a second call returns a stream that ends.
    pub fn stream(&self) -> BoxStream<'static, StoreEvent> {
        match self.receiver.lock().take() {
            Some(receiver) => {
                stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)))
                    .boxed()
            }
            None => stream::empty().boxed(),
        }
    }
}
