//! A server that restarts and has forgotten holders, with a pause.

use std::time::Duration;

use leasehold_core::{Effect, ErrorKind, LockGuard, LockManager, LostReason};
use leasehold_redis::RedisConfig;
use testbed::Mode;
use testbed::redis::{Server, Settings};

use crate::access::{documented_rights, everything, loaded, refusals, user};
use crate::counts::Requests;
use crate::fixture::{
    KEY, LONG, NAME, TTL, Waiter, command, direct, eventually, hold, ok, open, open_for, pass, proxy, server,
    start, trials_on_both, via, warm,
};

trials_on_both![
    nobody_is_granted_before_the_pause_is_over,
    replicas_are_waited_for_within_the_pause,
    caller_after_the_pause_is_granted_at_once,
    server_made_the_primary_again_pauses_for_newcomers,
    managers_without_the_pause_do_not_keep_it,
    another_pause_is_refused,
    a_longer_ttl_is_refused_before_any_request,
    a_pause_costs_a_request_for_each_connection,
    without_its_right_the_pause_is_denied,
    a_full_server_that_has_restarted_admits_who_holds,
];

/// Longer than the ttl, so that the pause is the cause of a late grant.
const PAUSE: Duration = Duration::from_secs(5);

const ORIGIN: &str = "leasehold:{%origin}";

fn pausing(server: &Server) -> RedisConfig {
    direct(server).pause_after_restart(PAUSE)
}

/// Until when nothing is granted, by the server's clock.
async fn paused_until(server: &Server) -> u64 {
    let origin = command(server, &["GET", ORIGIN]).await.text().expect("somebody has come");
    let since: u64 = origin.split(' ').nth(2).unwrap().parse().unwrap();
    since + u64::try_from(PAUSE.as_micros()).unwrap()
}

/// A counter is not below the server's clock, and here never above it.
fn assert_granted_after(guard: &LockGuard, until: u64) {
    let counter = guard.token().counter();
    assert!(counter >= until, "{counter} was granted before {until}");
}

/// Lets the pause be over.
pub(crate) async fn over(server: &Server, prefix: &str, pause: Duration) {
    over_as(server, prefix, &pause.as_millis().to_string()).await;
}

/// The same of a pause as the server notes it.
pub(crate) async fn over_as(server: &Server, prefix: &str, pause: &str) {
    let field = async |section, field| server.info(section).await.unwrap()[field].trim().to_owned();
    let (run, replid) = (field("server", "run_id").await, field("replication", "master_replid").await);
    let origin = format!("{run} {replid} 1 {pause}");
    ok(server, &["SET", &format!("{prefix}:{{%origin}}"), &origin]).await;
}

/// It answers, and does not grant.
pub(crate) async fn assert_busy(locks: &LockManager) {
    eventually("the server answers", async || match locks.lock(NAME).unwrap().try_acquire().await {
        Ok(granted) => granted.is_none() || panic!("it was granted"),
        Err(_) => false,
    })
    .await;
}

pub(crate) async fn restart_empty(server: &mut Server) {
    server.kill().await.unwrap();
    server.start_empty().await.unwrap();
}

/// No try and no waiter is granted the lock while the former holder may hold; then the waiter is, with a larger token.
async fn nobody_is_granted_before_the_pause_is_over() {
    let mut server = server().await;
    over(&server, "leasehold", PAUSE).await;
    let proxy = proxy(&server);
    let a = open_for(via(&proxy).pause_after_restart(PAUSE), PAUSE).await;
    let (b, c) = (open_for(pausing(&server), PAUSE).await, open_for(pausing(&server), PAUSE).await);
    let guard = hold(&a).await;
    let waiting = Waiter::queued(&b, 0, &c).await;
    proxy.set_both(Mode::Blackhole).await;
    restart_empty(&mut server).await;

    assert_busy(&c).await;
    guard.ensure_held().expect("its lease is not over");
    let leaving = Waiter::queued(&c, 1, &c).await;
    drop(leaving);
    eventually("one has left", async || c.inspect(NAME).await.is_ok_and(|state| state.contenders == 1)).await;
    assert_eq!(guard.lost().await, LostReason::Expired);
    let next = waiting.held().await;
    assert_granted_after(&next, paused_until(&server).await);
    assert!(next.token() > guard.token());
    next.release().await.unwrap();
}

/// Requests that replicas confirm have a connection of their own, with the same pause. A replica admits nobody, whatever the
/// others have set; once it takes over, it pauses.
async fn replicas_are_waited_for_within_the_pause() {
    let server = server().await;
    let replica = start(Settings::new().replica_of(server.addr())).await;
    replica.follows().await.unwrap();
    let locks = open(pausing(&server).wait_replicas(1)).await;
    let guard = hold(&locks).await;
    assert_granted_after(&guard, paused_until(&server).await);
    guard.release().await.unwrap();
    locks.shutdown().await.unwrap();

    let other = LockManager::builder(direct(&replica).pause_after_restart(PAUSE * 2)).ttl(TTL);
    let refused = other.build().await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.effect()),
        (&ErrorKind::Unavailable, Effect::NotApplied),
        "{refused}"
    );
    ok(&replica, &["REPLICAOF", "NO", "ONE"]).await;
    assert_busy(&open(pausing(&replica)).await).await;
}

/// The first manager waits, as a server that is new to all may have forgotten everything; later ones wait no
/// longer than that.
async fn caller_after_the_pause_is_granted_at_once() {
    let server = server().await;
    let first = open(pausing(&server)).await;
    assert!(first.lock(NAME).unwrap().try_acquire().await.unwrap().is_none());
    let until = paused_until(&server).await;
    pass(PAUSE).await;
    let later = open(pausing(&server)).await;
    let guard = later.lock(NAME).unwrap().try_acquire().await.unwrap().expect("the pause is over");
    assert_eq!(paused_until(&server).await, until);
    guard.release().await.unwrap();
    assert!(first.lock(NAME).unwrap().try_acquire().await.unwrap().is_some());
}

/// It has followed the replica that took over, and so lost the lock. The same process is another reign for newcomers. A client
/// whose connection nobody closed is granted the lock at once.
async fn server_made_the_primary_again_pauses_for_newcomers() {
    let server = server().await;
    over(&server, "leasehold", PAUSE).await;
    let replica = start(Settings::new().replica_of(server.addr())).await;
    replica.follows().await.unwrap();
    ok(&replica, &["REPLICAOF", "NO", "ONE"]).await;
    let (a, b) = (open(pausing(&server)).await, open(pausing(&server)).await);
    let held = hold(&a).await;
    let (host, port) = (replica.addr().ip().to_string(), replica.addr().port().to_string());
    ok(&server, &["REPLICAOF", &host, &port]).await;
    eventually("it has the replica's data", async || {
        command(&server, &["EXISTS", KEY]).await.integer() == Some(0)
    })
    .await;
    ok(&server, &["REPLICAOF", "NO", "ONE"]).await;
    assert_busy(&open(pausing(&server)).await).await;
    let beside = b.lock(NAME).unwrap().try_acquire().await.unwrap();
    assert!(beside.is_some_and(|beside| beside.token() > held.token()));
}

async fn managers_without_the_pause_do_not_keep_it() {
    let server = server().await;
    let (a, b) =
        (open_for(direct(&server).pause_after_restart(LONG), LONG).await, open(direct(&server)).await);
    let waiting = Waiter::queued(&a, 0, &b).await;
    assert!(a.lock("another").unwrap().try_acquire().await.unwrap().is_none());
    assert!(b.lock("another").unwrap().try_acquire().await.unwrap().is_some());
    assert!(b.lock(NAME).unwrap().try_acquire().await.unwrap().is_none());
    waiting.held().await.release().await.unwrap();
}

/// One that is shorter would grant what another still holds, which a server that has forgotten cannot know.
async fn another_pause_is_refused() {
    let server = server().await;
    let _first = open(pausing(&server)).await;
    for other in [PAUSE * 2, PAUSE - Duration::from_secs(1)] {
        let config = direct(&server).pause_after_restart(other);
        let refused = LockManager::builder(config).ttl(TTL).build().await.unwrap_err();
        assert_eq!((refused.kind(), refused.effect()), (&ErrorKind::InvalidOption, Effect::NotApplied));
        assert!(refused.to_string().contains("5s") && refused.to_string().contains(ORIGIN), "{refused}");
    }
    command(&server, &["DEL", ORIGIN]).await;
    open(direct(&server).pause_after_restart(PAUSE * 2)).await;
}

/// What is held must be over when the pause is: the manager's own ttl, and that of a lock.
async fn a_longer_ttl_is_refused_before_any_request() {
    // No server listens there.
    let nowhere = RedisConfig::new("127.0.0.1", 1).pause_after_restart(TTL);
    let refused = LockManager::builder(nowhere).ttl(2 * TTL).build().await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::InvalidOption, "{refused}");
    assert!(refused.to_string().contains("pause_after_restart=2s"), "{refused}");

    let server = server().await;
    let locks = open(pausing(&server)).await;
    Requests::begin(&server).await;
    let lock = locks.lock(NAME).unwrap().ttl(PAUSE + TTL);
    for refused in [lock.try_acquire().await.unwrap_err(), lock.acquire().await.unwrap_err()] {
        assert_eq!(*refused.kind(), ErrorKind::InvalidOption, "{refused}");
    }
    assert_eq!(Requests::since(&server).await.total(), 0);
}

/// Two requests a cycle, as without it, in every mode.
async fn a_pause_costs_a_request_for_each_connection() {
    let server = server().await;
    over(&server, "leasehold", PAUSE).await;
    direct(&server).load_scripts().await.unwrap();
    Requests::begin(&server).await;
    let locks = open_for(pausing(&server), PAUSE).await;
    assert_eq!(Requests::since(&server).await.0.remove("evalsha"), Some(1));
    let locks = warm(locks).await;
    Requests::begin(&server).await;
    for _ in 0..10 {
        hold(&locks).await.release().await.unwrap();
        locks.lock(NAME).unwrap().shared().acquire().await.unwrap().release().await.unwrap();
    }
    assert_eq!(Requests::since(&server).await.total(), 40);
}

async fn without_its_right_the_pause_is_denied() {
    let server = loaded().await;
    let pause = 5 * TTL;
    over(&server, "billing", pause).await;
    let config = user(&server, &documented_rights()).await;
    everything(|| config.clone()).await.unwrap();
    let refused = everything(|| config.clone().pause_after_restart(pause)).await.unwrap_err();
    assert_eq!((refused.kind(), refused.effect()), (&ErrorKind::Denied, Effect::NotApplied), "{refused}");
    assert!(refused.to_string().contains("grant +info"), "{refused}");

    let config = user(&server, &[documented_rights(), vec!["+info"]].concat()).await;
    ok(&server, &["ACL", "LOG", "RESET"]).await;
    everything(|| config.clone().pause_after_restart(pause)).await.unwrap();
    assert_eq!(refusals(&server).await, Vec::<String>::new());
}

async fn a_full_server_that_has_restarted_admits_who_holds() {
    let server = server().await;
    let proxy = proxy(&server);
    over(&server, "leasehold", PAUSE).await;
    let locks = open_for(via(&proxy).pause_after_restart(PAUSE), PAUSE).await;
    let guard = hold(&locks).await;
    // As another run has left it.
    ok(&server, &["SET", ORIGIN, "abc abc 1 5000"]).await;
    ok(&server, &["CONFIG", "SET", "maxmemory", "1"]).await;
    proxy.reset().await;
    eventually("it is renewed", async || guard.renew().await.is_ok()).await;
    assert!(!command(&server, &["GET", ORIGIN]).await.text().unwrap().starts_with("abc"));
    guard.release().await.unwrap();
}
