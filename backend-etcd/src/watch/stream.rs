//! The task behind the watches: opens streams, reads them, and passes their reports on.

use std::collections::VecDeque;
use std::sync::Arc;

use etcd_client::{
    GetOptions, WatchFilterType, WatchOptions, WatchRequestSender, WatchResponse, WatchStream,
};
use leasehold_core::{ErrorKind, Result};
use tokio::sync::mpsc;

use super::{Order, Watch, WatchEvent, Watches};
use crate::connection::backoff;
use crate::error;
use crate::keys::Of;
use crate::protocol::{Change, WatchId};

/// Why a stream has ended.
enum Ended {
    Broken,
    /// The server refuses a watch: the token of the stream may have expired, or the right is missing.
    Refused(WatchId),
    /// The first reply is about a watch of another id: this is not etcd, but a proxy such as `etcd grpc-proxy`, which
    /// renews leases by itself, too.
    Foreign,
}

impl Watches {
    /// Serves the watches, on one stream after the other.
    pub(super) async fn run(self: Arc<Self>, mut orders: mpsc::UnboundedReceiver<Order>) {
        let mut pauses = backoff(&self.env);
        loop {
            // All watches are opened below, those of the orders among them.
            while orders.try_recv().is_ok() {}
            let ids = self.table.lock().renew_all(self.env.now());
            if ids.is_empty() {
                match orders.recv().await {
                    Some(_) => continue,
                    None => return,
                }
            }
            let begun_at = self.env.now();
            let served = self.serve(ids, &mut orders).await;
            // A server that ends every stream at once, or opens none, gets requests at growing intervals.
            if served.is_ok() && self.env.now().since(begun_at) > self.env.timing().op_timeout {
                pauses.reset();
            }
            match served {
                Ok(Ended::Broken) => {}
                Ok(Ended::Refused(id)) => self.look_into(id).await,
                Ok(Ended::Foreign) => drop(self.begun.set(Err(error::unsupported_proxy()))),
                Err(error) => {
                    tracing::debug!(error = ?format!("{error:#}"), "cannot open the watch stream")
                }
            }
            pauses.pause(&self.env).await;
        }
    }

    /// Reads the keys of a refused watch. A plain request makes the client crate fetch a new token when the old one has
    /// expired; opening a stream does not. If the read is refused, too, the watch is removed: it would end every stream.
    async fn look_into(&self, id: WatchId) {
        let Some(Watch { range, .. }) = self.watch(id) else {
            return;
        };
        // The whole range: a user may have the right to a part.
        let mut one = GetOptions::new().with_keys_only().with_limit(1);
        if let Some(end) = &range.end {
            one = one.with_range(end.to_vec());
        }
        match self.endpoints.get(range.key.to_vec(), one).await {
            Err(error) if *error.kind() == ErrorKind::Denied => {
                let mut table = self.table.lock();
                table.remove(&range);
                table.tell(&range, |told, _| told.is_refused = true);
                (self.on_event)(&range, WatchEvent::Refused);
                let _ = self.begun.set(Err(error::cut("the watch stream")));
            }
            Err(error) => {
                tracing::debug!(error = ?format!("{error:#}"), "cannot read the keys of a refused watch")
            }
            Ok(_) => {}
        }
    }

    /// Opens a stream with the watches `ids`, and reads it until it ends.
    async fn serve(&self, ids: Vec<WatchId>, orders: &mut mpsc::UnboundedReceiver<Order>) -> Result<Ended> {
        let mut ids = ids.into_iter();
        let Some((first, watch)) = ids.find_map(|id| Some((id, self.watch(id)?))) else {
            return Ok(Ended::Broken);
        };
        let link = self.endpoints.link().await?;
        let (bound, mut client) = (self.endpoints.bound, link.client.watch_client());
        let opening = client.watch(watch.range.key.to_vec(), Some(options(first, &watch)));
        let Some(opened) = self.env.within(bound, opening).await else {
            self.endpoints.failed(link.generation);
            return Err(error::silent(bound));
        };
        let (mut sender, mut stream) = opened.map(WatchStream::split).map_err(|error| {
            if error::is_about_the_member(&error) {
                self.endpoints.failed(link.generation);
            }
            error::of_client(error)
        })?;
        // Sent while replies are read: a server that cannot send stops reading.
        let mut unsent: VecDeque<_> = ids.map(Order::Open).collect();
        let mut sweep_at = self.env.now() + self.env.timing().ttl / 2;
        let (mut is_proven, mut unanswered) = (false, VecDeque::from([first]));
        loop {
            tokio::select! {
                biased;
                response = stream.message() => {
                    let Ok(Some(response)) = response else {
                        self.endpoints.failed(link.generation);
                        return Ok(Ended::Broken);
                    };
                    if !is_proven && response.created() && !response.canceled() && response.watch_id() != first {
                        self.endpoints.failed(link.generation);
                        return Ok(Ended::Foreign);
                    }
                    is_proven = true;
                    // Requests are answered in their order.
                    let asked = response.created().then(|| unanswered.pop_front()).flatten();
                    if !self.take_in(&response) {
                        return Ok(Ended::Refused(asked.unwrap_or_else(|| response.watch_id())));
                    }
                }
                Some(order) = orders.recv() => unsent.push_back(order),
                sent = self.send(&mut sender, unsent.front().copied()), if !unsent.is_empty() => {
                    let Ok(asked) = sent else {
                        return Ok(Ended::Broken);
                    };
                    unsent.pop_front();
                    unanswered.extend(asked);
                }
                // Requests or renewals have replaced the connection: it may be dead without an error.
                () = link.left.cancelled() => return Ok(Ended::Broken),
                () = self.env.sleep_until(sweep_at) => {
                    self.sweep(self.env.timing().ttl);
                    sweep_at = self.env.now() + self.env.timing().ttl / 2;
                }
            }
        }
    }

    /// Passes a response on; `false` if it ends a watch that is needed, and the stream with it.
    fn take_in(&self, response: &WatchResponse) -> bool {
        let id = response.watch_id();
        if response.canceled() {
            tracing::debug!(reason = response.cancel_reason(), "the server ended a watch");
            // Newer servers do not name the refused watch.
            return id >= 0 && self.watch(id).is_none();
        }
        let mut table = self.table.lock();
        let Some(watch) = table.watches.get(&id).cloned() else {
            return true;
        };
        let range = &watch.range;
        if response.created() {
            let now = response.header().map_or(0, etcd_client::ResponseHeader::revision);
            let since = watch.from.map_or(now, |from| from - 1);
            table.tell(range, |told, key| told.stands(key, since));
            (self.on_event)(range, WatchEvent::Stands(since));
            let _ = self.begun.set(Ok(()));
        }
        let changes: Vec<_> = response.events().iter().filter_map(change).collect();
        // RACE: the waiters are notified first. An acquisition that enters its entry into the book after that has seen
        // its deletion, or the book is notified later.
        let is_heard = table.is_heard(range);
        let is_idle = table.tell(range, |told, key| told.tell(key, &changes, is_heard));
        (self.on_event)(range, WatchEvent::Changes(&changes));
        if is_idle == Some(true) {
            self.close_in(&mut table, range);
        }
        true
    }

    /// Sends an order; the watch whose reply is expected.
    async fn send(
        &self,
        sender: &mut WatchRequestSender,
        order: Option<Order>,
    ) -> Result<Option<WatchId>, etcd_client::Error> {
        match order {
            Some(Order::Open(id)) => {
                let Some(watch) = self.watch(id) else {
                    return Ok(None);
                };
                sender.watch(watch.range.key.to_vec(), Some(options(id, &watch))).await.map(|()| Some(id))
            }
            Some(Order::Cancel(id)) => sender.cancel(id).await.map(|()| None),
            None => Ok(None),
        }
    }
}

fn options(id: WatchId, Watch { range, from }: &Watch) -> WatchOptions {
    // Without a first revision, unless it may be slow: a server serves a watch on the past by a loop, ten times a
    // second.
    let mut options = WatchOptions::new().with_watch_id(id).with_start_revision(from.unwrap_or(0));
    if let Some(end) = &range.end {
        options = options.with_range(end.to_vec());
    }
    if range.of == Of::Session { options } else { options.with_filters([WatchFilterType::NoPut]) }
}

/// Reads a change. The client crate panics on an unknown type, so the type is not used: the key of a deletion has no
/// version.
fn change(event: &etcd_client::Event) -> Option<Change> {
    let kv = event.kv()?;
    let value = (kv.version() != 0).then(|| kv.value().into());
    Some(Change { revision: kv.mod_revision(), key: kv.key().into(), value })
}
