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
use crate::protocol::Revision;
use stream::Server;

/// What is watched.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Range {
    /// Deletions of keys that begin so.
    Queue(Box<[u8]>),
    /// Deletions of one key.
    Own(Box<[u8]>),
    /// Every change of the keys from one to before another.
    Session(Box<[u8]>, Box<[u8]>),
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

/// What a listener is told.
#[derive(Clone, Debug)]
pub(crate) enum WatchEvent {
    Stands(Revision),
    Changes(Arc<[Change]>),
    Broken,
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

/// What is heard of queues and of keys of our own, before any listener.
#[derive(Debug)]
pub(crate) enum KeyEvent<'a> {
    /// These changes.
    Changes(&'a [Change]),
    /// The watch on a key of our own stands since then; what was before has to be read.
    Stands(&'a [u8], Revision),
    /// There is no right to watch that key of our own.
    GivenUp(&'a [u8]),
}

/// Who hears it; no watch may be touched from there.
pub(crate) type OnKeyEvent = Arc<dyn Fn(KeyEvent<'_>) + Send + Sync>;

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
    /// Something was met that is not etcd itself.
    met_a_stranger: bool,
}

#[derive(Debug)]
struct Watch {
    range: Range,
    since: Option<Revision>,
    listeners: Vec<mpsc::UnboundedSender<WatchEvent>>,
    /// It stays without listeners.
    is_pinned: bool,
    used_at: Moment,
}

#[derive(Clone, Copy, Debug)]
enum Order {
    Open(i64),
    Cancel(i64),
}

impl Watches {
    /// The watches, and the task that serves them until `ended`.
    ///
    /// `probe` is a key that may be read.
    pub(crate) fn start(
        env: &Env,
        endpoints: &Arc<Endpoints>,
        on_key_event: OnKeyEvent,
        probe: &[u8],
        ended: CancellationToken,
    ) -> Arc<Self> {
        let (orders, inbox) = mpsc::unbounded_channel();
        let watches = Arc::new(Self { table: Mutex::default(), orders, env: env.clone() });
        let server = Server {
            watches: Arc::clone(&watches),
            endpoints: Arc::clone(endpoints),
            env: env.clone(),
            on_key_event,
            probe: probe.to_vec(),
            orders: inbox,
        };
        env.spawn(async move {
            ended.run_until_cancelled_owned(Box::pin(server.run())).await;
        });
        watches
    }

    /// Listens to a watch that stands already.
    pub(crate) fn standing(&self, range: &Range) -> Option<Listener> {
        let mut table = self.table.lock();
        let id = *table.ids.get(range)?;
        let watch = table.watches.get_mut(&id)?;
        watch.since?;
        Some(watch.listen(self.env.now()))
    }

    /// Listens; the watch is opened if there is none.
    pub(crate) fn listen(&self, range: &Range) -> Listener {
        let mut table = self.table.lock();
        let now = self.env.now();
        if let Some(id) = table.ids.get(range).copied()
            && let Some(watch) = table.watches.get_mut(&id)
        {
            return watch.listen(now);
        }
        let (id, listener) = table.open(range.clone(), now);
        // Nobody serves orders any more when the session is over, and nobody waits then.
        let _ = self.orders.send(Order::Open(id));
        listener
    }

    /// Watches a key of our own until it is let go of.
    pub(crate) fn pin(&self, key: &[u8]) {
        let range = Range::Own(key.into());
        let mut table = self.table.lock();
        if table.ids.contains_key(&range) {
            return;
        }
        let (id, _) = table.open(range, self.env.now());
        if let Some(watch) = table.watches.get_mut(&id) {
            watch.is_pinned = true;
        }
        let _ = self.orders.send(Order::Open(id));
    }

    pub(crate) fn unpin(&self, key: &[u8]) {
        let mut table = self.table.lock();
        if let Some(id) = table.ids.get(&Range::Own(key.into())).copied() {
            table.remove(id);
            let _ = self.orders.send(Order::Cancel(id));
        }
    }

    /// Whether watches were not to be had because something stands between us and the servers.
    pub(crate) fn met_a_stranger(&self) -> bool {
        self.table.lock().met_a_stranger
    }

    fn is_served_by_a_stranger(&self) {
        self.table.lock().met_a_stranger = true;
    }

    fn range(&self, id: i64) -> Option<Range> {
        Some(self.table.lock().watches.get(&id)?.range.clone())
    }

    /// Cancels watches that nobody has listened to for a while.
    fn sweep(&self, idle: Duration) {
        let now = self.env.now();
        let mut table = self.table.lock();
        let mut over = Vec::new();
        for (id, watch) in &mut table.watches {
            watch.listeners.retain(|listener| !listener.is_closed());
            if watch.is_wanted() {
                watch.used_at = now;
            } else if now.since(watch.used_at) > idle {
                over.push(*id);
            }
        }
        for id in over {
            table.remove(id);
            let _ = self.orders.send(Order::Cancel(id));
        }
    }
}

impl Table {
    fn open(&mut self, range: Range, now: Moment) -> (i64, Listener) {
        self.last_id += 1;
        let mut watch = Watch {
            range: range.clone(),
            since: None,
            listeners: Vec::new(),
            is_pinned: false,
            used_at: now,
        };
        let listener = watch.listen(now);
        self.ids.insert(range, self.last_id);
        self.watches.insert(self.last_id, watch);
        (self.last_id, listener)
    }

    fn remove(&mut self, id: i64) {
        if let Some(watch) = self.watches.remove(&id) {
            self.ids.remove(&watch.range);
        }
    }

    fn give_up(&mut self, id: i64) -> Option<Range> {
        let mut watch = self.watches.remove(&id)?;
        self.ids.remove(&watch.range);
        watch.tell(&WatchEvent::Refused);
        Some(watch.range)
    }

    /// The stream has ended: what is listened to goes on under new ids.
    fn renew_all(&mut self) -> Vec<i64> {
        let ended = std::mem::take(&mut self.watches);
        self.ids.clear();
        for mut watch in ended.into_values() {
            watch.since = None;
            watch.tell(&WatchEvent::Broken);
            if watch.is_wanted() {
                self.last_id += 1;
                self.ids.insert(watch.range.clone(), self.last_id);
                self.watches.insert(self.last_id, watch);
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
        self.is_pinned || !self.listeners.is_empty()
    }

    fn tell(&mut self, event: &WatchEvent) {
        self.listeners.retain(|listener| listener.send(event.clone()).is_ok());
    }
}
