//! Many contenders of one name: how seldom they ask, how soon the dead among them are passed over, what
//! a long queue costs, and text of a foreign client in it.

use futures_util::FutureExt;
use futures_util::future::join_all;
use leasehold_core::Revoke;
use testbed::redis::{Client, Reply, Server};

use crate::counts::Requests;
use crate::fixture::{
    KEY, LONG, NAME, TTL, Waiter, command, direct, eventually, hold, ok, open, open_for, pass, server,
    trials, warm,
};

trials![
    leaving_entry_notifies_the_next,
    many_ended_delay_nobody_behind_them = || many_ended_delay_nobody_behind_them(false),
    many_ended_delay_nobody_after_a_forced_revocation = || many_ended_delay_nobody_behind_them(true),
    a_try_passes_over_many_ended,
    a_long_queue_is_counted_without_reading_it,
    foreign_text_is_truncated,
    parked_caller_costs_no_lease,
    idle_sockets_that_the_server_closes_cost_nothing,
];

/// The managers connect again, also without a request, and the waiter gets the grant.
async fn idle_sockets_that_the_server_closes_cost_nothing() {
    let server = server().await;
    let managers = [open_for(direct(&server), LONG).await, open_for(direct(&server), LONG).await];
    let guard = hold(&managers[0]).await;
    let waiting = Waiter::queued(&managers[1], 0, &managers[0]).await;
    Requests::begin(&server).await;
    ok(&server, &["CONFIG", "SET", "timeout", "1"]).await;
    eventually("both have come again", async || {
        server.calls().await.unwrap().get("hello").is_some_and(|hellos| *hellos >= 4)
    })
    .await;
    guard.ensure_held().unwrap();
    guard.release().await.unwrap();
    waiting.held().await.release().await.unwrap();
}

/// A caller whose request is alone in flight is polled once and never again: others are served, and their leases live.
async fn parked_caller_costs_no_lease() {
    let server = server().await;
    let locks = warm(open(direct(&server)).await).await;
    let lock = locks.lock("parked").unwrap();
    let mut parked = Box::pin(lock.acquire());
    assert!((&mut parked).now_or_never().is_none());
    let held =
        (0..64).map(async |index| locks.lock(format!("name/{index}")).unwrap().acquire().await.unwrap());
    let held = join_all(held).await;
    pass(3 * TTL).await;
    for guard in held {
        guard.release().await.unwrap();
    }
    parked.await.unwrap().release().await.unwrap();
}

/// The first in line gives up when the holder is dead already; the next one, whose own refreshes are minutes
/// away, gets a message when to refresh.
async fn leaving_entry_notifies_the_next() {
    let server = server().await;
    let (a, b, c) = (
        open_for(direct(&server), LONG).await,
        open_for(direct(&server), LONG).await,
        open(direct(&server)).await,
    );
    ok(&server, &["SET", KEY, &"7".repeat(32), "EX", "600"]).await;
    let first = Waiter::queued(&a, 0, &c).await;
    let second = Waiter::queued(&b, 1, &c).await;
    command(&server, &["PEXPIRE", KEY, "2000"]).await;
    drop(first);
    second.held().await.release().await.unwrap();
}

async fn eval(client: &mut Client, script: &str, arguments: &[&str]) {
    let keys = [format!("{KEY}:q"), format!("{KEY}:e")];
    let words: Vec<_> =
        ["EVAL", script, "2", &keys[0], &keys[1]].into_iter().chain(arguments.iter().copied()).collect();
    let reply = client.command(&words).await.unwrap();
    assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
}

/// Puts `count` entries behind the waiters, that have ended or will not for an hour.
async fn fill(server: &Server, count: usize, live: bool) {
    const FILL: &str = "
        local now = redis.call('TIME')
        local micros = now[1] * 1000000 + now[2] - 3600000000
        local ends = string.format('%.0f', micros + (ARGV[2] == '1' and 7200000000 or 0))
        for i = 1, ARGV[1] do
          local id = string.format('%032x', i)
          redis.call('ZADD', KEYS[1], string.format('%.0f', micros + i), id)
          redis.call('HSET', KEYS[2], id, '600000 x 4 dead', 'u:' .. id, ends)
        end
        redis.call('PEXPIRE', KEYS[1], 3600000)
        redis.call('PEXPIRE', KEYS[2], 3600000)";
    let mut client = server.client().await.unwrap();
    eval(&mut client, FILL, &[&count.to_string(), if live { "1" } else { "0" }]).await;
}

async fn length(server: &Server) -> i64 {
    command(server, &["ZCARD", &format!("{KEY}:q")]).await.integer().unwrap()
}

/// Thousands of ended entries: one script drops some hundreds, and the contender behind them, whose own
/// refreshes are minutes away, has its turn all the same, because the client that freed the lock goes on: its holder, or
/// the one that revoked it from a dead holder.
async fn many_ended_delay_nobody_behind_them(force: bool) {
    let server = server().await;
    direct(&server).load_scripts().await.unwrap();
    let (a, b) = (open_for(direct(&server), LONG).await, open_for(direct(&server), LONG).await);
    let guard = if force {
        ok(&server, &["SET", KEY, &"7".repeat(32), "EX", "600"]).await;
        None
    } else {
        Some(hold(&a).await)
    };
    fill(&server, 3_000, false).await;
    let waiting = Waiter::start(&b);
    eventually("it has come, and two are gone", async || length(&server).await < 3_000).await;
    // Answered on its connection after its acquisition.
    b.inspect(NAME).await.unwrap();
    assert!(length(&server).await > 2_900);
    Requests::begin(&server).await;
    match guard {
        Some(guard) => guard.release().await.unwrap(),
        None => drop(a.revoke(NAME, Revoke::Force).await.unwrap()),
    }
    let guard = waiting.held().await;
    let requests = Requests::since(&server).await;
    assert!((6..=9).contains(&requests.total()), "{:?}", requests.0);
    assert_eq!(length(&server).await, 0);
    guard.release().await.unwrap();
}

async fn a_try_passes_over_many_ended() {
    let server = server().await;
    let locks = open_for(direct(&server), LONG).await;
    fill(&server, 3_000, false).await;
    let guard = locks.lock(NAME).unwrap().try_acquire().await.unwrap().expect("it is free");
    assert_eq!(length(&server).await, 0);
    guard.release().await.unwrap();
}

async fn a_long_queue_is_counted_without_reading_it() {
    let server = server().await;
    let locks = open_for(direct(&server), LONG).await;
    let guard = hold(&locks).await;
    for (count, live, shown) in
        [(49, true, 49), (50, true, 50), (51, true, 51), (5_000, true, 5_000), (5_000, false, 4_950)]
    {
        command(&server, &["DEL", &format!("{KEY}:q"), &format!("{KEY}:e")]).await;
        fill(&server, count, live).await;
        Requests::begin(&server).await;
        assert_eq!(locks.inspect(NAME).await.unwrap().contenders, shown);
        let calls = server.calls().await.unwrap();
        assert!(calls["hget"] <= 50 && calls["zrange"] <= 30, "{calls:?}");
        assert_eq!(locks.list("").await.unwrap()[0].contenders, shown);
    }
    guard.release().await.unwrap();
}

/// A foreign client may write megabytes into the keys: the replies of the scripts stay small, so that the
/// locks on the same connection live.
async fn foreign_text_is_truncated() {
    const LARGE: usize = 8 << 20;
    let server = server().await;
    let (a, b) = (open_for(direct(&server), LONG).await, open_for(direct(&server), LONG).await);
    let large = "x".repeat(LARGE);
    let owner = "7".repeat(32);
    ok(&server, &["SET", KEY, &owner]).await;
    let record = format!("5 {owner} 6 inbox {LARGE} {large}");
    ok(&server, &["SET", &format!("{KEY}:n"), &record]).await;
    let answered = async || {
        let stats = server.info("stats").await.unwrap();
        stats["total_net_output_bytes"].parse::<usize>().unwrap()
    };
    let before = answered().await;
    let waiting = Waiter::queued(&a, 0, &b).await;
    b.lock(NAME).unwrap().try_acquire().await.unwrap();
    assert!(b.inspect(NAME).await.unwrap().holder().is_some());
    b.list("").await.unwrap();
    ok(&server, &["SET", KEY, &large]).await;
    b.inspect(NAME).await.unwrap();
    b.revoke(NAME, Revoke::Force).await.unwrap();
    waiting.held().await.release().await.unwrap();
    let written = answered().await - before;
    assert!(written < LARGE, "{written} bytes");
}
