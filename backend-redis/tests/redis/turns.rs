//! The needs of a lock that foreign clients take too: requests, memory and rights. `tests/foreign` shows the turns.

use futures_util::StreamExt;
use futures_util::future::join_all;
use leasehold_core::backend::{Severity, StoreEvent};
use leasehold_core::{Effect, ErrorKind};

use crate::access::{documented_rights, everything, loaded, refusals, user};
use crate::counts::Requests;
use crate::fixture::{
    LONG, NAME, TTL, Waiter, command, direct, eventually, hold, ok, open, open_for, server, store, trials,
};
use crate::foreign::{CHANNEL, ForeignClient, Kind, with_foreign};

trials![
    where_nobody_listens_ours_hand_on_as_ever,
    a_release_of_a_name_with_braces_is_said,
    a_full_server_lets_go_of_strings = || full(Kind::String),
    a_full_server_lets_go_of_hashes = || full(Kind::Redisson),
    a_full_server_lets_go_of_locks_of_spring = || full(Kind::Spring),
    a_full_server_lets_go_of_locks_of_python_redis_lock = || full(Kind::PythonRedisLock),
    the_rights_named_for_strings_are_enough = || rights(Kind::String),
    the_rights_named_for_hashes_are_enough = || rights(Kind::Redisson),
    the_rights_named_for_spring_are_enough = || rights(Kind::Spring),
    the_rights_named_for_python_redis_lock_are_enough = || rights(Kind::PythonRedisLock),
    a_huge_string_is_not_read = || is_not_read(Kind::String),
    a_huge_hash_is_not_read = || is_not_read(Kind::Redisson),
    a_huge_string_of_spring_is_not_read = || is_not_read(Kind::Spring),
    a_huge_string_of_python_redis_lock_is_not_read = || is_not_read(Kind::PythonRedisLock),
    without_the_right_to_listen_a_poll_finds_it,
    the_diagnosis_names_each_right_that_is_missing,
];

/// A cycle is two requests, as without a format.
async fn where_nobody_listens_ours_hand_on_as_ever() {
    const CYCLES: u64 = 30;
    let server = server().await;
    direct(&server).load_scripts().await.unwrap();
    let managers = join_all((0..4).map(|_| open_for(Kind::Redisson.config(&server), LONG))).await;
    Requests::begin(&server).await;
    join_all(managers.iter().map(async |locks| {
        for _ in 0..CYCLES {
            hold(locks).await.release().await.unwrap();
        }
    }))
    .await;
    let mut requests = Requests::since(&server).await;
    for in_scripts in ["hlen", "hexists", "pubsub|numsub"] {
        requests.0.remove(in_scripts);
    }
    assert_eq!(requests.total(), 2 * 4 * CYCLES, "{:?}", requests.0);
}

/// The channel has no braces of its own then.
async fn a_release_of_a_name_with_braces_is_said() {
    let server = server().await;
    let locks = open_for(Kind::Redisson.config(&server), LONG).await;
    let mut push_receiver = server.client().await.unwrap();
    push_receiver.command(&["SUBSCRIBE", "redisson_lock__channel:{a}b"]).await.unwrap();
    locks.lock("{a}b").unwrap().acquire().await.unwrap().release().await.unwrap();
    assert_eq!(push_receiver.reply().await.unwrap().elements()[2].text().as_deref(), Some("0"));
}

/// Refuses new holds, renews and passes on those it has, and yields them to foreign clients.
async fn full(kind: Kind) {
    let (server, mut foreign) = with_foreign(kind).await;
    let ttl = 3 * TTL;
    let config = || direct(&server).format(kind.format().yield_after(1));
    let (a, b, c) =
        (open_for(config(), ttl).await, open_for(config(), ttl).await, open_for(config(), LONG).await);
    let mut push_receiver = server.client().await.unwrap();
    let message = kind.message();
    let channel = message.as_ref().map_or("none", |(channel, _)| channel);
    push_receiver.command(&["SUBSCRIBE", channel]).await.unwrap();
    let guard = hold(&a).await;
    let (first, second) = (Waiter::queued(&b, 0, &a).await, Waiter::queued(&c, 1, &a).await);
    ok(&server, &["CONFIG", "SET", "maxmemory", "1"]).await;
    let refused = b.lock("another").unwrap().try_acquire().await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.effect()),
        (&ErrorKind::Unavailable, Effect::NotApplied),
        "{refused}"
    );
    assert!(format!("{refused:?}").contains("OOM"), "{refused:?}");
    guard.renew().await.unwrap();
    guard.release().await.unwrap();
    first.held().await.release().await.unwrap();
    // The turn of foreign clients, for which a full server has no memory.
    second.held().await.release().await.unwrap();
    // Those who wait are woken all the same.
    if let Some((_, text)) = message {
        assert_eq!(push_receiver.reply().await.unwrap().elements()[2].text(), Some(text));
    }
    if kind == Kind::PythonRedisLock {
        let element = command(&server, &["BLPOP", &format!("lock-signal:{NAME}"), "1"]).await;
        assert_eq!(element.elements()[1].text().as_deref(), Some("1"));
    }
    ok(&server, &["CONFIG", "SET", "maxmemory", "0"]).await;
    assert!(foreign.takes(Some(60_000)).await);
    assert!(foreign.releases().await);
}

/// Whatever a foreign client has put there, no script reads more of it than can be ours: Lua's memory would show it.
async fn is_not_read(kind: Kind) {
    const HUGE: usize = 8 << 20;
    let server = server().await;
    match kind {
        Kind::Redisson => command(&server, &["HSET", NAME, &"x".repeat(HUGE), "1"]).await,
        _ => command(&server, &["SETRANGE", &kind.key(), &HUGE.to_string(), "x"]).await,
    };
    let locks = open(kind.config(&server)).await;
    assert!(locks.lock(NAME).unwrap().try_acquire().await.unwrap().is_none());
    drop(Waiter::queued(&locks, 0, &locks).await);
    eventually("it has left", async || locks.inspect(NAME).await.unwrap().contenders == 0).await;
    let lua = server.info("memory").await.unwrap()["used_memory_vm_eval"].trim().parse::<usize>().unwrap();
    assert!(lua < HUGE / 2, "{lua} bytes");
}

/// The rights that the page adds for the format.
fn named(kind: Kind) -> Vec<&'static str> {
    const PAGE: &str = include_str!("../../../docs/src/redis-operations.md");
    let option = match kind {
        Kind::String => "`format=string`",
        Kind::Redisson => "`format=redisson`",
        Kind::Spring => "`format=spring&registry=app`",
        Kind::PythonRedisLock => "`format=python-redis-lock`",
    };
    let row =
        PAGE.lines().find(|line| line.starts_with("| `") && line.contains("+type") && line.contains(option));
    let rights = row.expect("the page names them").split('`').nth(1).unwrap();
    rights
        .split(' ')
        .map(|right| if right.starts_with("+pubsub") { "+pubsub|numsub" } else { right })
        .collect()
}

async fn rights(kind: Kind) {
    let server = loaded().await;
    let [keys, warm] = ["invoice/*", "warm"].map(|name| format!("~{}", kind.key().replace(NAME, name)));
    let given = [documented_rights(), named(kind), vec![&*keys, &*warm]].concat();
    let config = user(&server, &given).await.format(kind.format().yield_after(1));
    everything(|| config.clone()).await.unwrap();
    let mut foreign = ForeignClient::of(kind, &server).await;
    assert!(foreign.takes(Some(60_000)).await);
    let (a, b) = (open_for(config.clone(), LONG).await, open_for(config.clone(), LONG).await);
    let waiting = Waiter::queued(&a, 0, &b).await;
    assert!(foreign.releases().await);
    waiting.held().await.release().await.unwrap();
    command(&server, &["LPUSH", &kind.key(), "x"]).await;
    let refused = a.lock(NAME).unwrap().try_acquire().await.unwrap_err();
    assert!(format!("{refused:#}").contains("is a list"), "{refused:#}");
    assert_eq!(refusals(&server).await, Vec::<String>::new());
    if kind == Kind::Redisson {
        ok(&server, &["ACL", "SETUSER", "billing", "-hlen"]).await;
        let refused = b.lock(NAME).unwrap().try_acquire().await.unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::Denied, "{refused}");
    }
}

/// It is said once, by an event and by the diagnosis.
async fn without_the_right_to_listen_a_poll_finds_it() {
    let (server, mut foreign) = with_foreign(Kind::Redisson).await;
    let user = ["ACL", "SETUSER", "app", "on", ">secret", "~*", "resetchannels", "&leasehold:*", "+@all"];
    ok(&server, &user).await;
    let config = || Kind::Redisson.config(&server).credentials("app", "secret");
    let (a, b) = (open_for(config(), LONG).await, open_for(config(), LONG).await);
    let backend = store(config()).await;
    let mut events = backend.events();
    assert!(foreign.takes(Some(600_000)).await);
    let (waits, acquired) = (crate::lost::request(9), Waiter::queued(&a, 0, &b).await);
    drop(acquired);
    eventually("it has left", async || b.inspect(NAME).await.unwrap().contenders == 0).await;
    let told = async {
        loop {
            if let Some(StoreEvent::Warning(said)) = events.next().await {
                return said;
            }
        }
    };
    tokio::select! {
        granted = backend.acquire(&waits) => panic!("{granted:?}"),
        said = told => assert!(said.contains(CHANNEL), "{said}"),
    }
    eventually("it has left, too", async || b.inspect(NAME).await.unwrap().contenders == 0).await;
    let (severity, said) = crate::diagnosis::of(&a, "foreign clients").await;
    assert!(severity == Severity::Warning && said.contains("redisson_lock__channel:"), "{said}");
    let waiting = Waiter::queued(&a, 0, &b).await;
    assert!(foreign.releases().await);
    waiting.held().await.release().await.unwrap();
}

/// One at a time: no other is said to be missing, and the rest is diagnosed all the same.
async fn the_diagnosis_names_each_right_that_is_missing() {
    let server = server().await;
    for (taken, named) in [("-unsubscribe", "+unsubscribe"), ("-pubsub|numsub", "+pubsub|numsub")] {
        let user = ["ACL", "SETUSER", "app", "reset", "on", ">secret", "~*", "&*", "+@all", taken];
        ok(&server, &user).await;
        let locks = open(Kind::Redisson.config(&server).credentials("app", "secret")).await;
        let (severity, said) = crate::diagnosis::of(&locks, "foreign clients").await;
        assert!(severity == Severity::Warning && said.contains(named), "{taken}: {said}");
        assert_eq!(said.matches("grant").count(), 1, "{taken}: {said}");
    }
}
