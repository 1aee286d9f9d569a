//! The ways to a server: users and their rights, the Unix socket, databases.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::backend::{Credentials, Revocation};
use leasehold_core::{Effect, ErrorKind, FencingToken, Guarantees, LockManager, Result, Revoke};
use leasehold_redis::RedisConfig;
use parking_lot::Mutex;
use testbed::redis::{Server, Settings};
use tokio::time::{sleep, timeout};

use crate::failover::replica_of;
use crate::fixture::{
    BOUND, LONG, NAME, TTL, Waiter, command, direct, eventually, hold, ok, open, open_for, server, start,
    trials_on_both,
};

trials_on_both![
    the_documented_rights_are_enough,
    rights_to_bring_scripts_go_on_working,
    without_the_right_to_bring_scripts_they_are_loaded_ahead,
    each_documented_right_is_needed,
    some_options_need_the_rights_that_are_named,
    credentials_that_change_are_asked_for_again,
    credentials_are_renewed_before_they_end,
    a_unix_socket_is_a_way,
    databases_keep_their_own_locks,
    a_prefix_may_be_any_that_is_accepted,
];

/// The page with the rights for administrators.
const PAGE: &str = include_str!("../../../docs/src/redis-operations.md");

/// The rights in the page's example, after its user and password.
pub(crate) fn documented_rights() -> Vec<&'static str> {
    let line = PAGE.lines().find_map(|line| line.strip_prefix("redis-cli ACL SETUSER billing on '>secret' "));
    line.expect("the page shows the rights").split(' ').map(|right| right.trim_matches('\'')).collect()
}

/// A server that has our scripts.
pub(crate) async fn loaded() -> Server {
    let server = server().await;
    direct(&server).load_scripts().await.unwrap();
    server
}

pub(crate) async fn user(server: &Server, rights: &[&str]) -> RedisConfig {
    let command = [["ACL", "SETUSER", "billing", "on", ">secret"].as_slice(), rights].concat();
    ok(server, &command).await;
    direct(server).prefix("billing").credentials("billing", "secret")
}

/// Everything a program or an administrator can ask for, once.
pub(crate) async fn everything(config: impl Fn() -> RedisConfig + Send + Sync) -> Result<()> {
    // So long that a busy machine renews in time, and that a disk may confirm a request.
    let builder =
        || LockManager::builder(config()).ttl(5 * TTL).op_timeout(3 * TTL / 2).connect_timeout(BOUND);
    let open = async || builder().build().await;
    let (a, b, c) = (open().await?, open().await?, open().await?);
    let lock = |locks: &LockManager| locks.lock(NAME).unwrap().wait(BOUND);
    let guard = lock(&a).acquire().await?;
    assert!(lock(&b).try_acquire().await?.is_none());
    guard.renew().await?;
    let waiting = lock(&b);
    let handed_on = async {
        let next = waiting.acquire().await?;
        next.renew().await?;
        next.release().await
    };
    let queued = async {
        while c.inspect(NAME).await?.contenders == 0 {
            sleep(Duration::from_millis(2)).await;
        }
        lock(&c).wait(TTL / 20).acquire().await.unwrap_err();
        guard.release().await
    };
    let (handed_on, queued) = tokio::join!(handed_on, queued);
    handed_on?;
    queued?;
    let guard = lock(&a).acquire().await?;
    assert_eq!(c.list("").await?.len(), 1);
    assert_eq!(c.revoke(NAME, Revoke::AT_ONCE).await?, Revocation::Released);
    drop(guard);
    let guard = lock(&a).acquire().await?;
    assert_eq!(c.revoke(NAME, Revoke::Force).await?, Revocation::Released);
    drop(guard);
    if a.require(Guarantees::SHARED | Guarantees::PERMITS).is_ok() {
        let (reader, writer) = (lock(&a).shared(), lock(&b));
        let (share, other) = (reader.acquire().await?, lock(&c).permits(1, 2));
        let (waits, released) = tokio::join!(writer.acquire(), async {
            while c.inspect(NAME).await?.contenders == 0 {
                sleep(Duration::from_millis(2)).await;
            }
            assert!(other.try_acquire().await?.is_none());
            share.renew().await?;
            share.release().await
        });
        released?;
        waits?.release().await?;
        let permits = other.acquire().await?;
        permits.renew().await?;
        permits.release().await?;
    }
    c.diagnose().await?;
    c.raise_token_base(FencingToken::new(1 << 52, 0).unwrap()).await?;
    for locks in [a, b, c] {
        locks.shutdown().await?;
    }
    Ok(())
}

/// What the server has refused, by name; what only a full diagnosis, or counting others, asks for, left out.
pub(crate) async fn refusals(server: &Server) -> Vec<String> {
    let log = command(server, &["ACL", "LOG"]).await.elements();
    let objects = log.into_iter().map(|entry| {
        let fields = entry.elements();
        let object = fields.iter().position(|field| field.text().as_deref() == Some("object")).unwrap();
        fields[object + 1].text().unwrap()
    });
    objects
        .filter(|object| !["info", "config|get", "pubsub|channels", "acl|list"].contains(&object.as_str()))
        .collect()
}

/// With the rights of the page everything works, and the server has refused nothing.
async fn the_documented_rights_are_enough() {
    let server = loaded().await;
    let config = user(&server, &documented_rights()).await;
    everything(|| config.clone()).await.unwrap();
    assert_eq!(refusals(&server).await, Vec::<String>::new());
    let endless = "while true do end";
    for words in [
        ["GET", "other"].as_slice(),
        &["FLUSHALL"],
        &["KEYS", "*"],
        &["CONFIG", "GET", "save"],
        &["EVAL", endless, "0"],
        &["SCRIPT", "LOAD", endless],
    ] {
        let mut client = server.client().await.unwrap();
        client.command(&["AUTH", "billing", "secret"]).await.unwrap();
        let reply = client.command(words).await.unwrap();
        assert!(reply.text().unwrap_or_default().starts_with("NOPERM"), "{words:?}: {reply:?}");
    }
}

async fn rights_to_bring_scripts_go_on_working() {
    assert!(PAGE.contains("| `+eval` |"));
    let server = server().await;
    let config = user(&server, &[documented_rights(), vec!["+eval"]].concat()).await;
    for _ in 0..2 {
        everything(|| config.clone()).await.unwrap();
        ok(&server, &["SCRIPT", "FLUSH"]).await;
    }
    assert_eq!(refusals(&server).await, Vec::<String>::new());
}

/// A server without the scripts refuses new requests and says what helps; loaded by a user that may do
/// nothing else, they serve managers that are open already. What was held in between is held.
async fn without_the_right_to_bring_scripts_they_are_loaded_ahead() {
    let server = server().await;
    let locks = open_for(user(&server, &documented_rights()).await, LONG).await;
    ok(&server, &["ACL", "SETUSER", "loader", "on", ">secret", "resetkeys", "nocommands", "+script|load"])
        .await;
    let loader = direct(&server).credentials("loader", "secret");
    let refused = locks.lock(NAME).unwrap().try_acquire().await.unwrap_err();
    assert_eq!((refused.kind(), refused.effect()), (&ErrorKind::Denied, Effect::NotApplied), "{refused}");
    assert!(refused.to_string().contains("leasehold redis-scripts"), "{refused}");

    assert_eq!(loader.load_scripts().await.unwrap(), 6);
    let guard = hold(&locks).await;
    ok(&server, &["SCRIPT", "FLUSH"]).await;
    let refused = guard.renew().await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Denied, "{refused}");
    loader.load_scripts().await.unwrap();
    guard.renew().await.unwrap();
    guard.release().await.unwrap();
    let refused = direct(&server).credentials("billing", "secret").load_scripts().await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Denied, "{refused}");
}

async fn each_documented_right_is_needed() {
    let rights = documented_rights();
    let commands = rights.iter().filter(|right| right.starts_with('+'));
    join_all(commands.map(async |missing| {
        let server = loaded().await;
        let rest: Vec<_> = rights.iter().copied().filter(|right| right != missing).collect();
        let config = user(&server, &rest).await;
        let outcome = timeout(2 * TTL, everything(|| config.clone())).await;
        let done = outcome.is_ok_and(|outcome| outcome.is_ok());
        assert!(!done || !refusals(&server).await.is_empty(), "{missing} is not needed");
    }))
    .await;
}

/// What the page adds for another database and for replicas is enough for them, and needed.
async fn some_options_need_the_rights_that_are_named() {
    let server = loaded().await;
    let replica = start(Settings::new().replica_of(server.addr())).await;
    replica.follows().await.unwrap();
    option_needs(&server, "+select", |config| config.database(1)).await;
    option_needs(&server, "+wait", |config| config.wait_replicas(1)).await;
}

pub(crate) async fn option_needs(server: &Server, right: &str, option: fn(RedisConfig) -> RedisConfig) {
    assert!(PAGE.contains(&format!("| `{right}` |")), "{right}");
    let config = option(user(server, &documented_rights()).await);
    let done = timeout(2 * TTL, everything(|| config.clone())).await;
    assert!(!matches!(done, Ok(Ok(()))), "without {right}");
    ok(server, &["FLUSHALL"]).await;

    let config = option(user(server, &[documented_rights(), vec![right]].concat()).await);
    ok(server, &["ACL", "LOG", "RESET"]).await;
    everything(|| config.clone()).await.unwrap();
    assert_eq!(refusals(server).await, Vec::<String>::new(), "with {right}");
}

/// A password that ends with its connection costs no hold: the next connection asks for the new one.
async fn credentials_that_change_are_asked_for_again() {
    let server = server().await;
    let password = Arc::new(Mutex::new("first"));
    let set = async |new: &'static str| {
        *password.lock() = new;
        let words = ["ACL", "SETUSER", "app", "on", "resetpass", &format!(">{new}"), "~*", "&*", "+@all"];
        ok(&server, &words).await;
    };
    set("first").await;
    let asked = Arc::clone(&password);
    let ask = move || std::future::ready(Ok(Credentials::new("app", *asked.lock())));
    let locks = open_for(direct(&server).credentials_from(ask), LONG).await;
    let guard = hold(&locks).await;
    set("second").await;
    command(&server, &["CLIENT", "KILL", "USER", "app"]).await;
    eventually("it is renewed", async || guard.renew().await.is_ok()).await;
    guard.release().await.unwrap();
}

/// The open sockets, those for requests, messages and replicas, log in again, so that the end of the first user costs none of
/// them. Credentials that the server does not take yet are offered again.
async fn credentials_are_renewed_before_they_end() {
    let server = server().await;
    let _replica = replica_of(&server).await;
    let set =
        async |user: &str| ok(&server, &["ACL", "SETUSER", user, "on", ">secret", "~*", "&*", "+@all"]).await;
    set("first").await;
    let user = Arc::new(Mutex::new("first"));
    let now = Arc::clone(&user);
    let ask = move || std::future::ready(Ok(Credentials::new(*now.lock(), "secret").valid_for(TTL)));
    let locks = open_for(direct(&server).wait_replicas(1).credentials_from(ask), LONG).await;
    let sockets = async |user: &str| {
        let list = command(&server, &["CLIENT", "LIST"]).await.text().unwrap();
        let of_user = format!(" user={user} ");
        let ids = list.lines().filter(|line| line.contains(&of_user)).map(|line| line.split(' ').next());
        ids.map(|id| id.unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    let before = sockets("first").await;
    assert_eq!(before.len(), 3, "{before:?}");
    *user.lock() = "second";
    eventually("the server refuses a user that it does not know", async || {
        !command(&server, &["ACL", "LOG"]).await.elements().is_empty()
    })
    .await;
    set("second").await;
    eventually("each socket has logged in again", async || sockets("second").await == before).await;
    assert_eq!(command(&server, &["ACL", "DELUSER", "first"]).await.integer(), Some(1));

    let other = open_for(direct(&server), LONG).await;
    let guard = hold(&other).await;
    let waiting = Waiter::queued(&locks, 0, &other).await;
    guard.release().await.unwrap();
    let guard = waiting.held().await;
    guard.renew().await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(sockets("second").await, before);
}

async fn a_unix_socket_is_a_way() {
    let server = server().await;
    let (near, far) = (open(RedisConfig::unix(server.socket())).await, open(direct(&server)).await);
    let guard = hold(&near).await;
    let waiting = Waiter::queued(&far, 0, &near).await;
    guard.release().await.unwrap();
    waiting.held().await.release().await.unwrap();

    let url = format!("redis+unix://{}?db=0", server.socket().display());
    let locks = open(RedisConfig::from_url(&mut url.parse().unwrap()).unwrap()).await;
    hold(&locks).await.release().await.unwrap();
}

async fn databases_keep_their_own_locks() {
    let server = server().await;
    let one = open(direct(&server)).await;
    let (other, third) = (open(direct(&server).database(1)).await, open(direct(&server).database(1)).await);
    let guard = hold(&one).await;
    let independent = hold(&other).await;
    let waiting = Waiter::queued(&third, 0, &other).await;
    guard.ensure_held().unwrap();
    independent.release().await.unwrap();
    waiting.held().await.release().await.unwrap();
    guard.release().await.unwrap();
}

/// What the configuration accepts as prefix works, messages included; the same name under two prefixes
/// is two locks.
async fn a_prefix_may_be_any_that_is_accepted() {
    let server = server().await;
    let mut held = Vec::new();
    for prefix in ["a", "a:b", "ä/b", "%", "*", "[a]?", "\\", "'\"", "a b", "-1"] {
        let open = || open_for(direct(&server).prefix(prefix), LONG);
        let (a, b) = (open().await, open().await);
        let guard = a.lock(NAME).unwrap().try_acquire().await.unwrap().expect("it is free");
        let waiting = Waiter::queued(&b, 0, &a).await;
        let listed = a.list("").await.unwrap();
        assert_eq!(listed.len(), 1, "{prefix:?}: {listed:?}");
        guard.release().await.unwrap();
        held.push((a, waiting.held().await));
    }
    for (_, guard) in held {
        guard.release().await.unwrap();
    }
}
