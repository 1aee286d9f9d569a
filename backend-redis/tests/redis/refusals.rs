//! The server refuses: because it is full, a replica, busy, loading, or because it may not.

use std::path::PathBuf;

use leasehold_core::{Effect, Error, ErrorKind, LockManager, LostReason};
use testbed::redis::{Client, Server, Settings};
use tokio::time::timeout;

use crate::rig::{
    BOUND, KEY, LONG, NAME, TTL, Waiter, command, direct, eventually, hold, ok, open, open_for, pass, server,
    start, trials_on_both,
};

trials_on_both![
    full_server_still_renews_and_releases,
    a_replica_grants_nothing = passing::<Readonly>,
    too_few_replicas_grant_nothing = passing::<NoReplicas>,
    a_server_that_cannot_save_grants_nothing = passing::<Misconfigured>,
    a_loading_server_grants_nothing = passing::<Loading>,
    a_busy_server_grants_nothing = passing::<Busy>,
    an_orphaned_replica_grants_nothing = passing::<Orphaned>,
    a_release_ends_on_a_replica = releasing::<Readonly>,
    a_release_ends_without_replicas = releasing::<NoReplicas>,
    a_release_ends_where_nothing_is_saved = releasing::<Misconfigured>,
    a_release_ends_while_loading = releasing::<Loading>,
    a_release_ends_on_a_busy_server = releasing::<Busy>,
    a_release_ends_on_an_orphaned_replica = releasing::<Orphaned>,
    a_release_ends_on_a_foreign_type,
    a_refusal_that_lasts_ends_the_hold,
    a_foreign_type_is_left_alone,
    a_foreign_type_costs_no_other_name,
    a_cluster_is_refused_by_name,
];

/// A state of the server in which it refuses to write, and the way out of it.
trait Refusal {
    /// What its answers begin with.
    const CODE: &str;

    /// Whether it may be over before [`Refusal::end`].
    const IS_SHORT: bool = false;

    /// Brings it about.
    async fn begin(server: &Server) -> Client;

    async fn end(server: &Server, client: Client);
}

async fn asked(server: &Server, words: &[&str]) -> Client {
    let mut client = server.client().await.unwrap();
    let reply = client.command(words).await.unwrap();
    assert_eq!(reply.text().as_deref(), Some("OK"), "{words:?}");
    client
}

struct Readonly;

impl Refusal for Readonly {
    const CODE: &str = "READONLY";

    async fn begin(server: &Server) -> Client {
        // Nobody listens on that port.
        asked(server, &["REPLICAOF", "127.0.0.1", "1"]).await
    }

    async fn end(server: &Server, _client: Client) {
        ok(server, &["REPLICAOF", "NO", "ONE"]).await;
    }
}

struct NoReplicas;

impl Refusal for NoReplicas {
    const CODE: &str = "NOREPLICAS";

    async fn begin(server: &Server) -> Client {
        asked(server, &["CONFIG", "SET", "min-replicas-to-write", "1"]).await
    }

    async fn end(server: &Server, _client: Client) {
        ok(server, &["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
    }
}

struct Misconfigured;

impl Misconfigured {
    async fn data(server: &Server) -> PathBuf {
        let reply = command(server, &["CONFIG", "GET", "dir"]).await.elements();
        reply[1].text().unwrap().into()
    }
}

impl Refusal for Misconfigured {
    const CODE: &str = "MISCONF";

    async fn begin(server: &Server) -> Client {
        std::fs::remove_dir_all(Self::data(server).await).unwrap();
        let mut client = asked(server, &["CONFIG", "SET", "save", "3600 1000000"]).await;
        client.command(&["BGSAVE"]).await.unwrap();
        eventually("the snapshot has failed", async || {
            server.info("persistence").await.unwrap()["rdb_last_bgsave_status"] == "err"
        })
        .await;
        client
    }

    async fn end(server: &Server, _client: Client) {
        ok(server, &["CONFIG", "SET", "save", ""]).await;
    }
}

struct Loading;

impl Refusal for Loading {
    const CODE: &str = "LOADING";

    const IS_SHORT: bool = true;

    async fn begin(server: &Server) -> Client {
        for index in 0..100 {
            command(server, &["SET", &format!("ballast/{index}"), "x"]).await;
        }
        ok(server, &["CONFIG", "SET", "key-load-delay", "20000"]).await;
        let mut client = server.client().await.unwrap();
        client.send(&["DEBUG", "RELOAD"]).await.unwrap();
        client
    }

    async fn end(_server: &Server, mut client: Client) {
        // It ends by itself, after two seconds.
        client.reply().await.unwrap();
    }
}

struct Busy;

impl Refusal for Busy {
    const CODE: &str = "BUSY";

    async fn begin(server: &Server) -> Client {
        ok(server, &["CONFIG", "SET", "busy-reply-threshold", "1"]).await;
        let mut client = server.client().await.unwrap();
        client.send(&["EVAL", "while true do end", "0"]).await.unwrap();
        client
    }

    async fn end(server: &Server, mut client: Client) {
        ok(server, &["SCRIPT", "KILL"]).await;
        client.reply().await.unwrap();
    }
}

struct Orphaned;

impl Refusal for Orphaned {
    const CODE: &str = "MASTERDOWN";

    async fn begin(server: &Server) -> Client {
        ok(server, &["CONFIG", "SET", "replica-serve-stale-data", "no"]).await;
        Readonly::begin(server).await
    }

    async fn end(server: &Server, client: Client) {
        Readonly::end(server, client).await;
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

/// A release that is refused ends with its lease and says why; one that is refused for a shorter time is
/// confirmed. The lock is free then.
async fn releasing<R: Refusal>() {
    // Long enough to bring the state about in it.
    let ttl = 2 * TTL;
    let server = obliging().await;
    let (a, b) = (open_for(direct(&server), ttl).await, open(direct(&server)).await);
    let (first, second) = (hold(&a).await, a.lock("another").unwrap().acquire().await.unwrap());
    let client = R::begin(&server).await;
    refused(&b).await;
    // One that is dropped goes the same way, and keeps nobody waiting for longer.
    drop(second);
    let outcome = timeout(BOUND, first.release()).await.expect("a release ends");
    match outcome {
        Ok(()) => assert!(R::IS_SHORT),
        // Over only after the lease: a release that had no answer was carried out, or the lease has ended.
        Err(gone) if R::IS_SHORT && gone.lost_reason().is_some() => {
            assert_eq!(gone.effect(), Effect::Unknown, "{gone}");
        }
        Err(refused) => assert_eq!(*refused.kind(), ErrorKind::Unavailable, "{refused}"),
    }
    R::end(&server, client).await;
    hold(&b).await.release().await.unwrap();
    b.lock("another").unwrap().wait(ttl).acquire().await.unwrap().release().await.unwrap();
}

/// An answer that is no answer, over and over.
async fn a_release_ends_on_a_foreign_type() {
    let server = server().await;
    let locks = open(direct(&server)).await;
    let guard = hold(&locks).await;
    for key in ["leasehold:{invoice/42}:q", "leasehold:{invoice/42}:e"] {
        command(&server, &["LPUSH", key, "x"]).await;
    }
    let outcome = timeout(BOUND, guard.release()).await.expect("a release ends");
    let refused = outcome.unwrap_err();
    assert_eq!((refused.kind(), refused.effect()), (&ErrorKind::Protocol, Effect::Unknown), "{refused}");
}

/// While the server refuses, nothing is granted and the error says that it was the server; what is
/// held is held, who waits waits. When it is over before the lease is, nothing has happened.
async fn passing<R: Refusal>() {
    let server = obliging().await;
    // Long enough for everything here, short enough to be renewed after it.
    let ttl = 5 * TTL;
    let (a, b) = (open_for(direct(&server), ttl).await, open_for(direct(&server), ttl).await);
    let guard = hold(&a).await;
    let waiting = Waiter::queued(&b, 0, &a).await;

    let client = R::begin(&server).await;
    let refused = refused(&b).await;
    assert_eq!(*refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert_eq!(refused.effect(), Effect::NotApplied, "{refused}");
    assert!(format!("{refused:?}").contains(R::CODE), "{refused:?}");
    let renewed = guard.renew().await;
    assert!(renewed.is_err() || R::IS_SHORT);
    guard.ensure_held().unwrap();
    R::end(&server, client).await;

    eventually("the hold is renewed", async || guard.remaining() > ttl * 9 / 10).await;
    assert!(waiting.is_waiting());
    assert!(b.lock("yet another").unwrap().try_acquire().await.unwrap().is_some());
    let token = guard.token();
    guard.release().await.unwrap();
    let next = waiting.held().await;
    assert!(next.token() > token);
    next.release().await.unwrap();
}

/// A server without free memory refuses new entries. It renews, shortens and releases the entries that it has, and passes
/// locks on.
async fn full_server_still_renews_and_releases() {
    let server = server().await;
    let (a, b) = (open_for(direct(&server), LONG).await, open_for(direct(&server), LONG).await);
    let leaving = open_for(direct(&server), LONG).await;
    let guard = hold(&a).await;
    let waiting = Waiter::queued(&b, 0, &a).await;
    let left = Waiter::queued(&leaving, 1, &a).await;
    let reader = |locks: &LockManager| locks.lock("shared").unwrap().shared();
    let shares = [reader(&a).acquire().await.unwrap(), reader(&b).acquire().await.unwrap()];

    ok(&server, &["CONFIG", "SET", "maxmemory", "1"]).await;
    // A try that is refused needs no memory.
    assert!(leaving.lock("shared").unwrap().try_acquire().await.unwrap().is_none());
    let refused = leaving.lock("another").unwrap().try_acquire().await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.effect()),
        (&ErrorKind::Unavailable, Effect::NotApplied),
        "{refused}"
    );
    drop(left);
    let contenders = async || a.inspect(NAME).await.unwrap().contenders;
    eventually("the waiter has left the queue", async || contenders().await == 1).await;
    for share in shares {
        share.renew().await.unwrap();
        share.release().await.unwrap();
    }
    guard.renew().await.unwrap();
    guard.release().await.unwrap();
    let next = waiting.held().await;
    next.renew().await.unwrap();
    next.release().await.unwrap();
    assert!(a.list("").await.unwrap().is_empty());

    ok(&server, &["CONFIG", "SET", "maxmemory", "0"]).await;
    hold(&leaving).await.release().await.unwrap();
}

/// A refusal is no proof that the lock is gone, but without renewals it ends.
async fn a_refusal_that_lasts_ends_the_hold() {
    let server = server().await;
    let locks = open(direct(&server)).await;
    let guard = hold(&locks).await;
    let client = Readonly::begin(&server).await;
    assert_eq!(guard.lost().await, LostReason::Expired);
    Readonly::end(&server, client).await;
    hold(&locks).await.release().await.unwrap();
}

/// What other programs keep under the lock's key is neither taken for a holder nor overwritten.
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

/// A name whose keys somebody has overwritten is lost; those that are renewed and listed with it are not.
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

/// A node of a cluster serves only some keys, so it is no place for locks: it says so, or answers that
/// it does not serve this one.
async fn a_cluster_is_refused_by_name() {
    let server = start(Settings::new().set("cluster-enabled", &["yes"]).set("cluster-port", &["0"])).await;
    let opened = LockManager::builder(direct(&server)).ttl(TTL).build().await;
    let refused = match opened {
        Err(refused) => refused,
        Ok(locks) => locks.lock(NAME).unwrap().wait(BOUND).acquire().await.unwrap_err(),
    };
    assert_eq!(*refused.kind(), ErrorKind::Unsupported, "{refused:?}");
    assert!(refused.to_string().contains("Cluster"), "{refused}");
}
