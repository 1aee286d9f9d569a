//! One stream for all watches of a session.
//!
//! A watch serves whoever deals with a name, one after the other, and stays for a while after the last of
//! them: a watch that stands tells of a deletion at once, one that is opened after it may be a tenth of
//! a second late. When the stream ends, its listener is told, and every watch that is wanted is
//! opened again from *now*: whoever listens reads once to learn what was missed.
//!
//! The table of watches is here, the task that serves them in [`stream`].
//!
//! # Invariants
//! - **etcd.watch-1** A listener hears `Stands(w)` before any change, then every change after *w* in order,
//!   until `Broken`; after that the same again.
//! - **etcd.watch-2** A watch is not trusted to tell of its own end: renewals find a dead connection out,
//!   and every move to another replaces the stream; a queue that is waited in is read now and then all the
//!   same.

mod stream;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::Env;
use leasehold_core::clock::Moment;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::connection::Endpoints;
use crate::keys::{Of, Range};
use crate::protocol::{Change, Revision};

/// What is told of a watch.
#[derive(Clone, Debug)]
pub(crate) enum WatchEvent {
    Stands(Revision),
    Changes(Arc<[Change]>),
    Broken,
    /// The same, by something that is not etcd itself.
    Foreign,
    /// There is no right to this watch; nothing more is told.
    Refused,
}

/// Somebody's ear; dropping it ends the interest.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) events: mpsc::UnboundedReceiver<WatchEvent>,
    /// Since when the watch stood when the listener came.
    pub(crate) since: Option<Revision>,
}

/// Hears whatever is told, after the listeners; no watch may be touched from there.
pub(crate) type OnEvent = Arc<dyn Fn(&Range, &WatchEvent) + Send + Sync>;

pub(crate) struct Watches {
    table: Mutex<Table>,
    orders: mpsc::UnboundedSender<Order>,
    env: Env,
    endpoints: Arc<Endpoints>,
    on_event: OnEvent,
}

#[derive(Debug, Default)]
struct Table {
    ids: HashMap<Range, i64>,
    watches: HashMap<i64, Watch>,
    last_id: i64,
}

#[derive(Debug)]
struct Watch {
    range: Range,
    since: Option<Revision>,
    /// Who deals with its name, or did.
    listener: Option<mpsc::UnboundedSender<WatchEvent>>,
    used_at: Moment,
}

#[derive(Clone, Copy, Debug)]
enum Order {
    Open(i64),
    Cancel(i64),
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
        let (env, endpoints) = (env.clone(), Arc::clone(endpoints));
        let watches = Arc::new(Self { table: Mutex::default(), orders, env, endpoints, on_event });
        let serving = Box::pin(Arc::clone(&watches).run(inbox));
        watches.env.spawn(ended.run_until_cancelled_owned(serving).map(drop));
        watches
    }

    /// Listens to a watch that stands already.
    pub(crate) fn standing(&self, range: &Range) -> Option<Listener> {
        let now = self.env.now();
        self.table.lock().watch(range).filter(|watch| watch.since.is_some()).map(|watch| watch.listen(now))
    }

    /// Listens; the watch is opened if there is none.
    pub(crate) fn listen(&self, range: &Range) -> Listener {
        let (mut table, now) = (self.table.lock(), self.env.now());
        if let Some(watch) = table.watch(range) {
            return watch.listen(now);
        }
        let mut watch = Watch { range: range.clone(), since: None, listener: None, used_at: now };
        let listener = watch.listen(now);
        let id = table.insert(watch);
        // Nobody serves orders any more when the session is over, and nobody waits then.
        let _ = self.orders.send(Order::Open(id));
        listener
    }

    pub(crate) fn let_go(&self, range: &Range) {
        self.cancel(&mut self.table.lock(), range);
    }

    fn cancel(&self, table: &mut Table, range: &Range) {
        if let Some(id) = table.remove(range) {
            let _ = self.orders.send(Order::Cancel(id));
        }
    }

    fn range(&self, id: i64) -> Option<Range> {
        Some(self.table.lock().watches.get(&id)?.range.clone())
    }

    /// Cancels watches that nobody has listened to for a while.
    fn sweep(&self, idle: Duration) {
        let (mut table, now) = (self.table.lock(), self.env.now());
        let mut over = Vec::new();
        for watch in table.watches.values_mut() {
            if watch.is_wanted() {
                watch.used_at = now;
            } else if now.since(watch.used_at) > idle {
                over.push(watch.range.clone());
            }
        }
        over.iter().for_each(|range| self.cancel(&mut table, range));
    }
}

impl Table {
    fn watch(&mut self, range: &Range) -> Option<&mut Watch> {
        self.watches.get_mut(self.ids.get(range)?)
    }

    fn insert(&mut self, watch: Watch) -> i64 {
        self.last_id += 1;
        self.ids.insert(watch.range.clone(), self.last_id);
        self.watches.insert(self.last_id, watch);
        self.last_id
    }

    fn remove(&mut self, range: &Range) -> Option<i64> {
        let id = self.ids.remove(range)?;
        self.watches.remove(&id).map(|_| id)
    }

    /// The stream has ended, as `told`: what is wanted goes on under new ids.
    fn renew_all(&mut self, told: &WatchEvent) -> Vec<i64> {
        self.ids.clear();
        for mut watch in std::mem::take(&mut self.watches).into_values() {
            watch.since = None;
            watch.tell(told);
            if watch.is_wanted() {
                self.insert(watch);
            }
        }
        self.watches.keys().copied().collect()
    }
}

impl Watch {
    fn listen(&mut self, now: Moment) -> Listener {
        let (ear, events) = mpsc::unbounded_channel();
        (self.listener, self.used_at) = (Some(ear), now);
        Listener { events, since: self.since }
    }

    fn is_wanted(&self) -> bool {
        self.range.of != Of::Queue || self.listener.as_ref().is_some_and(|listener| !listener.is_closed())
    }

    fn tell(&self, event: &WatchEvent) {
        if let Some(listener) = &self.listener {
            // It may have gone.
            let _ = listener.send(event.clone());
        }
    }
}
