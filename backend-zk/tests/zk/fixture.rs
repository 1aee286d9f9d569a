//! A shared server, a namespace on it for each test, and foreign clients that read it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, Moment};
use leasehold_core::{Builder, LockGuard, LockManager};
use leasehold_zk::ZkConfig;
use libtest_mimic::Trial;
use parking_lot::Mutex;
use testbed::zookeeper::{Ensemble, Head, Op, Server, Setup, frame};
pub(crate) use testbed::{BOUND, Beside, eventually, within};
use testbed::{Direction, Mode, Proxy};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;
use zookeeper_client::Client;

/// The ttl of most sessions here.
pub(crate) const TTL: Duration = Duration::from_secs(3);

/// Starts what tests share when the first test needs it.
pub(crate) struct Fixture {
    /// Its one worker starts the shared server, which ends with it.
    runtime: Runtime,
    server: OnceCell<Server>,
    spaces: AtomicUsize,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self { runtime: runtime(), server: OnceCell::new(), spaces: AtomicUsize::new(0) }
    }

    pub(crate) fn trial<F: Future<Output = ()> + 'static>(
        self: &Arc<Self>,
        name: &'static str,
        test: fn(Arc<Self>) -> F,
    ) -> Trial {
        let fixture = Arc::clone(self);
        testbed::trial(name, move || test(fixture))
    }

    /// The server for tests that neither break it nor count its requests.
    pub(crate) async fn server(&self) -> &Server {
        let start = || async {
            let started = self.runtime.spawn(Setup::new().start());
            started.await.unwrap().unwrap_or_else(|error| panic!("{error}"))
        };
        self.server.get_or_init(start).await
    }

    /// A namespace on the shared server for one test.
    pub(crate) async fn space(&self) -> Space {
        self.space_on([self.server().await.addr()])
    }

    /// A namespace on the test's own servers.
    pub(crate) fn space_on(&self, hosts: impl IntoIterator<Item = impl ToString>) -> Space {
        let number = self.spaces.fetch_add(1, Ordering::Relaxed);
        Space {
            hosts: hosts.into_iter().map(|host| host.to_string()).collect(),
            chroot: format!("/t{number}"),
        }
    }
}

pub(crate) async fn server(setup: Setup) -> Server {
    setup.start().await.unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) async fn ensemble() -> Ensemble {
    Setup::new().start_ensemble(3).await.unwrap_or_else(|error| panic!("{error}"))
}

/// The namespace of one test, on some servers.
#[derive(Clone)]
pub(crate) struct Space {
    hosts: Vec<String>,
    pub(crate) chroot: String,
}

impl Space {
    pub(crate) fn config(&self) -> ZkConfig {
        ZkConfig::new(&self.hosts).chroot(&self.chroot)
    }

    /// All of a test's own server.
    pub(crate) fn whole(server: &Server) -> Self {
        Self { hosts: vec![server.addr().to_string()], chroot: String::new() }
    }

    /// The same namespace, through a proxy.
    pub(crate) fn by(&self, way: impl ToString) -> Self {
        Self { hosts: vec![way.to_string()], chroot: self.chroot.clone() }
    }

    pub(crate) fn hosts(&self) -> String {
        self.hosts.join(",")
    }

    pub(crate) async fn manager(&self) -> LockManager {
        self.manager_with(|builder| builder).await
    }

    pub(crate) async fn manager_with(&self, set: impl FnOnce(Builder) -> Builder) -> LockManager {
        set(LockManager::builder(self.config()).ttl(TTL)).build().await.unwrap()
    }

    pub(crate) fn directory(&self, name: &str) -> String {
        format!("{}/leasehold/{name}", self.chroot)
    }

    /// A foreign client, at the root of the tree.
    pub(crate) async fn outside(&self) -> Outside {
        let connector = Client::connector().with_session_timeout(BOUND);
        Outside { client: connector.connect(&self.hosts()).await.unwrap() }
    }

    pub(crate) async fn sessions(&self, server: &Server) -> Vec<i64> {
        server.sessions_below(&format!("{}/", self.chroot)).await.unwrap()
    }

    pub(crate) async fn session(&self, server: &Server) -> i64 {
        let sessions = self.sessions(server).await;
        assert_eq!(sessions.len(), 1, "{sessions:x?}");
        sessions[0]
    }
}

/// The requests of a session, by the server's count.
pub(crate) async fn requests_of(server: &Server, session: i64) -> u64 {
    let connections = server.connections().await.unwrap();
    let connection = connections.iter().find(|connection| connection.session == session);
    connection.expect("the session is connected").requests
}

/// A foreign client that reads the tree.
pub(crate) struct Outside {
    pub(crate) client: Client,
}

impl Outside {
    /// The children of a directory, the oldest first.
    pub(crate) async fn children(&self, directory: &str) -> Vec<String> {
        let mut children = match self.client.list_children(directory).await {
            Ok(children) => children,
            Err(zookeeper_client::Error::NoNode) => Vec::new(),
            Err(error) => panic!("{error}"),
        };
        children.sort_by_key(|child| child.rsplit('-').next().map(str::to_owned));
        children
    }

    /// Waits until a directory has so many children, and returns them.
    pub(crate) async fn has(&self, directory: &str, count: usize) -> Vec<String> {
        let mut children = Vec::new();
        eventually(&format!("{count} nodes in {directory}"), async || {
            children = self.children(directory).await;
            children.len() == count
        })
        .await;
        children
    }
}

/// Waits for the lock in a task.
pub(crate) fn hold_aside(locks: &LockManager, name: &str) -> Beside<LockGuard> {
    let lock = locks.lock(name).unwrap();
    Beside::start(async move { lock.acquire().await.unwrap() })
}

/// A proxy that knows the borders of ZooKeeper's frames.
pub(crate) fn proxy(server: &Server) -> Proxy {
    Proxy::start_framed(server.addr(), frame).unwrap()
}

/// The requests that pass from here on.
pub(crate) async fn noted(proxy: &Proxy) -> Arc<Mutex<Vec<Op>>> {
    let seen = Arc::default();
    proxy.set(Direction::ClientToServer, noting(&seen)).await;
    seen
}

/// Forwards all frames, and notes the requests.
pub(crate) fn noting(seen: &Arc<Mutex<Vec<Op>>>) -> Mode {
    let seen = Arc::clone(seen);
    Mode::drop_frames(move |frame| {
        if let Some(head) = Head::of(frame)
            && head.op != Op::Ping
        {
            seen.lock().push(head.op);
        }
        false
    })
}

/// The clock of all guards here.
pub(crate) fn now() -> Moment {
    BootClock::new().now()
}

pub(crate) fn milliseconds(since: Moment) -> u128 {
    now().since(since).as_millis()
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}
