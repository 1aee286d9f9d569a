//! Three servers that agree: one of them stops, dies or comes back, or two of them die.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::{ErrorKind, LockGuard, LockManager, connect};
use testbed::etcd::{Etcd, Setup};
use testbed::redis::{Sentinels, Server as Redis, Settings};
use testbed::zookeeper::Ensemble;
use testbed::{BOUND, Beside, Server, eventually, within};

use crate::fixture::{NAME, hold, options, queued, steady};

/// Three members of a store.
pub(crate) trait Cluster: Sized + Send + 'static {
    /// Whose leases it has.
    type Store: Server;

    const NAME: &str = Self::Store::NAME;

    /// Whether one of them leads, and a member that is back serves at once.
    const LED: bool = true;

    /// Whether a client of one member learns of the others.
    const LEARNED: bool = false;

    async fn start() -> Self;

    fn hosts(&self) -> Vec<String>;

    fn url(hosts: &[String], options: &str) -> String {
        Self::Store::url(hosts.join(","), "cluster", options)
    }

    /// Any member, where none leads.
    async fn leader(&self) -> usize;

    async fn kill(&mut self, member: usize);

    /// Starts one that was killed, on its data, and waits until it serves.
    async fn restart(&mut self, member: usize);

    async fn stop(&mut self, member: usize);

    fn cont(&mut self, member: usize);
}

impl Cluster for Etcd {
    type Store = Self;

    async fn start() -> Self {
        Setup::new().members(MEMBERS).start().await.unwrap()
    }

    fn hosts(&self) -> Vec<String> {
        self.endpoints()
    }

    async fn leader(&self) -> usize {
        self.leader().await.unwrap()
    }

    async fn kill(&mut self, member: usize) {
        self.kill(member).await.unwrap();
    }

    async fn restart(&mut self, member: usize) {
        self.restart(member).await.unwrap();
    }

    async fn stop(&mut self, member: usize) {
        self.stop(member).await.unwrap();
    }

    fn cont(&mut self, member: usize) {
        self.cont(member).unwrap();
    }
}

impl Cluster for Ensemble {
    type Store = testbed::zookeeper::Server;

    async fn start() -> Self {
        testbed::zookeeper::Setup::new().start_ensemble(MEMBERS).await.unwrap()
    }

    fn hosts(&self) -> Vec<String> {
        self.endpoints()
    }

    async fn leader(&self) -> usize {
        self.leader().await.unwrap()
    }

    async fn kill(&mut self, member: usize) {
        self[member].kill().await.unwrap();
    }

    async fn restart(&mut self, member: usize) {
        self[member].restart().unwrap();
        self[member].ready().await.unwrap();
    }

    async fn stop(&mut self, member: usize) {
        self[member].stop().await.unwrap();
    }

    fn cont(&mut self, member: usize) {
        self[member].cont().unwrap();
    }
}

impl Cluster for Vec<Redis> {
    type Store = Redis;

    const NAME: &str = "redis-quorum";
    const LED: bool = false;

    async fn start() -> Self {
        join_all((0..MEMBERS).map(async |_| <Redis as Server>::start().await.unwrap())).await
    }

    fn hosts(&self) -> Vec<String> {
        self.iter().map(|server| server.addr().to_string()).collect()
    }

    /// Without a pause of servers that came up, because these have only just.
    fn url(hosts: &[String], options: &str) -> String {
        format!("redis+quorum://{}?{options}&pause_after_restart=0s", hosts.join(","))
    }

    async fn leader(&self) -> usize {
        0
    }

    async fn kill(&mut self, member: usize) {
        self[member].kill().await.unwrap();
    }

    async fn restart(&mut self, member: usize) {
        self[member].start_again().await.unwrap();
    }

    async fn stop(&mut self, member: usize) {
        self[member].stop().await.unwrap();
    }

    fn cont(&mut self, member: usize) {
        self[member].cont().unwrap();
    }
}

/// Servers beside a sentinel each: a primary, its replicas, and whichever of them the sentinels promote.
pub(crate) struct Watched {
    servers: Vec<Redis>,
    sentinels: Sentinels,
}

impl Cluster for Watched {
    type Store = Redis;

    const NAME: &str = "redis-sentinel";
    const LEARNED: bool = true;

    async fn start() -> Self {
        let kept = || Settings::new().append_only();
        let mut servers = vec![kept().start().await.unwrap()];
        for _ in 1..MEMBERS {
            let replica = kept().replica_of(servers[0].addr()).start().await.unwrap();
            replica.follows().await.unwrap();
            servers.push(replica);
        }
        let down_after = Duration::from_millis(500);
        let sentinels = Sentinels::start(servers[0].addr(), MEMBERS - 1, MEMBERS, down_after).await.unwrap();
        Self { servers, sentinels }
    }

    fn hosts(&self) -> Vec<String> {
        self.sentinels.addrs().iter().map(ToString::to_string).collect()
    }

    /// Without the pause, with which a server that is new to the prefix begins.
    fn url(hosts: &[String], options: &str) -> String {
        let (hosts, master) = (hosts.join(","), Sentinels::MASTER);
        format!("redis+sentinel://{hosts}/{master}?prefix=cluster&pause_after_failover=0s&{options}")
    }

    async fn leader(&self) -> usize {
        let primary = &self.sentinels.master(0).await.unwrap()["port"];
        self.servers.iter().position(|server| server.addr().port().to_string() == *primary).unwrap()
    }

    async fn kill(&mut self, member: usize) {
        self.servers[member].kill().await.unwrap();
        self.sentinels.kill(member).await.unwrap();
    }

    async fn restart(&mut self, member: usize) {
        self.servers[member].start_again().await.unwrap();
        self.sentinels.start_again(member).await.unwrap();
    }

    /// Before that everything is copied.
    async fn stop(&mut self, member: usize) {
        self.sentinels.settled(MEMBERS - 1).await.unwrap();
        self.servers[member].process().stop().await.unwrap();
        self.sentinels.process(member).stop().await.unwrap();
    }

    fn cont(&mut self, member: usize) {
        self.servers[member].process().cont().unwrap();
        self.sentinels.process(member).cont().unwrap();
    }
}

/// A process that knows these members.
async fn open<C: Cluster>(hosts: &[String], options: &str) -> LockManager {
    connect(&C::url(hosts, options)).await.unwrap()
}

/// A lease that outlasts an election on a busy machine. ZooKeeper's client may try a stopped member in each round through the
/// members, for half of `connect_timeout` each time.
fn lasting<S: Server>() -> String {
    let (ttl, wait) = (16 * S::TTL.as_millis(), BOUND.as_secs());
    format!("ttl={ttl}ms&op_timeout={}ms&connect_timeout={}ms&connect_wait={wait}s", ttl / 6, ttl / 8)
}

/// A lost guard is no matter of time.
async fn renewed(guard: &LockGuard) {
    eventually("a renewal", async || {
        let renewed = guard.renew().await;
        guard.ensure_held().unwrap();
        renewed.is_ok()
    })
    .await;
}

/// Acquires the lock once enough members answer again.
async fn hold_again(locks: &LockManager) -> LockGuard {
    let mut held = None;
    eventually("the lock is granted again", async || {
        held = locks.lock(NAME).unwrap().acquire().await.ok();
        held.is_some()
    })
    .await;
    held.unwrap()
}

/// Every member in turn, the leader among them, does not answer, is killed, and is started again. Sessions move with their
/// holds and places, and the members that are left pass another lock on.
pub(crate) async fn rolling_restart_loses_nothing<C: Cluster>() {
    let mut cluster = C::start().await;
    let hosts = cluster.hosts();
    let open = async || open::<C>(&hosts, &lasting::<C::Store>()).await;
    let (holder, waiter, last) = (open().await, open().await, open().await);
    let guard = hold(&holder).await;
    let (next, last) = (queued(&waiter, 0, &holder).await, queued(&last, 1, &holder).await);
    let mut passed = holder.lock("passed").unwrap().acquire().await.unwrap();

    for (member, locks) in [&waiter, &holder, &waiter].into_iter().enumerate() {
        cluster.stop(member).await;
        renewed(&guard).await;
        cluster.kill(member).await;
        renewed(&passed).await;
        eventually("an answer", async || locks.inspect("passed").await.is_ok()).await;
        let (lock, token) = (locks.lock("passed").unwrap(), passed.token());
        let waiting = Beside::start(async move { lock.acquire().await.unwrap() });
        passed.release().await.unwrap();
        passed = waiting.end("the other manager holds").await;
        assert!(passed.token() > token);
        cluster.restart(member).await;
    }
    passed.release().await.unwrap();
    assert!(!next.is_finished() && !last.is_finished(), "two hold");
    let mut guard = guard;
    for next in [next, last] {
        let token = guard.token();
        guard.release().await.unwrap();
        guard = next.end("the next in line holds").await;
        assert!(guard.token() > token);
    }
    guard.release().await.unwrap();
}

/// A leader that is stopped is replaced, and its client loses the lock before another client holds it. Both work again when
/// the former leader goes on.
pub(crate) async fn stopped_leader_never_grants_twice<C: Cluster>() {
    let mut cluster = C::start().await;
    let (hosts, leader) = (cluster.hosts(), cluster.leader().await);
    let short = options(C::Store::TTL);
    let (victim, rival) = (open::<C>(&hosts[leader..=leader], &short).await, open::<C>(&hosts, &short).await);
    let guard = Arc::new(hold(&victim).await);
    let (lock, watched) = (rival.lock(NAME).unwrap(), Arc::clone(&guard));
    let waiting = Beside::start(async move {
        let next = lock.acquire().await.unwrap();
        (next, watched.ensure_held().is_ok())
    });
    eventually("it queues", async || rival.inspect(NAME).await.unwrap().contenders == 1).await;

    cluster.stop(leader).await;
    let (next, still_held) = waiting.end("the rival holds").await;
    assert!(!still_held, "two hold");
    assert!(next.token() > guard.token());
    let token = next.token();
    next.release().await.unwrap();
    cluster.cont(leader);
    assert!(hold_again(&victim).await.token() > token);
}

/// Without a majority nothing is held for longer than promised, and nothing is granted; with one again the waiter holds.
pub(crate) async fn lost_quorum_ends_hold<C: Cluster>() {
    let mut cluster = C::start().await;
    let open = async || open::<C>(&cluster.hosts(), &options(steady::<C::Store>())).await;
    let (holder, waiter) = (open().await, open().await);
    let guard = hold(&holder).await;
    let waiting = queued(&waiter, 0, &holder).await;
    let leader = cluster.leader().await;
    let killed = [leader, (leader + 1) % MEMBERS];
    for member in killed {
        cluster.kill(member).await;
    }
    within(guard.remaining() + steady::<C::Store>() / 3, "it is lost", guard.lost()).await;
    let refused = holder.lock("another").unwrap().try_acquire().await.expect_err("there is no majority");
    assert_eq!(*refused.kind(), ErrorKind::Unavailable, "{refused:?}");
    assert!(!waiting.is_finished(), "granted without a majority");
    for member in killed {
        cluster.restart(member).await;
    }
    let next = waiting.end_within(2 * BOUND, "the waiter holds").await;
    assert!(guard.ensure_held().is_err() && next.token() > guard.token());
    let token = next.token();
    next.release().await.unwrap();
    assert!(hold_again(&holder).await.token() > token);
}

const MEMBERS: usize = 3;
