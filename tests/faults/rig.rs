//! A namespace on a server of some store, and processes that contend there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::{ErrorKind, LockGuard, LockManager, LostReason, connect};
use libtest_mimic::Trial;
use testbed::{BOUND, Beside, Proxy, Server, eventually, pass};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;
use zookeeper_client::{Acl, AuthId, Permission};

/// The name of every lock here.
pub(crate) const NAME: &str = "invoice/42";

/// A lease during which nothing happens by itself: a third of it is longer than anything here takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Enough for everything that takes no lease's end, and long before one of [`LONG`] ends or is renewed.
pub(crate) const EARLY: Duration = Duration::from_secs(15);

/// What a server tells its clients, where stores differ in that.
pub(crate) trait Store: Server {
    /// How a hold ends that the server has forgotten.
    const FORGOTTEN: &[LostReason];

    /// Whether tokens grow without what the server has written down.
    const TOKENS_OUTLAST_DATA: bool;

    /// What a certificate is that we do not take.
    const UNTRUSTED: ErrorKind;

    /// Removes an entry of [`NAME`] by hand; the holder's is at place 0.
    async fn remove(&self, namespace: &str, place: usize);

    /// Takes from the user of [`start_guarded`](Server::start_guarded) what it needs for [`NAME`], which is
    /// held.
    async fn take_rights(&self);

    async fn give_rights_back(&self);
}

impl Store for testbed::redis::Server {
    const FORGOTTEN: &[LostReason] = &[LostReason::Gone];
    const TOKENS_OUTLAST_DATA: bool = true;
    const UNTRUSTED: ErrorKind = ErrorKind::Unavailable;

    async fn remove(&self, namespace: &str, place: usize) {
        let key = format!("{namespace}:{{{NAME}}}");
        let Some(waiter) = place.checked_sub(1) else {
            assert_eq!(self.command(&["DEL", &key]).await.unwrap().integer(), Some(1));
            return;
        };
        let (queue, place) = (format!("{key}:q"), waiter.to_string());
        let ids = self.command(&["ZRANGE", &queue, &place, &place]).await.unwrap().elements();
        let removed = self.command(&["ZREM", &queue, &ids[0].text().unwrap()]).await.unwrap();
        assert_eq!(removed.integer(), Some(1));
    }

    async fn take_rights(&self) {
        self.command(&["ACL", "SETUSER", "billing", "-@all"]).await.unwrap();
    }

    async fn give_rights_back(&self) {
        self.command(&["ACL", "SETUSER", "billing", "+@all"]).await.unwrap();
    }
}

impl Store for testbed::etcd::Etcd {
    const FORGOTTEN: &[LostReason] = &[LostReason::SessionLost, LostReason::Gone, LostReason::Expired];
    const TOKENS_OUTLAST_DATA: bool = false;
    const UNTRUSTED: ErrorKind = ErrorKind::Denied;

    async fn remove(&self, namespace: &str, place: usize) {
        let prefix = format!("{namespace}/{}/", NAME.replace('/', "%2F"));
        let listed = self.ctl(["get", "--prefix", "--keys-only", "--sort-by=CREATE", &prefix]).await.unwrap();
        let key = listed.lines().filter(|line| !line.is_empty()).nth(place).expect("somebody is there");
        self.ctl(["del", key]).await.unwrap();
    }

    async fn take_rights(&self) {
        self.ctl(["user", "revoke-role", "billing", "locks"]).await.unwrap();
    }

    async fn give_rights_back(&self) {
        self.ctl(["user", "grant-role", "billing", "locks"]).await.unwrap();
    }
}

impl Store for testbed::zookeeper::Server {
    const FORGOTTEN: &[LostReason] = &[LostReason::SessionLost, LostReason::Expired];
    const TOKENS_OUTLAST_DATA: bool = false;
    const UNTRUSTED: ErrorKind = ErrorKind::Denied;

    async fn remove(&self, namespace: &str, place: usize) {
        let (client, directory) = (nodes(self).await, directory(namespace));
        let node = contenders_in(&client, &directory).await.swap_remove(place);
        client.delete(&format!("{directory}/{node}"), None).await.unwrap();
    }

    /// Whoever waits reads the queue again when its own node, or the one ahead, is gone.
    async fn take_rights(&self) {
        let (client, directory) = (nodes(self).await, directory("billing"));
        allow(&client, &directory, Permission::NONE).await;
        self.remove("billing", 1).await;
    }

    async fn give_rights_back(&self) {
        let (client, directory) = (nodes(self).await, directory("billing"));
        let rights = Permission::READ | Permission::WRITE | Permission::CREATE | Permission::DELETE;
        allow(&client, &directory, rights).await;
    }
}

/// A client of ZooKeeper's that may do everything, where there is somebody who may.
async fn nodes(server: &testbed::zookeeper::Server) -> zookeeper_client::Client {
    let connector = zookeeper_client::Client::connector().with_auth("digest", b"super:admin");
    connector.connect(&server.addr().to_string()).await.unwrap()
}

/// What the user who made a directory may do there.
async fn allow(client: &zookeeper_client::Client, directory: &str, rights: Permission) {
    let (acl, _) = client.get_acl(directory).await.unwrap();
    let user = AuthId::new(acl[0].scheme(), acl[0].id());
    client.set_acl(directory, &[Acl::new(rights, user)], None).await.unwrap();
}

fn directory(namespace: &str) -> String {
    format!("/{namespace}/leasehold/{}", NAME.replace('/', "%2F"))
}

/// The nodes of contenders, the holder's first.
async fn contenders_in(client: &zookeeper_client::Client, directory: &str) -> Vec<String> {
    let mut nodes = client.list_children(directory).await.unwrap();
    nodes.sort_by_key(|node| node.rsplit('-').next().map(str::to_owned));
    nodes
}

/// The server that the scenarios share which do not break it themselves.
pub(crate) struct Shared<S> {
    /// Its one worker starts the server, which ends with it.
    runtime: Runtime,
    server: OnceCell<S>,
    scenes: AtomicUsize,
}

impl<S: Server> Shared<S> {
    pub(crate) fn new() -> Arc<Self> {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        Arc::new(Self { runtime, server: OnceCell::new(), scenes: AtomicUsize::new(0) })
    }

    /// A scenario on this store.
    pub(crate) fn trial<F: Future<Output = ()> + 'static>(
        self: &Arc<Self>,
        name: &str,
        test: fn(Scene<S>) -> F,
    ) -> Trial {
        let number = self.scenes.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::clone(self);
        testbed::trial(format!("{}::{name}", S::NAME), move || {
            test(Scene { shared, namespace: format!("scene{number}") })
        })
    }
}

/// A namespace that nobody else has.
pub(crate) struct Scene<S> {
    shared: Arc<Shared<S>>,
    namespace: String,
}

impl<S: Server> Scene<S> {
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The server that is shared.
    pub(crate) async fn server(&self) -> &S {
        let start = || async { self.shared.runtime.spawn(S::start()).await.unwrap().unwrap() };
        self.shared.server.get_or_init(start).await
    }

    /// A way to that server which can be broken.
    pub(crate) async fn proxy(&self) -> Proxy {
        self.server().await.proxy().unwrap()
    }

    /// A process that nothing lies between it and that server.
    pub(crate) async fn direct(&self, ttl: Duration) -> LockManager {
        self.on(self.server().await, ttl).await
    }

    pub(crate) async fn behind(&self, proxy: &Proxy, ttl: Duration) -> LockManager {
        self.open(proxy.addr(), ttl).await
    }

    pub(crate) async fn on(&self, server: &S, ttl: Duration) -> LockManager {
        self.open(server.addr(), ttl).await
    }

    async fn open(&self, addr: std::net::SocketAddr, ttl: Duration) -> LockManager {
        connect(&S::url(addr, &self.namespace, &options(ttl))).await.unwrap()
    }
}

/// The longest bounds there are, as the machine may be busy: of connecting, and of requests.
pub(crate) fn options(ttl: Duration) -> String {
    let (ttl, third) = (ttl.as_millis(), ttl.as_millis() / 3);
    format!("ttl={ttl}ms&op_timeout={third}ms&connect_timeout={}s", BOUND.as_secs())
}

/// A lease that is to be kept, also by a machine that stands still for a while.
pub(crate) fn steady<S: Server>() -> Duration {
    3 * S::TTL
}

/// Waits until the lease that it has now would be over: it is still held.
pub(crate) async fn outlives_its_lease(guard: &LockGuard) {
    pass(guard.remaining()).await;
    guard.ensure_held().unwrap();
}

pub(crate) async fn hold(locks: &LockManager) -> LockGuard {
    locks.lock(NAME).unwrap().wait(BOUND).acquire().await.unwrap()
}

/// Has taken and released the lock: from here on that is one request each.
pub(crate) async fn warm(locks: LockManager) -> LockManager {
    hold(&locks).await.release().await.unwrap();
    locks
}

/// Waits for the lock in a task.
pub(crate) fn hold_aside(locks: &LockManager) -> Beside<LockGuard> {
    let lock = locks.lock(NAME).unwrap();
    Beside::start(async move { lock.acquire().await.unwrap() })
}

/// The same; it has its entry in the queue, with `ahead` others before it.
pub(crate) async fn queued(locks: &LockManager, ahead: usize, observer: &LockManager) -> Beside<LockGuard> {
    let waiting = hold_aside(locks);
    eventually("the contender is in the queue", async || {
        observer.inspect(NAME).await.is_ok_and(|state| state.contenders > ahead)
    })
    .await;
    // Answered on the way that the acquisition uses, after it: so that knows, too.
    locks.inspect(NAME).await.unwrap();
    waiting
}

/// Whether nobody holds the lock or waits for it.
pub(crate) async fn is_left_alone(locks: &LockManager) -> bool {
    locks.list("").await.is_ok_and(|locks| locks.is_empty())
}
