//! The server refuses: a replica, busy, loading, or not able to save; a full one is in `tests/servers` of the workspace.

use std::time::Duration;

use leasehold_core::{Effect, Error, ErrorKind, LockManager};
use testbed::redis::{Client, Reply, Server, Settings};

use crate::counts::Requests;
use crate::fixture::{
    BOUND, KEY, NAME, TTL, Waiter, command, direct, eventually, hold, now, ok, open, open_for, pass, server,
    start, trials_on_both,
};
use crate::quorum::{quorum, servers_of};

trials_on_both![
    a_replica_grants_nothing = || passing(State::ReadOnly),
    too_few_replicas_grant_nothing = || passing(State::NoReplicas),
    a_server_that_cannot_save_grants_nothing = || passing(State::MisConf),
    a_loading_server_grants_nothing = || passing(State::Loading),
    a_busy_server_grants_nothing = || passing(State::Busy),
    an_orphaned_replica_grants_nothing = || passing(State::MasterDown),
    replica_is_left_alone_until_it_is_the_primary,
    a_foreign_type_is_left_alone,
    a_foreign_type_costs_no_other_name,
    a_cluster_is_refused_by_name,
];

/// A state in which the server refuses writes. Its replies begin with the upper-case name.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    ReadOnly,
    NoReplicas,
    MisConf,
    /// It ends by itself, after two seconds.
    Loading,
    Busy,
    MasterDown,
}

impl State {
    /// Begins the state. The client waits for a reply that comes at its end.
    async fn begin(self, server: &Server) -> Client {
        let mut client = server.client().await.unwrap();
        let set = async |option, value| ok(server, &["CONFIG", "SET", option, value]).await;
        match self {
            // No server listens on that port.
            Self::ReadOnly => ok(server, &["REPLICAOF", "127.0.0.1", "1"]).await,
            Self::MasterDown => {
                set("replica-serve-stale-data", "no").await;
                ok(server, &["REPLICAOF", "127.0.0.1", "1"]).await;
            }
            Self::NoReplicas => set("min-replicas-to-write", "1").await,
            Self::MisConf => {
                let dir = command(server, &["CONFIG", "GET", "dir"]).await.elements()[1].text().unwrap();
                std::fs::remove_dir_all(dir).unwrap();
                set("save", "3600 1000000").await;
                command(server, &["BGSAVE"]).await;
                eventually("the snapshot has failed", async || {
                    server.info("persistence").await.unwrap()["rdb_last_bgsave_status"] == "err"
                })
                .await;
            }
            Self::Loading => {
                for index in 0..100 {
                    command(server, &["SET", &format!("ballast/{index}"), "x"]).await;
                }
                set("key-load-delay", "20000").await;
                client.send(&["DEBUG", "RELOAD"]).await.unwrap();
            }
            Self::Busy => {
                set("busy-reply-threshold", "1").await;
                client.send(&["EVAL", "while true do end", "0"]).await.unwrap();
            }
        }
        client
    }

    async fn end(self, server: &Server, mut client: Client) {
        match self {
            Self::ReadOnly | Self::MasterDown => ok(server, &["REPLICAOF", "NO", "ONE"]).await,
            Self::NoReplicas => ok(server, &["CONFIG", "SET", "min-replicas-to-write", "0"]).await,
            Self::MisConf => ok(server, &["CONFIG", "SET", "save", ""]).await,
            Self::Loading => drop(client.reply().await.unwrap()),
            Self::Busy => {
                ok(server, &["SCRIPT", "KILL"]).await;
                client.reply().await.unwrap();
            }
        }
    }
}

/// A server that can be brought into every such state.
async fn obliging() -> Server {
    let settings = Settings::new().debug_commands().set("loading-process-events-interval-bytes", &["1024"]);
    start(settings).await
}

/// What is said when the server has begun to refuse.
async fn refused(locks: &LockManager) -> Error {
    // Another name each time: one that was granted before it began may wait for its release.
    let (mut refused, mut names) = (None, 0_u32..);
    eventually("the server refuses", async || {
        let name = format!("another/{}", names.next().unwrap());
        refused = locks.lock(name).unwrap().try_acquire().await.err();
        refused.is_some()
    })
    .await;
    refused.unwrap()
}

/// While the server refuses, nothing is granted and the error names the server's reason. Holders hold and waiters wait. If
/// it ends before the lease does, nothing has changed.
async fn passing(state: State) {
    let server = obliging().await;
    // Long enough for everything here, short enough to be renewed after it.
    let ttl = 5 * TTL;
    let (a, b) = (open_for(direct(&server), ttl).await, open_for(direct(&server), ttl).await);
    let guard = hold(&a).await;
    let waiting = Waiter::queued(&b, 0, &a).await;

    let client = state.begin(&server).await;
    let refused = refused(&b).await;
    assert_eq!(*refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert_eq!(refused.effect(), Effect::NotApplied, "{refused}");
    assert!(format!("{refused:?}").contains(&format!("{state:?}").to_uppercase()), "{refused:?}");
    let renewed = guard.renew().await;
    assert!(renewed.is_err() || state == State::Loading);
    guard.ensure_held().unwrap();
    state.end(&server, client).await;

    eventually("the hold is renewed", async || guard.remaining() > ttl * 9 / 10).await;
    assert!(waiting.is_waiting());
    assert!(b.lock("yet another").unwrap().try_acquire().await.unwrap().is_some());
    let token = guard.token();
    guard.release().await.unwrap();
    let next = waiting.held().await;
    assert!(next.token() > token);
    next.release().await.unwrap();
}

/// A name may lead to it for a while yet: it is asked for its role, at most every 100 ms.
async fn replica_is_left_alone_until_it_is_the_primary() {
    let server = server().await;
    let locks = open(direct(&server)).await;
    ok(&server, &["REPLICAOF", "127.0.0.1", "1"]).await;
    Requests::begin(&server).await;
    let began = now();
    refused(&locks).await;
    eventually("it is asked", async || Requests::since(&server).await.0.get("role") >= Some(&4)).await;
    let took = now().since(began);
    assert!(took >= Duration::from_millis(400), "{took:?}");
    ok(&server, &["REPLICAOF", "NO", "ONE"]).await;
    hold(&locks).await.release().await.unwrap();
}

async fn a_foreign_type_is_left_alone() {
    let server = server().await;
    let locks = open(direct(&server)).await;
    command(&server, &["LPUSH", KEY, "x"]).await;
    for attempt in
        [locks.lock(NAME).unwrap().try_acquire().await, locks.lock(NAME).unwrap().acquire().await.map(Some)]
    {
        let refused = attempt.unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::Protocol, "{refused}");
        assert!(format!("{refused:?}").contains("WRONGTYPE"), "{refused:?}");
    }
    assert_eq!(command(&server, &["LLEN", KEY]).await.integer(), Some(1));
    command(&server, &["DEL", KEY]).await;
    hold(&locks).await.release().await.unwrap();
}

async fn a_foreign_type_costs_no_other_name() {
    let server = server().await;
    let locks = open(direct(&server)).await;
    let take = async |name: &str| locks.lock(name).unwrap().try_acquire().await.unwrap().unwrap();
    let (sound, spoilt, other) = (take("sound").await, take("spoilt").await, take("other").await);
    command(&server, &["DEL", "leasehold:{spoilt}:n"]).await;
    command(&server, &["LPUSH", "leasehold:{spoilt}:n", "x"]).await;
    spoilt.lost().await;
    pass(TTL).await;
    sound.ensure_held().unwrap();
    other.ensure_held().unwrap();
    let names: Vec<_> = locks.list("").await.unwrap().into_iter().map(|state| state.name).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    sound.release().await.unwrap();
    other.release().await.unwrap();
}

/// A node of a cluster may serve all keys now, and fewer later, so it is no place for locks without the rest of the cluster.
async fn a_cluster_is_refused_by_name() {
    let server = start(Settings::new().set("cluster-enabled", &["yes"]).set("cluster-port", &["0"])).await;
    for serves in [false, true] {
        if serves {
            ok(&server, &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
            eventually("it serves", async || command(&server, &["GET", KEY]).await == Reply::Nil).await;
        }
        let refused = LockManager::builder(direct(&server)).ttl(TTL).build().await.unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::Unsupported, "{refused:?}");
        assert!(refused.to_string().contains("redis+cluster"), "{refused}");
    }
    let named = format!("{} is part of a Redis Cluster", server.addr());
    let mut servers = servers_of(2, Settings::new()).await;
    servers.push(server);
    let refused = LockManager::builder(quorum(&servers)).ttl(TTL).connect_timeout(BOUND).build().await;
    let refused = refused.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Unsupported, "{refused:?}");
    assert!(refused.to_string().contains(&named), "{refused}");
}
