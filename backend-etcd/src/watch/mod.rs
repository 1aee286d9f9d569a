//! One stream for all watches of a session.
//!
//! Watches on a queue serve one acquisition of its name after the other, and stay for a while after the last of them: a
//! standing watch reports a deletion at once, one that is opened after it may be a tenth of a second late. [`Told`] keeps the
//! reports. When the stream ends, every watch that is needed is opened again from *now*, under another id, and each waiter
//! reads the missed changes once.
//!
//! The table of watches is here, the task that serves them in [`stream`].
//!
//! # Invariants
//! - **etcd.watch-1** The reports of a watch are complete and in order from the revision at which it stands, until it is
//!   opened again.
//! - **etcd.watch-2** A watch is not trusted to report its own end: renewals notice a dead connection, and every change of
//!   the connection replaces the stream. A place in a queue is read from time to time all the same.

mod stream;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::clock::Moment;
use leasehold_core::{Env, Result};
use parking_lot::Mutex;
use tokio::sync::{SetOnce, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::connection::Endpoints;
use crate::keys::Range;
use crate::protocol::{Change, Key, Revision, Rival, Told, WatchId};

/// A report of a watch to its session.
pub(crate) enum WatchEvent<'a> {
    Stands(Revision),
    Changes(&'a [Change]),
    /// The right is missing; nothing more is reported.
    Refused,
}

/// Receives reports, after the waiters of a queue; must not open or close a watch.
pub(crate) type OnEvent = Box<dyn Fn(&Range, WatchEvent<'_>) + Send + Sync>;

pub(crate) struct Watches {
    table: Mutex<Table>,
    orders: mpsc::UnboundedSender<Order>,
    /// The first watch stands, or never will.
    begun: SetOnce<Result<()>>,
    env: Env,
    endpoints: Arc<Endpoints>,
    on_event: OnEvent,
}

#[derive(Debug, Default)]
struct Table {
    ids: HashMap<Arc<Range>, WatchId>,
    watches: HashMap<WatchId, Watch>,
    queues: HashMap<Key, Queue>,
    last_id: WatchId,
}

#[derive(Clone, Debug)]
struct Watch {
    /// Shared, as there may be very many.
    range: Arc<Range>,
    /// The revision from which it was requested.
    from: Option<Revision>,
}

#[derive(Debug)]
struct Queue {
    told: watch::Sender<Told>,
    used_at: Moment,
}

#[derive(Clone, Copy, Debug)]
enum Order {
    Open(WatchId),
    Cancel(WatchId),
}

impl Watches {
    /// The watches, and the task that serves them until `ended`.
    pub(crate) fn start(
        env: &Env,
        endpoints: &Arc<Endpoints>,
        on_event: OnEvent,
        ended: CancellationToken,
    ) -> Arc<Self> {
        let (orders, inbox) = mpsc::unbounded_channel();
        let (env, endpoints, begun) = (env.clone(), Arc::clone(endpoints), SetOnce::new());
        let watches = Arc::new(Self { table: Mutex::default(), orders, begun, env, endpoints, on_event });
        let serving = Box::pin(Arc::clone(&watches).run(inbox));
        watches.env.spawn(ended.run_until_cancelled_owned(serving).map(drop));
        watches
    }

    /// Waits until the first watch stands.
    pub(crate) async fn begun(&self) -> Result<()> {
        self.begun.wait().await.clone()
    }

    /// Listens to the reports about a queue, if it is watched.
    pub(crate) fn listen(&self, queue: &[u8]) -> Option<watch::Receiver<Told>> {
        let mut table = self.table.lock();
        let queue = table.queues.get_mut(queue)?;
        queue.used_at = self.env.now();
        queue.told.send_modify(|told| {
            told.listen();
        });
        Some(queue.told.subscribe())
    }

    /// A request about a queue is about to be sent. The watch on the queue, if it stands.
    pub(crate) fn asking(&self, queue: &[u8]) -> Option<WatchId> {
        self.table.lock().tell_queue(queue, Told::listen).flatten()
    }

    /// A request about a queue was answered: these keys are waited for.
    pub(crate) fn wait_for(&self, queue: &[u8], keys: HashSet<Key>) {
        self.table.lock().tell_queue(queue, |told| told.wait_for(keys));
    }

    /// Opens a watch, from a revision of the past or from now on, unless there is one.
    pub(crate) fn open(&self, range: Range, from: Option<Revision>) {
        let mut table = self.table.lock();
        if !table.ids.contains_key(&range) {
            let id = table.insert(Arc::new(range), from, self.env.now());
            // Without a session there are neither orders nor waiters.
            let _ = self.orders.send(Order::Open(id));
        }
    }

    pub(crate) fn close(&self, range: &Range) {
        self.close_in(&mut self.table.lock(), range);
    }

    fn close_in(&self, table: &mut Table, range: &Range) {
        if let Some(id) = table.remove(range) {
            let _ = self.orders.send(Order::Cancel(id));
        }
    }

    /// Those contenders are waited for: their watches stay, and others are closed if there are too many.
    pub(crate) fn use_keys(&self, queue: &[u8], keys: &[Rival]) {
        let mut table = self.table.lock();
        let surplus = table.tell_queue(queue, |told| told.use_keys(keys));
        for key in surplus.into_iter().flatten() {
            self.close_in(&mut table, &Range::rival(queue, key));
        }
    }

    #[cfg(test)]
    pub(crate) fn is_open(&self, range: &Range) -> bool {
        self.table.lock().ids.contains_key(range)
    }

    fn watch(&self, id: WatchId) -> Option<Watch> {
        self.table.lock().watches.get(&id).cloned()
    }

    /// Closes the watches on queues that were not used for a while.
    fn sweep(&self, idle: Duration) {
        let (mut table, now) = (self.table.lock(), self.env.now());
        for queue in table.queues.values_mut().filter(|queue| queue.told.receiver_count() > 0) {
            queue.used_at = now;
        }
        let is_over = |queue: &Queue| now.since(queue.used_at) > idle;
        let is_of_one = |range: &&Arc<Range>| table.queue_of(range).is_some_and(is_over);
        let over: Vec<_> = table.ids.keys().filter(is_of_one).cloned().collect();
        for range in over {
            self.close_in(&mut table, &range);
        }
        table.queues.retain(|_, queue| !is_over(queue));
    }
}

impl Table {
    fn insert(&mut self, range: Arc<Range>, from: Option<Revision>, now: Moment) -> WatchId {
        self.last_id += 1;
        if let Some((queue, key)) = range.place() {
            let queue = self.queues.entry(queue.into());
            let queue = queue.or_insert_with(|| Queue { told: watch::Sender::default(), used_at: now });
            queue.told.send_modify(|told| told.open(key, self.last_id));
        }
        self.ids.insert(Arc::clone(&range), self.last_id);
        self.watches.insert(self.last_id, Watch { range, from });
        self.last_id
    }

    fn remove(&mut self, range: &Range) -> Option<WatchId> {
        self.tell(range, |told, key| told.close(key));
        let id = self.ids.remove(range)?;
        self.watches.remove(&id).map(|_| id)
    }

    /// Notifies the waiters in the queue of `range`; `None` for a range in no queue.
    fn tell<T>(&self, range: &Range, what: impl FnOnce(&mut Told, Option<&Key>) -> T) -> Option<T> {
        let (queue, key) = range.place()?;
        self.tell_queue(queue, |told| what(told, key))
    }

    /// The same of a queue as a whole.
    fn tell_queue<T>(&self, queue: &[u8], what: impl FnOnce(&mut Told) -> T) -> Option<T> {
        let mut result = None;
        self.queues.get(queue)?.told.send_modify(|told| result = Some(what(told)));
        result
    }

    fn queue_of(&self, range: &Range) -> Option<&Queue> {
        self.queues.get(range.place()?.0)
    }

    fn is_heard(&self, range: &Range) -> bool {
        self.queue_of(range).is_some_and(|queue| queue.told.receiver_count() > 0)
    }

    /// The stream has ended: the watches that are needed go on under new ids, from now on.
    fn renew_all(&mut self, now: Moment) -> Vec<WatchId> {
        self.ids.clear();
        self.queues.retain(|_, queue| queue.told.receiver_count() > 0);
        self.queues.values().for_each(|queue| queue.told.send_modify(Told::cut));
        for Watch { range, .. } in std::mem::take(&mut self.watches).into_values() {
            if range.place().is_none() || self.is_heard(&range) {
                self.insert(range, None, now);
            }
        }
        self.watches.keys().copied().collect()
    }
}
