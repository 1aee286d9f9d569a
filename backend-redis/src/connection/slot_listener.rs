//! The second socket of a connection to a server of a cluster: the channels of its slots.
//!
//! It is made when the first of them is subscribed to, and ends with the connection. A server confirms and ends subscriptions by
//! messages of their own, which count; an answer only says why there is no subscription.

use std::sync::Arc;

use leasehold_core::Result;
use leasehold_core::clock::Moment;
use redis::aio::{AsyncPushSender, MultiplexedConnection, SendError};
use redis::{AsyncConnectionConfig, PushInfo, PushKind, RedisResult, Value};

use super::state::ConnectionState;
use super::{Connected, Hears, LinkEvent};
use crate::cluster::HashSlot;
use crate::error;

impl Connected {
    /// Subscribes to the channel of a slot; `hears` learns of the confirmation, of messages and of the end.
    ///
    /// # Errors
    ///
    /// As of a request.
    pub(crate) async fn hear_slot(
        &self,
        channel: &str,
        hears: &Arc<dyn Hears>,
        give_up_at: Moment,
    ) -> Result<()> {
        let subscribing = async {
            let mut listener = self.0.slots.get_or_try_init(|| self.listen_to_slots(hears)).await?.clone();
            redis::cmd("SSUBSCRIBE").arg(channel).query_async::<Value>(&mut listener).await.map(drop)
        };
        self.0.bounded(give_up_at, subscribing).await?.map_err(error::of)
    }

    async fn listen_to_slots(&self, hears: &Arc<dyn Hears>) -> RedisResult<MultiplexedConnection> {
        let state = Arc::clone(&self.0.state);
        let receiver =
            SlotReceiver { hears: Arc::clone(hears), connection: self.id(), state: Arc::clone(&state) };
        let options = AsyncConnectionConfig::new().set_response_timeout(None).set_push_sender(receiver);
        let (stream, _) = self.0.client.dial(None).await?;
        let (listener, driver) = self.0.client.connect(stream, options).await?;
        self.0.wire.env.spawn(async move {
            tokio::select! {
                biased;
                () = state.over() => {}
                () = driver => {}
            }
        });
        Ok(listener)
    }
}

/// Passes on what comes over one connection, in the task that reads it.
struct SlotReceiver {
    hears: Arc<dyn Hears>,
    connection: u64,
    state: Arc<ConnectionState>,
}

impl AsyncPushSender for SlotReceiver {
    fn send(&self, PushInfo { kind, data }: PushInfo) -> std::result::Result<(), SendError> {
        let mut data = data.into_iter();
        let Some(Value::BulkString(channel)) = data.next() else { return Ok(()) };
        let heard = |is_heard| {
            let (slot, connection) = (HashSlot::of(&channel), self.connection);
            LinkEvent::Slot { slot, connection, is_heard }
        };
        match (kind, data.next()) {
            (PushKind::SMessage, Some(Value::BulkString(payload))) => {
                self.hears.hear(LinkEvent::SlotMessage(payload, Arc::clone(&self.state)));
            }
            (PushKind::SSubscribe, _) => self.hears.hear(heard(true)),
            (PushKind::SUnsubscribe, _) => self.hears.hear(heard(false)),
            _ => {}
        }
        Ok(())
    }
}

/// A connection whose messages do not come ends (redis.connection-1).
impl Drop for SlotReceiver {
    fn drop(&mut self) {
        self.state.end();
    }
}
