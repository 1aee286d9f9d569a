//! The setup of the tests: servers, managers on them, and a client that reads and changes the store.

use std::time::Duration;

use etcd_client::{Client, DeleteOptions, EventType, GetOptions, SortOrder, SortTarget, WatchOptions};
use leasehold_core::clock::{BootClock, Clock, Moment};
use leasehold_core::{LockGuard, LockManager, Result};
use leasehold_etcd::EtcdConfig;
use testbed::Proxy;
use testbed::etcd::{Etcd, Requests, Setup};
pub(crate) use testbed::{BOUND, Beside, eventually, trials, until, within};
use tokio::sync::watch;

pub(crate) struct Fixture {
    pub(crate) etcd: Etcd,
    pub(crate) store: Store,
}

impl Fixture {
    /// One member of the installed etcd.
    pub(crate) async fn start() -> Self {
        Self::on(Setup::new()).await
    }

    pub(crate) async fn on(setup: Setup) -> Self {
        let etcd = setup.start().await.unwrap();
        let store = Store::connect(&etcd.endpoints()).await;
        Self { etcd, store }
    }

    pub(crate) fn config(&self) -> EtcdConfig {
        EtcdConfig::new(self.etcd.endpoints()).prefix(PREFIX)
    }

    pub(crate) async fn manager(&self) -> LockManager {
        open(self.config()).await
    }

    /// A process without requests of its own accord while requests are counted: held keys are read once at a renewal, and
    /// this one is renewed after ten seconds.
    pub(crate) async fn patient(&self) -> LockManager {
        open_with_ttl(self.config(), 10 * TTL).await.unwrap()
    }

    /// A process whose every connection goes through `proxy`.
    pub(crate) async fn manager_behind(&self, proxy: &Proxy) -> LockManager {
        open(behind(proxy)).await
    }

    /// Waits until the servers get no requests but renewals.
    pub(crate) async fn quiet(&self) {
        let settled = async || {
            let before = self.etcd.requests().await.unwrap();
            tokio::time::sleep(TTL / 10).await;
            without_renewals(&(self.etcd.requests().await.unwrap() - &before)) == 0
        };
        eventually("the servers are left alone", settled).await;
    }

    pub(crate) fn proxy(&self, member: usize) -> Proxy {
        Proxy::start(self.etcd.addr(member)).unwrap()
    }
}

/// Without renewals, whose number depends on time.
pub(crate) fn without_renewals(requests: &Requests) -> u64 {
    requests.total() - requests.of("LeaseKeepAlive")
}

pub(crate) fn behind(proxy: &Proxy) -> EtcdConfig {
    EtcdConfig::new([proxy.addr().to_string()]).prefix(PREFIX)
}

pub(crate) async fn open(config: EtcdConfig) -> LockManager {
    open_with_ttl(config, TTL).await.unwrap()
}

pub(crate) async fn open_with_ttl(config: EtcdConfig, ttl: Duration) -> Result<LockManager> {
    // The longest bound of a request that there is, as the machine may be busy.
    let builder = LockManager::builder(config).ttl(ttl).op_timeout(ttl / 3);
    builder.owner_label("a process of the test").build().await
}

pub(crate) async fn hold(manager: &LockManager, name: &str) -> LockGuard {
    within(BOUND, "a free lock is granted", manager.lock(name).unwrap().acquire()).await.unwrap()
}

/// Waits for the lock in a task.
pub(crate) fn hold_aside(manager: &LockManager, name: &str) -> Beside<LockGuard> {
    let lock = manager.lock(name).unwrap();
    Beside::start(async move { lock.acquire().await.unwrap() })
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) key: String,
    pub(crate) created: i64,
    pub(crate) modified: i64,
    pub(crate) lease: i64,
}

/// A client of the store that is not under test.
pub(crate) struct Store {
    pub(crate) client: Client,
}

impl Store {
    pub(crate) async fn connect(endpoints: &[String]) -> Self {
        Self { client: Client::connect(endpoints, None).await.unwrap() }
    }

    /// The contenders of a name, the holder first.
    pub(crate) async fn queue(&self, name: &str) -> Vec<Key> {
        self.keys(&format!("{PREFIX}/{name}/")).await
    }

    /// Every key that begins with `prefix`, the oldest first.
    pub(crate) async fn keys(&self, prefix: &str) -> Vec<Key> {
        let options = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend);
        let answer = self.client.kv_client().get(prefix, Some(options)).await.unwrap();
        let keys = answer.kvs().iter().map(|kv| Key {
            key: kv.key_str().unwrap().to_owned(),
            created: kv.create_revision(),
            modified: kv.mod_revision(),
            lease: kv.lease(),
        });
        keys.collect()
    }

    /// Waits until so many contend for a name, the holder counted.
    pub(crate) async fn queued(&self, name: &str, contenders: usize) {
        let what = format!("{contenders} contend for {name}");
        eventually(&what, async || self.queue(name).await.len() == contenders).await;
    }

    pub(crate) async fn delete(&self, key: &str) {
        self.client.kv_client().delete(key, None).await.unwrap();
    }

    pub(crate) async fn delete_all(&self, prefix: &str) {
        let options = DeleteOptions::new().with_prefix();
        self.client.kv_client().delete(prefix, Some(options)).await.unwrap();
    }

    pub(crate) async fn revoke(&self, lease: i64) {
        self.client.lease_client().revoke(lease).await.unwrap();
    }

    pub(crate) async fn leases(&self) -> usize {
        self.client.lease_client().leases().await.unwrap().leases().len()
    }

    /// Records the changes below `prefix` from here on.
    pub(crate) async fn diary(&self, prefix: &str) -> Diary {
        let options = WatchOptions::new().with_prefix();
        let mut stream = self.client.watch_client().watch(prefix, Some(options)).await.unwrap();
        let created = stream.message().await.unwrap().unwrap();
        assert!(created.created());
        let entries = watch::Sender::new(Vec::new());
        let (written, clock) = (entries.clone(), BootClock::new());
        let task = Beside::start(async move {
            while let Ok(Some(message)) = stream.message().await {
                let now = clock.now();
                for event in message.events() {
                    let kv = event.kv().unwrap();
                    let entry = Entry {
                        is_deletion: event.event_type() == EventType::Delete,
                        key: kv.key_str().unwrap().to_owned(),
                        at: now,
                    };
                    written.send_modify(|entries| entries.push(entry));
                }
            }
        });
        Diary { entries, _task: task }
    }
}

/// The changes of the keys below a prefix, as the store reports them.
pub(crate) struct Diary {
    entries: watch::Sender<Vec<Entry>>,
    _task: Beside<()>,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) is_deletion: bool,
    pub(crate) key: String,
    pub(crate) at: Moment,
}

impl Diary {
    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.entries.borrow().clone()
    }

    /// Waits for the deletion of a key.
    pub(crate) async fn deletion(&self, key: &str) -> Entry {
        let mut watcher = self.entries.subscribe();
        let found = |entries: &Vec<Entry>| {
            entries.iter().find(|entry| entry.is_deletion && entry.key == key).cloned()
        };
        let what = format!("{key} is deleted");
        let entries = within(BOUND, &what, watcher.wait_for(|entries| found(entries).is_some())).await;
        found(&entries.unwrap()).unwrap()
    }
}

pub(crate) fn now() -> Moment {
    BootClock::new().now()
}

pub(crate) const PREFIX: &str = "locks";

/// Long enough that a busy machine renews in time, short enough to wait for its end.
pub(crate) const TTL: Duration = Duration::from_secs(3);

/// Enough for everything but the end of a lease, on a busy machine, and long before the end of a lease of ten [`TTL`]s.
pub(crate) const EARLY: Duration = Duration::from_secs(15);
