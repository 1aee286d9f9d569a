//! One stream for all watches of a session.
//!
//! A watch serves everybody who listens to the same range, and stays for a while after the last of
//! them: a watch that stands tells of a deletion at once, one that is opened after it may be a tenth of
//! a second late. When the stream ends, its listeners are told, and every watch that is listened to is
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

use leasehold_core::Env;
use leasehold_core::clock::Moment;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::connection::Endpoints;
use crate::keys::end_of;
use crate::protocol::Revision;
use stream::Server;

/// What is watched: one key, or those from it to before another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Range {
    pub(crate) key: Box<[u8]>,
    pub(crate) end: Option<Box<[u8]>>,
    pub(crate) of: Of,
}

/// What is told of it, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Of {
    /// Deletions, as long as somebody listens.
    Queue,
    /// Deletions, until it is let go of.
    Entry,
    /// Every change, until the end.
    Session,
}

impl Range {
    /// The keys that begin with `prefix`.
    pub(crate) fn queue(prefix: &[u8]) -> Self {
        Self { key: prefix.into(), end: Some(end_of(prefix).into()), of: Of::Queue }
    }

    pub(crate) fn entry(key: &[u8]) -> Self {
        Self { key: key.into(), end: None, of: Of::Entry }
    }

    pub(crate) fn session(key: &[u8], end: Vec<u8>) -> Self {
        Self { key: key.into(), end: Some(end.into()), of: Of::Session }
    }
}

/// A change of a key.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) revision: Revision,
    pub(crate) key: Box<[u8]>,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// With its value.
    Put(Box<[u8]>),
    /// With the revision at which the key was created, if the store still knew.
    Deleted(Option<Revision>),
}

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

#[derive(Debug)]
pub(crate) struct Watches {
    table: Mutex<Table>,
    orders: mpsc::UnboundedSender<Order>,
    env: Env,
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
    listeners: Vec<mpsc::UnboundedSender<WatchEvent>>,
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
        let watches = Arc::new(Self { table: Mutex::default(), orders, env: env.clone() });
        let server = Server {
            watches: Arc::clone(&watches),
            endpoints: Arc::clone(endpoints),
            env: env.clone(),
            on_event,
            orders: inbox,
        };
        env.spawn(async move {
            ended.run_until_cancelled_owned(Box::pin(server.run())).await;
        });
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
        let mut watch = Watch { range: range.clone(), since: None, listeners: Vec::new(), used_at: now };
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
            watch.listeners.retain(|listener| !listener.is_closed());
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
        self.listeners.retain(|listener| !listener.is_closed());
        self.listeners.push(ear);
        self.used_at = now;
        Listener { events, since: self.since }
    }

    fn is_wanted(&self) -> bool {
        self.range.of != Of::Queue || !self.listeners.is_empty()
    }

    fn tell(&mut self, event: &WatchEvent) {
        self.listeners.retain(|listener| listener.send(event.clone()).is_ok());
    }
}
