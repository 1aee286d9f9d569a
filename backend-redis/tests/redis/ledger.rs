//! The ledger on a real server: what it leaves there, what it may do, and what else is written there.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::ledger::{MoveLedger, Written};
use leasehold_core::backend::{Severity, StoreConfig};
use leasehold_core::{Effect, Env, ErrorKind, FencingToken, LostReason, OwnerId, Result, Revoke, Timing};
use leasehold_redis::RedisConfig;
use testbed::redis::{Server, Settings};

use crate::access::{documented_rights, loaded, refusals, user};
use crate::diagnosis::of;
use crate::fixture::{
    BOUND, Beside, KEY, LONG, NAME, TTL, command, direct, eventually, exists, hold, ok, open, open_for,
    proxy, server, start, trials, via, within,
};

trials![
    members_end_by_themselves_and_the_record_stays,
    versions_grow_also_when_the_record_is_lost,
    foreign_text_is_no_record,
    returning_client_is_admitted_again,
    a_full_server_keeps_who_has_signed,
    replicas_are_waited_for,
    a_barred_session_renews_nothing_by_its_other_connection,
    the_documented_rights_are_enough,
    without_its_scripts_only_the_ledger_is_denied,
];

const RECORD: &str = "leasehold:{%move}:record";
const MEMBERS: [&str; 2] = ["leasehold:{%move}:members", "leasehold:{%move}:until"];

pub(crate) fn env(ttl: Duration) -> Env {
    let mut timing = Timing::for_ttl(ttl);
    timing.connect_timeout = BOUND;
    Env::new(timing).unwrap()
}

/// The ledger of a session that moves locks.
pub(crate) async fn ledger(config: RedisConfig) -> Arc<dyn MoveLedger> {
    ledger_for(config, LONG).await
}

async fn ledger_for(config: RedisConfig, ttl: Duration) -> Arc<dyn MoveLedger> {
    config.open(env(ttl).without_token_base()).await.unwrap().ledger().unwrap()
}

fn member(id: u8) -> OwnerId {
    OwnerId::from_random([id; 16])
}

async fn written(ledger: &dyn MoveLedger, expected: Option<u64>, value: &str) -> u64 {
    match ledger.write(expected, value.as_bytes()).await.unwrap() {
        Written::Done(version) => version,
        Written::Conflict => panic!("{expected:?} is not in force: {:?}", ledger.read().await),
    }
}

async fn left(server: &Server, key: &str) -> i64 {
    command(server, &["PTTL", key]).await.integer().unwrap()
}

async fn members_end_by_themselves_and_the_record_stays() {
    let server = server().await;
    let ledger = ledger_for(direct(&server), TTL).await;
    written(&*ledger, None, "1 old old").await;
    ledger.sign(member(1), b"value").await.unwrap();
    for key in MEMBERS {
        let left = left(&server, key).await;
        assert!(0 < left && left <= TTL.as_millis().try_into().unwrap(), "{key} for {left} ms");
    }
    assert_eq!(left(&server, RECORD).await, -1);
    assert_eq!(open(direct(&server)).await.list("").await.unwrap(), []);
    for key in MEMBERS {
        eventually("it is gone", async || !exists(&server, key).await).await;
    }
    assert!(exists(&server, RECORD).await);
}

/// As after a restart without data, or a FLUSHALL: a later record differs from every earlier one.
async fn versions_grow_also_when_the_record_is_lost() {
    let server = server().await;
    let ledger = ledger(direct(&server)).await;
    let first = written(&*ledger, None, "a").await;
    let second = written(&*ledger, Some(first), "b").await;
    ok(&server, &["FLUSHALL"]).await;
    assert!(ledger.read().await.unwrap().is_none());
    assert!(written(&*ledger, None, "a").await > second);
    // Also where the clock was ahead.
    ok(&server, &["SET", RECORD, "4000000000000000 a"]).await;
    assert_eq!(written(&*ledger, Some(4_000_000_000_000_000), "b").await, 4_000_000_000_000_001);
}

/// A session that takes no part was disconnected when the namespace was barred, so it was not counted. After the reconnect
/// it is granted nothing before the bar is gone.
async fn returning_client_is_admitted_again() {
    let server = server().await;
    let proxy = proxy(&server);
    let (locks, ledger) = (open_for(via(&proxy), LONG).await, ledger(direct(&server)).await);
    let moving = ledger_for(via(&proxy), LONG).await;
    let version = written(&*ledger, None, "1 old old").await;
    hold(&locks).await.release().await.unwrap();
    proxy.reset().await;
    hold(&locks).await.release().await.unwrap();

    let barred = written(&*ledger, Some(version), "1 old shadow").await;
    proxy.reset().await;
    eventually("it is refused", async || {
        let refused = locks.lock(NAME).unwrap().try_acquire().await;
        refused.is_err_and(|error| {
            *error.kind() == ErrorKind::Misuse && error.to_string().contains("migrate_to")
        })
    })
    .await;
    assert!(!exists(&server, KEY).await);
    moving.read().await.unwrap();
    written(&*ledger, Some(barred), "1 old old").await;
    eventually("it is admitted", async || {
        locks.lock(NAME).unwrap().try_acquire().await.is_ok_and(|guard| guard.is_some())
    })
    .await;

    // The base was raised while it was away; what it has held all the time goes on by the number that it has.
    let held = locks.lock("held").unwrap().acquire().await.unwrap();
    let other = open_for(direct(&server), LONG).await;
    let seen = FencingToken::new(FencingToken::MAX_COUNTER / 2, 7).unwrap();
    other.raise_token_base(seen).await.unwrap();
    proxy.reset().await;
    eventually("its tokens are larger", async || {
        let granted = locks.lock(NAME).unwrap().try_acquire().await;
        granted.is_ok_and(|guard| guard.is_some_and(|guard| guard.token() > seen))
    })
    .await;
    let revoked = Beside::start(async move { other.revoke("held", Revoke::Ask { grace: LONG }).await });
    within(BOUND, "it hears that it is to let go", held.revocation_requested()).await;
    held.release().await.unwrap();
    revoked.end("it is released").await.unwrap();
}

/// It is neither believed nor written over, and bars plain sessions, not those that move; among members it is
/// passed over.
async fn foreign_text_is_no_record() {
    let server = server().await;
    let ledger = ledger(direct(&server)).await;
    let barred = async || {
        let opened = direct(&server).open(env(LONG)).await;
        assert_eq!(*opened.unwrap_err().kind(), ErrorKind::Protocol);
        self::ledger(direct(&server)).await;
    };
    for strange in ["", "7", "a b", " 7 a", "-7 a", "+7 a", "07 a"] {
        ok(&server, &["SET", RECORD, strange]).await;
        assert_eq!(*ledger.read().await.unwrap_err().kind(), ErrorKind::Protocol, "{strange:?}");
        assert_eq!(ledger.write(None, b"ours").await.unwrap(), Written::Conflict, "{strange:?}");
        barred().await;
    }
    ok(&server, &["FLUSHALL"]).await;
    command(&server, &["RPUSH", RECORD, "7 a"]).await;
    assert_eq!(ledger.read().await.unwrap(), None);
    assert_eq!(*ledger.write(None, b"ours").await.unwrap_err().kind(), ErrorKind::Protocol);

    ledger.sign(member(1), b"value").await.unwrap();
    let (large, far) = ("x".repeat(8 << 20), "9000000000000000");
    for id in ["nobody", "", &large, &member(2).to_hex(), &member(3).to_hex()] {
        command(&server, &["ZADD", MEMBERS[1], far, id]).await;
    }
    let entry = format!("a 1 {large}");
    command(&server, &["HSET", MEMBERS[0], &member(3).to_hex(), &entry]).await;
    let members = ledger.members().await.unwrap();
    let mut ids: Vec<_> = members.iter().map(|member| member.id).collect();
    ids.sort();
    assert_eq!(ids, [member(1), member(3)]);
    assert!(members.iter().all(|member| member.value.len() < 5_000));
    let many = "for id = 1, 2e5 do redis.call('ZADD', KEYS[1], ARGV[1], string.format('%032x', id)) end";
    command(&server, &["EVAL", many, "1", MEMBERS[1], far]).await;
    let refused = ledger.members().await.unwrap_err();
    assert!(
        refused.to_string().contains("at least 10001 participants") && *refused.kind() == ErrorKind::Protocol,
        "{refused}"
    );
}

async fn a_full_server_keeps_who_has_signed() {
    let server = server().await;
    let ledger = ledger(direct(&server)).await;
    let first = ledger.sign(member(1), b"value").await.unwrap();
    ok(&server, &["CONFIG", "SET", "maxmemory", "1"]).await;
    let second = ledger.sign(member(1), b"value").await.unwrap();
    assert_eq!(first.id, second.id);
    ledger.unsign(member(1)).await.unwrap();
    assert!(ledger.members().await.unwrap().is_empty());
}

/// With `wait_replicas` a record counts as a grant does; what it wrote stands all the same.
async fn replicas_are_waited_for() {
    let primary = server().await;
    let replica = start(Settings::new().replica_of(primary.addr())).await;
    replica.follows().await.unwrap();
    let one = ledger(direct(&primary).wait_replicas(1)).await;
    let version = written(&*one, None, "a").await;
    assert_eq!(command(&replica, &["GET", RECORD]).await.text().unwrap(), format!("{version} a"));
    one.sign(member(1), b"value").await.unwrap();
    assert!(exists(&replica, MEMBERS[0]).await);

    let two = ledger(direct(&primary).wait_replicas(2)).await;
    let unconfirmed = two.write(Some(version), b"b").await.unwrap_err();
    assert_eq!((unconfirmed.kind(), unconfirmed.effect()), (&ErrorKind::Unavailable, Effect::Unknown));
    assert_eq!(two.read().await.unwrap().unwrap().value, b"b");
}

/// With `wait_replicas` renewals have a connection of their own, which reads no record: where the record bars the session
/// when its first connection is back, what it holds ends all the same.
async fn a_barred_session_renews_nothing_by_its_other_connection() {
    let primary = server().await;
    let replica = start(Settings::new().replica_of(primary.addr())).await;
    replica.follows().await.unwrap();
    let ledger = ledger(direct(&primary)).await;
    let version = written(&*ledger, None, "1 old old").await;
    let locks = open(direct(&primary).wait_replicas(1)).await;
    let guard = hold(&locks).await;
    written(&*ledger, Some(version), "1 old shadow").await;
    command(&primary, &["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    assert_eq!(within(BOUND, "its lease ends", guard.lost()).await, LostReason::Expired);
}

/// Everything that a ledger is asked.
async fn everything(ledger: &dyn MoveLedger) -> Result<()> {
    let version = ledger.read().await?.map(|record| record.version);
    ledger.write(version, b"record").await?;
    ledger.sign(member(1), b"value").await?;
    assert_eq!(ledger.members().await?.len(), 1);
    ledger.unsign(member(1)).await
}

/// The page's line allows all of it where the scripts are kept; with `+eval` they are brought.
async fn the_documented_rights_are_enough() {
    for rights in [documented_rights(), [documented_rights(), vec!["+eval"]].concat()] {
        let server = loaded().await;
        let ledger = ledger(user(&server, &rights).await).await;
        everything(&*ledger).await.unwrap();
        if rights.contains(&"+eval") {
            ok(&server, &["SCRIPT", "FLUSH"]).await;
            everything(&*ledger).await.unwrap();
        }
        assert_eq!(refusals(&server).await, Vec::<String>::new());
    }
}

/// A server that keeps what locks need, and was not given the new scripts: the ledger says what helps, and so does
/// `doctor`.
async fn without_its_scripts_only_the_ledger_is_denied() {
    let server = server().await;
    // A user that may bring scripts has brought those that it needed.
    let other = open(direct(&server).prefix("billing")).await;
    hold(&other).await.release().await.unwrap();
    other.inspect(NAME).await.unwrap();
    let config = user(&server, &documented_rights()).await;
    let ledger = ledger(config.clone()).await;
    assert!(ledger.read().await.unwrap().is_none());
    for refused in [
        ledger.write(None, b"record").await.map(drop),
        ledger.sign(member(1), b"value").await.map(drop),
        ledger.unsign(member(1)).await,
        ledger.members().await.map(drop),
    ] {
        let refused = refused.unwrap_err();
        assert_eq!((refused.kind(), refused.effect()), (&ErrorKind::Denied, Effect::NotApplied), "{refused}");
        assert!(refused.to_string().contains("leasehold redis-scripts"), "{refused}");
    }
    let locks = open_for(config, LONG).await;
    hold(&locks).await.release().await.unwrap();
    let (severity, said) = of(&locks, "ledger").await;
    assert_eq!(severity, Severity::Warning);
    assert!(said.contains("leasehold redis-scripts"), "{said}");
    direct(&server).load_scripts().await.unwrap();
    everything(&*ledger).await.unwrap();
    assert_eq!(of(&locks, "ledger").await.0, Severity::Ok);
}
