//! Servers of a quorum that have forgotten votes, however long they have been up.

use leasehold_core::backend::Severity;
use leasehold_core::{ErrorKind, LockManager};
use leasehold_redis::{QuorumConfig, RedisConfig};
use testbed::redis::{Reply, Server, Settings, WallClock};
use testbed::{Direction, Mode};

use crate::fixture::{
    BOUND, KEY, LONG, NAME, TTL, Waiter, command, direct, eventually, exists, hold, ok, proxy, start,
    trials_on_both, via,
};
use crate::pause::restart_empty;
use crate::quorum::{begun, behind, next_of, open_config, quorum, said, servers_of};
use crate::quorum_restarts::{SPACE, has_long_been_up, knows};

trials_on_both![
    a_spare_server_pauses = || one_holds(Forgets::Spare),
    a_promoted_replica_pauses = || one_holds(Forgets::Promoted),
    a_promoted_replica_is_not_trusted = || one_holds(Forgets::Trusted),
    an_emptied_server_pauses = || one_holds(Forgets::Emptied),
    a_stepped_clock_ends_no_pause = || one_holds(Forgets::Stepped),
    one_clock_that_is_left_ends_no_pause = || one_holds(Forgets::Witnesses),
    a_restored_vote_is_not_renewed_in_a_pause = || one_holds(Forgets::Restored),
    a_lost_disk_is_not_trusted = || one_holds(Forgets::Disk),
    terms_outlast_the_data = || of_three_and_five(terms_outlast),
    a_hold_outlasts_a_restart_of_every_server = || of_three_and_five(outlasts),
    too_few_that_know_are_an_answer = || of_three_and_five(too_few),
    a_clock_ahead_moves_no_other_name = || of_three_and_five(jumps),
    an_evicting_server_is_named = || of_three_and_five(evicts),
    a_pause_begins_when_a_look_is_answered = || of_three_and_five(is_met_slowly),
];

async fn of_three_and_five<F: Future<Output = ()>>(test: impl Fn(usize) -> F) {
    tokio::join!(test(3), test(5));
}

/// How one of the servers that a lock is held by forgets it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Forgets {
    /// Another one takes its address, that was started long ago.
    Spare,
    /// A replica of another server does.
    Promoted,
    /// The same where the servers' disks are trusted.
    Trusted,
    /// It loses all its keys.
    Emptied,
    /// It comes up empty, and its clock is set forward when it has been met.
    Stepped,
    /// The same, and the clocks of all others are set back then.
    Witnesses,
    /// It comes up with its data, the holder goes on renewing while it pauses, and its clock is set forward then.
    Restored,
    /// It comes up empty where the servers' disks are trusted.
    Disk,
}

impl Forgets {
    fn steps_its_clock(self) -> bool {
        matches!(self, Self::Stepped | Self::Witnesses | Self::Restored)
    }
}

async fn one_holds(forgets: Forgets) {
    of_three_and_five(|members| one_holds_of(members, forgets)).await;
}

/// The lock is held by as few servers as can be, the holder is cut off, and one of them forgets.
async fn one_holds_of(members: usize, forgets: Forgets) {
    let (ahead, behind) = (WallClock::new().unwrap(), WallClock::new().unwrap());
    let trusts_disks = matches!(forgets, Forgets::Trusted | Forgets::Disk);
    let settings = || if trusts_disks { Settings::new().append_only() } else { Settings::new() };
    let mut servers = vec![start(settings().clock(&ahead)).await];
    servers.extend(servers_of(members - 1, settings().clock(&behind)).await);
    let config = |servers: Vec<RedisConfig>| {
        QuorumConfig::new(servers).pause_after_restart(TTL).fsync_always(trusts_disks)
    };
    let proxies: Vec<_> = servers.iter().map(proxy).collect();
    let a = begun(config(proxies.iter().map(via).collect())).await;
    let other = match forgets {
        Forgets::Spare => Some(start(settings().clock(&ahead)).await),
        Forgets::Promoted | Forgets::Trusted => {
            let settings = settings().replica_of(servers[members - 1].addr());
            let replica = start(settings.clock(&ahead)).await;
            replica.follows().await.unwrap();
            Some(replica)
        }
        _ => None,
    };
    if !forgets.steps_its_clock() {
        has_long_been_up(other.as_ref().unwrap_or(&servers[0]), &ahead).await;
    }
    for proxy in &proxies[members / 2 + 1..] {
        proxy.set_both(Mode::Blackhole).await;
    }
    let guard = hold(&a).await;
    if forgets == Forgets::Restored {
        comes_up_with_data(&mut servers).await;
    }
    for proxy in &proxies {
        proxy.set_both(Mode::Blackhole).await;
    }

    match (forgets, &other) {
        (Forgets::Restored, _) => {}
        (Forgets::Emptied, _) => ok(&servers[0], &["FLUSHALL"]).await,
        (_, Some(other)) => {
            servers[0].kill().await.unwrap();
            ok(other, &["REPLICAOF", "NO", "ONE"]).await;
        }
        (_, None) => {
            restart_empty(&mut servers[0]).await;
        }
    }
    let first = other.as_ref().unwrap_or(&servers[0]);
    let b = open_config(config([first].into_iter().chain(&servers[1..]).map(direct).collect())).await;
    if forgets == Forgets::Witnesses {
        behind.shift_by(-2 * i64::try_from(LONG.as_secs()).unwrap()).unwrap();
    }
    if forgets.steps_its_clock() {
        has_long_been_up(first, &ahead).await;
    }
    next_of(&b, &guard).await;
}

/// The first server does, and the holder's next renewal reaches all.
async fn comes_up_with_data(servers: &mut [Server]) {
    ok(&servers[0], &["SAVE"]).await;
    servers[0].kill().await.unwrap();
    servers[0].start_again().await.unwrap();
    eventually("it pauses", async || !knows(&servers[0]).await && since(&servers[0]).await.is_some()).await;
    let ends = async || command(&servers[1], &["PEXPIRETIME", &format!("{KEY}:vote")]).await;
    let before = ends().await;
    eventually("the hold is renewed", async || ends().await != before).await;
}

/// The clocks that were written down when a manager met it.
async fn since(server: &Server) -> Option<String> {
    command(server, &["HGET", SPACE, "since"]).await.text().filter(|since| !since.is_empty())
}

/// One manager has met them again after all came up empty.
async fn terms_outlast(members: usize) {
    let ahead = WallClock::new().unwrap();
    let mut servers = servers_of(members, Settings::new().clock(&ahead)).await;
    has_long_been_up(&servers[0], &ahead).await;
    let locks = begun(quorum(&servers).pause_after_restart(LONG)).await;
    for server in &mut servers {
        restart_empty(server).await;
    }
    for server in &servers {
        let terms = async || command(server, &["HGET", SPACE, "terms"]).await.text();
        eventually("it is met", async || terms().await.is_some()).await;
    }
    let other = LockManager::builder(quorum(&servers)).ttl(TTL).connect_timeout(BOUND);
    let refused = other.build().await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::InvalidOption, "{refused}");
    drop(locks);
}

/// One after the other, so many servers come up empty that together they would leave no quorum.
async fn outlasts(members: usize) {
    let mut servers = servers_of(members, Settings::new()).await;
    let locks = begun(quorum(&servers)).await;
    let guard = hold(&locks).await;
    let vote = format!("{KEY}:vote");
    for server in &mut servers[..=members / 2] {
        restart_empty(server).await;
        eventually("it votes for the hold again", async || {
            guard.ensure_held().is_err() || exists(server, &vote).await
        })
        .await;
        guard.ensure_held().unwrap();
    }
    guard.release().await.unwrap();
}

/// One server has forgotten, and too few others are left to restore it. The holder is unknown, and once the server has paused a
/// waiter's error names it.
async fn too_few(members: usize) {
    let mut servers = servers_of(members, Settings::new()).await;
    let locks = begun(quorum(&servers)).await;
    for server in &mut servers[members / 2..] {
        server.kill().await.unwrap();
    }
    let blank = &mut servers[members / 2];
    blank.start_empty().await.unwrap();
    let address = blank.addr().to_string();
    let waiting = Waiter::start(&locks);
    eventually("it has a vote", async || exists(&servers[0], &format!("{KEY}:vote")).await).await;
    let state = async || locks.inspect(NAME).await.ok();
    eventually("it is seen", async || state().await.is_some_and(|state| state.holder().is_some())).await;
    assert_eq!(state().await.unwrap().holder().unwrap().label, "unknown");
    let refused = waiting.outcome().await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Unavailable, "{refused}");
    let why = format!("{refused:#}");
    assert!(why.contains("too few other servers know which") && why.contains(&address), "{why}");
}

/// What one server removes by itself, it has forgotten.
async fn evicts(members: usize) {
    let servers = servers_of(members, Settings::new()).await;
    ok(&servers[1], &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
    let mut expected = vec![Severity::Ok; members];
    expected[1] = Severity::Broken;
    assert_eq!(said(&servers, quorum(&servers), "eviction").await, expected);
}

/// The clocks that a pause counts from are taken as late as the answers.
async fn is_met_slowly(members: usize) {
    let (still, began) = (WallClock::new().unwrap(), 1_900_000_000_000_000);
    still.stand_at(began).unwrap();
    let servers = servers_of(members, Settings::new().clock(&still)).await;
    let (proxies, config) = behind(&servers, members).await;
    for proxy in &proxies {
        proxy.set(Direction::ServerToClient, Mode::delay(TTL / 8)).await;
    }
    // Bounds that are much longer than the delay: each connection is opened by several requests.
    let locks = LockManager::builder(config.pause_after_restart(LONG)).ttl(LONG).op_timeout(BOUND / 2);
    let _locks = locks.connect_timeout(BOUND).build().await.unwrap();
    eventually("it is met", async || since(&servers[0]).await.is_some()).await;
    let since = since(&servers[0]).await.unwrap();
    let clocks = since.split(' ').map(|clock| clock.split_once('=').unwrap().1.parse::<u64>().unwrap());
    let least = began + u64::try_from((TTL / 8).as_micros()).unwrap();
    assert!(clocks.min() >= Some(least), "{since} of {least}");
}

/// A clock is a year ahead for a moment, in which its server comes up empty. Only names that were voted for then have large
/// numbers.
async fn jumps(members: usize) {
    const DAY: i64 = 86_400_000;
    let ahead = WallClock::new().unwrap();
    let mut servers = servers_of(members - 1, Settings::new()).await;
    servers.push(start(Settings::new().clock(&ahead)).await);
    let locks = begun(quorum(&servers)).await;
    let cycle = async |name: &str| {
        let guard = locks.lock(name).unwrap().acquire().await.unwrap();
        let token = guard.token();
        guard.release().await.unwrap();
        token
    };
    ahead.shift_by(366 * 86_400).unwrap();
    restart_empty(&mut servers[members - 1]).await;
    eventually("it is told", async || knows(&servers[members - 1]).await).await;
    let first = cycle("then").await;
    ahead.shift_by(0).unwrap();
    // Valkey reads the wall clock now and then, and counts on from there by another one.
    let expires = async |server: &Server| {
        command(server, &["SET", "probe", "1", "PX", "1000"]).await;
        command(server, &["PEXPIRETIME", "probe"]).await.integer().unwrap()
    };
    eventually("the server goes by the clock again", async || {
        expires(&servers[members - 1]).await - expires(&servers[0]).await < DAY
    })
    .await;
    assert!(cycle("then").await > first);
    cycle("later").await;
    for server in &servers {
        let Reply::Integer(left) = command(server, &["PTTL", "leasehold:{later}:count"]).await else {
            panic!("no number")
        };
        assert!(left < 2 * DAY, "{left} ms");
    }
}
