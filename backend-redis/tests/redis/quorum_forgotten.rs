//! Servers of a quorum that have forgotten what they did, however long they have been up: nobody is let in beside a holder.

use leasehold_core::{ErrorKind, LockManager};
use leasehold_redis::{QuorumConfig, RedisConfig};
use testbed::redis::{Reply, Server, Settings, WallClock};
use testbed::{Direction, Mode};

use crate::quorum::{begun, behind, open_config, quorum};
use crate::quorum_restarts::{SPACE, has_long_been_up, knows};
use crate::rig::{
    BOUND, KEY, LONG, NAME, TTL, Waiter, command, direct, eventually, exists, hold, ok, proxy, server, start,
    trials_on_both, via,
};

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
    a_pause_begins_when_a_look_is_answered = || of_three_and_five(is_met_slowly),
    a_server_that_pauses_hears_at_once_of_use,
];

async fn of_three_and_five<F: Future<Output = ()>>(test: impl Fn(usize) -> F) {
    tokio::join!(test(3), test(5));
}

async fn servers_of(members: usize) -> Vec<Server> {
    let mut servers = Vec::new();
    for _ in 0..members {
        servers.push(server().await);
    }
    servers
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
    for _ in 1..members {
        servers.push(start(settings().clock(&behind)).await);
    }
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
            servers[0].kill().await.unwrap();
            servers[0].start_empty().await.unwrap();
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
    let next = loop {
        let attempt = b.lock(NAME).unwrap().try_acquire().await;
        let is_held = guard.ensure_held().is_ok();
        if let Ok(Some(next)) = attempt {
            assert!(!is_held, "two hold of {members} servers");
            break next;
        }
    };
    assert!(next.token() > guard.token());
}

/// The first does, and the holder's next renewal reaches all.
async fn comes_up_with_data(servers: &mut [Server]) {
    ok(&servers[0], &["SAVE"]).await;
    servers[0].kill().await.unwrap();
    servers[0].start_again().await.unwrap();
    eventually("it pauses", async || !knows(&servers[0]).await && since(&servers[0]).await.is_some()).await;
    let ends = async || command(&servers[1], &["PEXPIRETIME", &format!("{KEY}:vote")]).await;
    let before = ends().await;
    eventually("the hold is renewed", async || ends().await != before).await;
}

/// What was written down of the clocks when a manager met it.
async fn since(server: &Server) -> Option<String> {
    command(server, &["HGET", SPACE, "since"]).await.text().filter(|since| !since.is_empty())
}

/// All servers come up empty: a manager that has met them again is enough for those with other terms to be refused.
async fn terms_outlast(members: usize) {
    let ahead = WallClock::new().unwrap();
    let mut servers = Vec::new();
    for _ in 0..members {
        servers.push(start(Settings::new().clock(&ahead)).await);
    }
    has_long_been_up(&servers[0], &ahead).await;
    let locks = begun(quorum(&servers).pause_after_restart(LONG)).await;
    for server in &mut servers {
        server.kill().await.unwrap();
        server.start_empty().await.unwrap();
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

/// A hold outlasts as many restarts of servers that forget as would leave no quorum at once, one after the other.
async fn outlasts(members: usize) {
    let mut servers = servers_of(members).await;
    let locks = begun(quorum(&servers)).await;
    let guard = hold(&locks).await;
    let vote = format!("{KEY}:vote");
    for server in &mut servers[..=members / 2] {
        server.kill().await.unwrap();
        server.start_empty().await.unwrap();
        eventually("it votes for the hold again", async || {
            guard.ensure_held().is_err() || exists(server, &vote).await
        })
        .await;
        guard.ensure_held().unwrap();
    }
    guard.release().await.unwrap();
}

/// One server has forgotten, and of the others so few are left that nobody can tell it what: nobody is said to hold, and who
/// waits is told which server it is once that has paused.
async fn too_few(members: usize) {
    let mut servers = servers_of(members).await;
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
    assert!(why.contains("too few others tell it which") && why.contains(&address), "{why}");
}

/// The clocks that a pause counts from are read as late as the answers: a server is told what they were at most by then.
async fn is_met_slowly(members: usize) {
    let (still, began) = (WallClock::new().unwrap(), 1_900_000_000_000_000);
    still.stand_at(began).unwrap();
    let mut servers = Vec::new();
    for _ in 0..members {
        servers.push(start(Settings::new().clock(&still)).await);
    }
    let (proxies, config) = behind(&servers, members).await;
    for proxy in &proxies {
        proxy.set(Direction::ServerToClient, Mode::delay(TTL / 8)).await;
    }
    let _locks = open_config(config).await;
    eventually("it is met", async || since(&servers[0]).await.is_some()).await;
    let since = since(&servers[0]).await.unwrap();
    let clocks = since.split(' ').map(|clock| clock.split_once('=').unwrap().1.parse::<u64>().unwrap());
    let least = began + u64::try_from((TTL / 8).as_micros()).unwrap();
    assert!(clocks.min() >= Some(least), "{since} of {least}");
}

/// The manager that tells other servers what they may have forgotten looks again at once: the namespace is used from then on,
/// which a server that pauses for longer has to know.
async fn a_server_that_pauses_hears_at_once_of_use() {
    let (clock, long) = (WallClock::new().unwrap(), i64::try_from(LONG.as_secs()).unwrap());
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(start(Settings::new().clock(&clock)).await);
    }
    servers[2].kill().await.unwrap();
    let _locks = open_config(quorum(&servers).pause_after_restart(LONG)).await;
    let is_met = async |server: &Server| since(server).await.is_some();
    eventually("two are met", async || is_met(&servers[0]).await && is_met(&servers[1]).await).await;
    clock.shift_by(long / 2).unwrap();
    servers[2].start_empty().await.unwrap();
    eventually("the third is met", async || is_met(&servers[2]).await).await;
    clock.shift_by(long + 1).unwrap();
    // One look, and the next one would be half a pause later.
    command(&servers[0], &["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    eventually("two are told", async || knows(&servers[0]).await && knows(&servers[1]).await).await;
    let is_used = async || command(&servers[2], &["HGET", SPACE, "used"]).await.text().is_some();
    eventually("the third hears of use", is_used).await;
    assert!(!knows(&servers[2]).await);
}

/// A clock that is a year ahead for a moment moves the numbers of the names that were voted for then, and no others; also
/// where its server came up empty then, and was told.
async fn jumps(members: usize) {
    const DAY: i64 = 86_400_000;
    let ahead = WallClock::new().unwrap();
    let mut servers = servers_of(members - 1).await;
    servers.push(start(Settings::new().clock(&ahead)).await);
    let locks = begun(quorum(&servers)).await;
    let cycle = async |name: &str| {
        let guard = locks.lock(name).unwrap().acquire().await.unwrap();
        let token = guard.token();
        guard.release().await.unwrap();
        token
    };
    ahead.shift_by(366 * 86_400).unwrap();
    servers[members - 1].kill().await.unwrap();
    servers[members - 1].start_empty().await.unwrap();
    eventually("it is told", async || knows(&servers[members - 1]).await).await;
    let first = cycle("then").await;
    ahead.shift_by(0).unwrap();
    assert!(cycle("then").await > first);
    cycle("later").await;
    for server in &servers {
        let Reply::Integer(left) = command(server, &["PTTL", "leasehold:{later}:count"]).await else {
            panic!("no number")
        };
        assert!(left < 2 * DAY, "{left} ms");
    }
}
