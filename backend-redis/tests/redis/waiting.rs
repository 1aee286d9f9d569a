//! Many contenders of one name: how seldom they ask, how soon the dead among them are passed over, what
//! a long queue costs, and what somebody else has written into it.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{LockManager, Revoke};
use testbed::Mode;
use testbed::redis::{Client, Reply, Server};

use crate::counts::Requests;
use crate::rig::{
    KEY, LONG, NAME, TTL, Waiter, command, direct, eventually, exists, hold, now, ok, open, open_for, proxy,
    server, trials, via,
};

trials![
    behind_a_shorter_lease_one_asks,
    behind_a_strangers_short_lease_one_asks,
    when_a_lease_ends_one_asks,
    the_dead_in_front_are_passed_over_in_time,
    the_dead_are_granted_little,
    leaving_entry_notifies_the_next,
    the_ended_do_not_pile_up_behind_a_holder,
    many_ended_delay_nobody_behind_them = || many_ended_delay_nobody_behind_them(false),
    many_ended_delay_nobody_after_a_forced_revocation = || many_ended_delay_nobody_behind_them(true),
    a_try_passes_over_many_ended,
    a_long_queue_is_counted_without_reading_it,
    foreign_text_is_truncated,
];

/// A lease that ends many times in a trial, and not while the machine is busy.
const SHORT: Duration = TTL;

/// Waits until each of them has its entry, and knows it.
async fn all_queued(managers: &[LockManager]) {
    eventually("all are in the queue", async || {
        managers[0].inspect(NAME).await.unwrap().contenders == managers.len()
    })
    .await;
    // Answered on their connections after their acquisitions.
    for locks in &managers[1..] {
        locks.inspect(NAME).await.unwrap();
    }
}

/// A holder that renews every two thirds of a second: besides its renewals, only the first in line asks.
async fn behind_a_shorter_lease_one_asks() {
    let server = server().await;
    let holder = open_for(direct(&server), SHORT).await;
    let guard = hold(&holder).await;
    let managers = join_all((0..20).map(|_| open_for(direct(&server), LONG))).await;
    let waiting: Vec<_> = managers.iter().map(Waiter::start).collect();
    all_queued(&managers).await;
    Requests::begin(&server).await;
    let began = now();
    eventually("six renewals", async || now().since(began) > SHORT / 3 * 6).await;
    let (requests, took) = (Requests::since(&server).await, now().since(began));
    guard.ensure_held().unwrap();
    let thirds = u64::try_from(took.as_millis() / (SHORT / 3).as_millis()).unwrap();
    assert!(requests.total() <= 2 * thirds + 4, "{:?} in {took:?}", requests.0);
    guard.release().await.unwrap();
    drop(waiting);
}

/// The same where another client's lock is short and set again and again.
async fn behind_a_strangers_short_lease_one_asks() {
    let server = server().await;
    let lease = SHORT.as_millis().to_string();
    let set = async || ok(&server, &["SET", KEY, "stranger", "PX", &lease]).await;
    set().await;
    let managers = join_all((0..20).map(|_| open_for(direct(&server), LONG))).await;
    set().await;
    let waiting: Vec<_> = managers.iter().map(Waiter::start).collect();
    eventually("all are in the queue", async || {
        set().await;
        managers[0].inspect(NAME).await.unwrap().contenders == 20
    })
    .await;
    for locks in &managers {
        set().await;
        locks.inspect(NAME).await.unwrap();
    }
    Requests::begin(&server).await;
    let began = now();
    eventually("six thirds", async || {
        set().await;
        now().since(began) > SHORT / 3 * 6
    })
    .await;
    let (requests, took) = (Requests::since(&server).await, now().since(began));
    let thirds = u64::try_from(took.as_millis() / (SHORT / 3).as_millis()).unwrap();
    assert!(requests.total() <= thirds + 4, "{:?} in {took:?}", requests.0);
    assert!(waiting.iter().all(Waiter::is_waiting));
}

/// A holder that is never heard of again: its lease ends, and one request hands the lock on.
async fn when_a_lease_ends_one_asks() {
    const CONTENDERS: usize = 30;
    let server = server().await;
    let managers = join_all((0..CONTENDERS).map(|_| open_for(direct(&server), LONG))).await;
    let queue = async |lease: Duration| {
        ok(&server, &["SET", KEY, "stranger", "PX", &lease.as_millis().to_string()]).await;
        let first = Waiter::queued(&managers[0], 0, &managers[0]).await;
        let others: Vec<_> = managers[1..].iter().map(Waiter::start).collect();
        all_queued(&managers).await;
        (first, others)
    };
    // How long all of them take, today and here.
    let began = now();
    drop(queue(LONG).await);
    eventually("all have left", async || managers[0].inspect(NAME).await.unwrap().contenders == 0).await;
    let (first, _others) = queue(SHORT + 4 * now().since(began)).await;
    assert!(exists(&server, KEY).await, "the machine has become too slow for this lease");
    Requests::begin(&server).await;
    let guard = first.held().await;
    all_queued(&managers[1..]).await;
    let requests = Requests::since(&server).await;
    // These ask to see the queue.
    let seen = u64::try_from(managers.len()).unwrap();
    assert!(requests.total() <= seen + 1, "{:?}", requests.0);
    guard.release().await.unwrap();
}

/// The holder and two contenders die together; a third one, whose own refreshes are minutes away, has the
/// lock long before those (G6).
async fn the_dead_in_front_are_passed_over_in_time() {
    let server = server().await;
    let proxy = proxy(&server);
    let dead = [open(via(&proxy)).await, open(via(&proxy)).await, open(via(&proxy)).await];
    let locks = open_for(direct(&server), LONG).await;
    let _guard = hold(&dead[0]).await;
    let _first = Waiter::queued(&dead[1], 0, &locks).await;
    let _second = Waiter::queued(&dead[2], 1, &locks).await;
    proxy.set_both(Mode::Blackhole).await;
    let waiting = Waiter::queued(&locks, 2, &locks).await;
    waiting.held().await.release().await.unwrap();
}

/// Two dead contenders, of which the first one's lease ends last: it is granted the lock, for half a
/// second and not for a sixth of its ttl, which would be minutes.
async fn the_dead_are_granted_little() {
    const QUEUE: &str = "
        local time = redis.call('TIME')
        local now = time[1] * 1000000 + time[2]
        for i, left in ipairs({ 1200000, 1000000 }) do
          local id = string.format('%032x', i)
          redis.call('ZADD', KEYS[1], string.format('%.0f', now + i), id)
          redis.call('HSET', KEYS[2], id, '1800000 x 4 dead', 'u:' .. id, string.format('%.0f', now + left))
          redis.call('PEXPIRE', KEYS[i], 1200)
        end";
    let server = server().await;
    let locks = open_for(direct(&server), LONG).await;
    ok(&server, &["SET", KEY, &"7".repeat(32), "PX", "1000"]).await;
    let mut client = server.client().await.unwrap();
    eval(&mut client, QUEUE, &[]).await;
    hold(&locks).await.release().await.unwrap();
}

/// The first in line gives up when the holder is dead already; the next one, whose own refreshes are minutes
/// away, is told when to ask.
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

/// Puts `count` entries behind whoever waits, that have ended or will not for an hour.
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

/// Contenders come and die, over and over, while the lock stays held and somebody waits: each that comes
/// sweeps two away.
async fn the_ended_do_not_pile_up_behind_a_holder() {
    let server = server().await;
    let locks = open_for(direct(&server), LONG).await;
    let guard = hold(&locks).await;
    fill(&server, 40, false).await;
    for left in [38, 36, 34] {
        let other = open_for(direct(&server), Duration::from_secs(60)).await;
        drop(Waiter::queued(&other, 0, &locks).await);
        eventually("two less", async || length(&server).await <= left).await;
    }
    guard.release().await.unwrap();
}

/// Thousands of ended entries: one script drops some hundreds, and the contender behind them, whose own
/// refreshes are minutes away, has its turn all the same, because whoever freed the lock goes on.
async fn many_ended_delay_nobody_behind_them(force: bool) {
    let server = server().await;
    direct(&server).load_scripts().await.unwrap();
    let (a, b) = (open_for(direct(&server), LONG).await, open_for(direct(&server), LONG).await);
    let guard = hold(&a).await;
    fill(&server, 3_000, false).await;
    let waiting = Waiter::start(&b);
    eventually("it has come, and two are gone", async || length(&server).await < 3_000).await;
    // Answered on its connection after its acquisition.
    b.inspect(NAME).await.unwrap();
    assert!(length(&server).await > 2_900);
    Requests::begin(&server).await;
    if force {
        a.revoke(NAME, Revoke::Force).await.unwrap();
    } else {
        guard.release().await.unwrap();
    }
    let guard = waiting.held().await;
    let requests = Requests::since(&server).await;
    assert!((6..=9).contains(&requests.total()), "{:?}", requests.0);
    assert_eq!(length(&server).await, 0);
    guard.release().await.unwrap();
}

/// A free lock behind thousands of ended entries is taken at once, by who does not wait.
async fn a_try_passes_over_many_ended() {
    let server = server().await;
    let locks = open_for(direct(&server), LONG).await;
    fill(&server, 3_000, false).await;
    let guard = locks.lock(NAME).unwrap().try_acquire().await.unwrap().expect("it is free");
    assert_eq!(length(&server).await, 0);
    guard.release().await.unwrap();
}

/// Of a queue of thousands some are looked at, and the others counted.
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

/// Whoever may write the keys may write megabytes: what the scripts answer stays small, so that the
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
