//! Another history of the server begins a larger era: a standby that is promoted, a restore to a point in time, a dump that
//! is restored. Tokens grow, and sessions that live on keep their holds.

use leasehold::{ErrorKind, FencingToken, Guarantees, LockManager, connect};
use testbed::postgres::{Server, Setup};
use testbed::{Beside, Scratch, eventually};

use super::{open, url};
use crate::fixture::{NAME, hold, queued};

fn era(token: FencingToken) -> u64 {
    token.counter() >> 40
}

pub(super) async fn promotion_keeps_the_queue_and_tokens_grow() {
    promoted(false).await;
}

/// Nobody waits until it has what was granted: the grants did.
pub(super) async fn synchronous_standby_has_every_grant() {
    promoted(true).await;
}

/// One holds and one waits while the standby takes over: both go on there, in a larger era.
async fn promoted(is_synchronous: bool) {
    let mut primary = Setup::new().start().await.unwrap();
    let setup = Setup::new();
    let setup = if is_synchronous { setup.setting("synchronous_standby_names=*") } else { setup };
    let standby = setup.follow(&primary).await.unwrap();
    let (hosts, mut more) = (format!("{},{}", primary.addr(), standby.addr()), "");
    if is_synchronous {
        primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'").await.unwrap();
        // The functions need the warning of a cancelled wait all the same.
        primary.sql("ALTER SYSTEM SET client_min_messages = 'error'").await.unwrap();
        primary.sql("SELECT pg_reload_conf()").await.unwrap();
        more = "&replicas=sync";
        let state = async || primary.sql("SELECT sync_state FROM pg_stat_replication").await.unwrap();
        eventually("the standby is synchronous", async || state().await == "sync").await;
    }
    let (one, other) = (open(&hosts, more).await, open(&hosts, more).await);
    assert_eq!(one.guarantees().contains(Guarantees::SURVIVES_FAILOVER), is_synchronous);
    if is_synchronous {
        wait_for_the_standby_is_cancelled(&primary, &standby, &one).await;
    }
    if is_synchronous {
        standby_that_is_not_waited_for_is_noticed(&primary, [&one, &other]).await;
    }
    let guard = hold(&one).await;
    let waiting = queued(&other, 0, &one).await;
    let behind = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn < pg_current_wal_flush_lsn()";
    if !is_synchronous {
        eventually("the standby has it", async || primary.sql(behind).await.unwrap() == "0").await;
    }
    primary.kill().await.unwrap();
    standby.promote().await.unwrap();
    // That commits only with a standby of its own, too.
    let _next = if is_synchronous { Some(Setup::new().follow(&standby).await.unwrap()) } else { None };
    // It asks again until it has found the server that takes writes.
    let late = one.lock("late").unwrap();
    eventually("it holds there", async || match late.acquire().await {
        Ok(late) => era(late.token()) > era(guard.token()),
        Err(error) => {
            assert_eq!(*error.kind(), ErrorKind::Unavailable, "{error:#}");
            false
        }
    })
    .await;
    guard.ensure_held().unwrap();
    assert!(!waiting.is_finished(), "two hold");
    let token = guard.token();
    guard.release().await.unwrap();
    let next = waiting.end("the waiter holds").await;
    assert!(next.token() > token);
    next.release().await.unwrap();
    assert!(era(hold(&other).await.token()) > era(token));
}

/// An administrator does so: the server answers success for what no standby has, and the lock is not held before one has it.
async fn wait_for_the_standby_is_cancelled(primary: &Server, standby: &Server, locks: &LockManager) {
    standby.stop().await.unwrap();
    let lock = locks.lock("cancelled").unwrap();
    let waiting = Beside::start(async move { lock.acquire().await.unwrap() });
    let waits = async |function: &str, what: &str| {
        let which = format!("wait_event = 'SyncRep' AND query LIKE '%.{function}(%'");
        let pids = format!("SELECT {what} FROM pg_stat_activity WHERE {which}");
        !primary.sql(&pids).await.unwrap().is_empty()
    };
    eventually("the wait is cancelled", async || waits("acquire", "pg_cancel_backend(pid)").await).await;
    let goes_on = async || waiting.is_finished() || waits("mine", "pid").await;
    eventually("it asks on another connection", goes_on).await;
    assert!(!waiting.is_finished(), "it holds what no standby has");
    standby.cont().unwrap();
    waiting.end("it holds").await.release().await.unwrap();
}

/// The next renewal finds that commits wait for no standby any more.
async fn standby_that_is_not_waited_for_is_noticed(primary: &Server, managers: [&LockManager; 2]) {
    let set = async |names: &str| {
        let names = format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'");
        primary.sql(&names).await.unwrap();
        primary.sql("SELECT pg_reload_conf()").await.unwrap();
    };
    let (guard, lock) = (hold(managers[0]).await, managers[0].lock("unnoticed").unwrap());
    set("").await;
    let is_noticed = async || {
        let _ = guard.renew().await;
        lock.acquire().await.is_err_and(|error| *error.kind() == ErrorKind::Unsupported)
    };
    eventually("a renewal finds it", is_noticed).await;
    set("*").await;
    drop(guard);
    for locks in managers {
        let lock = locks.lock(NAME).unwrap();
        eventually("it is served again", async || lock.acquire().await.is_ok()).await;
    }
}

/// What was granted after that point is forgotten, and the next token is larger all the same.
pub(super) async fn tokens_grow_after_a_restore_to_a_point_in_time() {
    let archive = Scratch::new("archive").unwrap();
    let mut before = Setup::new().archive(&archive).unwrap().start().await.unwrap();
    let locks = open(before.addr(), "").await;
    hold(&locks).await.release().await.unwrap();
    let backup = before.backup().await.unwrap();
    let kept = hold(&locks).await;
    before.sql("SELECT pg_create_restore_point('here')").await.unwrap();
    let mut latest = kept.token();
    for number in 0..100 {
        latest = locks.lock(format!("{number}")).unwrap().acquire().await.unwrap().token();
    }
    let file = before.sql("SELECT pg_walfile_name(pg_current_wal_lsn())").await.unwrap();
    before.sql("SELECT pg_switch_wal()").await.unwrap();
    eventually("the log is archived", async || archive.path().join(&file).exists()).await;
    before.kill().await.unwrap();

    let restored = Setup::new().restore(backup, &archive, "here").await.unwrap();
    let locks = open(restored.addr(), "").await;
    let next = locks.lock("0").unwrap().acquire().await.unwrap();
    assert!(next.token() > latest && era(next.token()) > era(latest), "{next:?} after {latest}");
    // The holder of then is gone, and its lease, which is given anew, keeps the lock from others.
    assert!(locks.lock(NAME).unwrap().try_acquire().await.unwrap().is_none());
    assert!(hold(&locks).await.token() > latest);
}

pub(super) async fn tokens_grow_after_a_dump_and_its_restore() {
    let server = Setup::new().start().await.unwrap();
    let before = hold(&open(server.addr(), "").await).await;
    server.dump_into("restored").await.unwrap();
    let url = url(server.addr(), "").replace("/postgres?", "/restored?");
    let locks = connect(&url).await.unwrap();
    let next = hold(&locks).await;
    assert!(era(next.token()) > era(before.token()), "{next:?} after {before:?}");
}

/// Eras go up to 8 191: after that no number fits a token, which an error says.
pub(super) async fn era_past_the_last_one_is_refused() {
    let server = Setup::new().start().await.unwrap();
    hold(&open(server.addr(), "").await).await.release().await.unwrap();
    let begin_another = "UPDATE leasehold.origin SET timeline = 9, era = greatest(era, 8190)";
    server.sql(begin_another).await.unwrap();
    let last = hold(&open(server.addr(), "").await).await;
    assert_eq!(era(last.token()), 8191);
    server.sql(begin_another).await.unwrap();
    let next = open(server.addr(), "").await;
    let refused = next.lock("next").unwrap().acquire().await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Protocol, "{refused:#}");
    assert!(refused.to_string().contains("the largest token"), "{refused:#}");
    eventually("nothing is left", async || {
        next.inspect("next").await.is_ok_and(|state| state.holders.is_empty())
    })
    .await;
}
