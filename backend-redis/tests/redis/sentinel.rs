//! Sentinels lead to the primary, and to another one when they promote it.

use std::net::SocketAddr;
use std::time::Duration;

use leasehold_core::{Effect, Error, ErrorKind, LockManager};
use leasehold_redis::SentinelConfig;
use testbed::redis::{Sentinels, Server, Settings};
use testbed::{Mode, Proxy};

use crate::contest::Contest;
use crate::failover::{replica_of, unreplicated_hold};
use crate::fixture::{
    BOUND, KEY, LONG, NAME, TTL, assert_lost, command, eventually, exists, hold, hold_at_last, ok, open_for,
    server, start, trials,
};
use crate::pause::{assert_busy, over_as};

trials![
    stale_sentinels_are_not_believed,
    wrong_names_and_passwords_are_refused,
    unreplicated_hold_is_doubled_without_the_pause = || unreplicated(false),
    unreplicated_hold_is_not_doubled_in_the_pause = || unreplicated(true),
    primary_that_goes_on_doubles_after_the_pause = || isolated(false),
    primary_without_its_replicas_doubles_nothing = || isolated(true),
    announced_failover_is_followed = || followed(false),
    failover_is_found_by_asking_in_turn = || followed(true),
    failovers_under_load_double_nothing,
    asserted_replicas_confirm_each_grant,
];

/// The longest lease here, and the pause that goes with it.
const MAX_TTL: Duration = Duration::from_secs(3);
const LAG: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_secs(6);
/// With the lag, and the two seconds that servers take longer, and the longest lease.
const NOTED: &str = "6000/3000/3000";

const DOWN_AFTER: Duration = Duration::from_secs(1);

async fn watched(primary: SocketAddr, replicas: usize) -> Sentinels {
    Sentinels::start(primary, replicas, 3, DOWN_AFTER).await.unwrap_or_else(|error| panic!("{error}"))
}

/// With the pause of the trials.
fn config(sentinels: &Sentinels) -> SentinelConfig {
    of(sentinels.addrs().iter().map(ToString::to_string))
}

fn of(sentinels: impl IntoIterator<Item = String>) -> SentinelConfig {
    SentinelConfig::new(Sentinels::MASTER, sentinels).max_ttl(MAX_TTL).failover_lag(LAG)
}

async fn refusal(config: SentinelConfig) -> Error {
    let opened = LockManager::builder(config).ttl(TTL).connect_timeout(BOUND).build().await;
    let refused = opened.expect_err("it is refused");
    assert_eq!(refused.effect(), Effect::NotApplied, "{refused}");
    refused
}

/// Sentinels that were cut off name the primary of before, which still serves. As many others have the larger epoch.
async fn stale_sentinels_are_not_believed() {
    let primary = server().await;
    let between = Proxy::start(primary.addr()).unwrap();
    let stale = Sentinels::start(between.addr(), 0, 2, DOWN_AFTER).await.unwrap();
    between.set_both(Mode::Blackhole).await;
    let replica = replica_of(&primary).await;
    let sentinels = watched(primary.addr(), 1).await;
    sentinels.fail_over(primary.addr()).await.unwrap();

    let named = stale.addrs().into_iter().chain(sentinels.addrs().into_iter().take(2));
    let named = named.map(|sentinel| sentinel.to_string());
    // So long that all answer in time.
    let locks = open_for(of(named).max_ttl(LONG).pause_after_failover(Duration::ZERO), LONG).await;
    hold_at_last(&locks).await.release().await.unwrap();
    let counter = command(&replica, &["EXISTS", &format!("{KEY}:n")]).await;
    assert_eq!(counter.integer(), Some(1), "it was granted by the server that was promoted");
}

/// Each by its name and with what helps, before anything is sent to a server; nothing is refused for good that may pass.
async fn wrong_names_and_passwords_are_refused() {
    let primary = server().await;
    let sentinels = watched(primary.addr(), 0).await;
    let named = || sentinels.addrs().into_iter().map(|sentinel| sentinel.to_string());
    let refused = refusal(SentinelConfig::new("other", named())).await;
    assert!(
        *refused.kind() == ErrorKind::InvalidOption && refused.to_string().contains("\"other\""),
        "{refused}"
    );
    let refused = refusal(of(["127.0.0.1:1".to_owned()])).await;
    assert!(
        *refused.kind() == ErrorKind::Unavailable && refused.to_string().contains("no sentinel"),
        "{refused}"
    );
    let refused = refusal(of([primary.addr().to_string()])).await;
    assert!(format!("{refused:#}").contains("is no sentinel"), "{refused:#}");
    let longer = LockManager::builder(config(&sentinels)).ttl(2 * MAX_TTL).build().await.unwrap_err();
    assert!(longer.to_string().contains("max_ttl"), "{longer}");
    let locks = open_for(config(&sentinels), TTL).await;
    let longer = locks.lock(NAME).unwrap().ttl(2 * MAX_TTL).try_acquire().await.unwrap_err();
    assert!(longer.to_string().contains("max_ttl"), "{longer}");
    for (alone, words) in [
        (config(&sentinels).pause_after_failover(PAUSE * 2), "`pause_after_failover` 12s"),
        (config(&sentinels).pause_after_failover(Duration::ZERO), "0ns is invalid: expected 6s"),
        (config(&sentinels).failover_lag(LAG / 2).pause_after_failover(PAUSE), "`failover_lag`"),
        (config(&sentinels).max_ttl(MAX_TTL - LAG).pause_after_failover(PAUSE), "`max_ttl` 2s"),
    ] {
        let refused = refusal(alone).await;
        assert!(refused.to_string().contains(words), "{words}: {refused}");
    }

    for sentinel in 0..3 {
        sentinels.command(sentinel, &["ACL", "SETUSER", "default", ">sesame"]).await.unwrap();
    }
    for wrong in [config(&sentinels), config(&sentinels).sentinel_password("simsim")] {
        let refused = refusal(wrong).await;
        assert_eq!(*refused.kind(), ErrorKind::Denied, "{refused}");
        assert!(refused.to_string().contains("`sentinel_password`"), "{refused}");
    }
    // The first answer is waited for.
    let slow = Proxy::start(sentinels.addrs()[0]).unwrap();
    slow.set_both(Mode::delay(TTL / 8)).await;
    drop(open_for(of([slow.addr().to_string()]).sentinel_password("sesame"), TTL).await);
}

/// A primary that its replica and the sentinels reach by a way that can be cut.
struct Split {
    primary: Server,
    between: Proxy,
    replica: Server,
    sentinels: Sentinels,
}

impl Split {
    /// The pause of a server that is new to the prefix is over, or there is none.
    async fn start(with_pause: bool) -> Self {
        let primary = server().await;
        // Replication is no protocol of requests, so each read is a frame.
        let between = Proxy::start(primary.addr()).unwrap();
        let replica = start(Settings::new().replica_of(between.addr())).await;
        replica.follows().await.unwrap();
        // The first replica begins a reign.
        over_as(&primary, "leasehold", if with_pause { NOTED } else { "0" }).await;
        let sentinels = watched(between.addr(), 1).await;
        Self { primary, between, replica, sentinels }
    }

    /// A manager whose connections to the primary are not cut; one that is `stuck` takes every server for the primary.
    async fn beside(&self, stuck: bool, config: SentinelConfig, ttl: Duration) -> LockManager {
        let (between, primary) = (self.between.addr().port(), self.primary.addr().port());
        let map =
            move |host: &str, port| (host.to_owned(), if stuck || port == between { primary } else { port });
        open_for(config.map_address(map), ttl).await
    }

    async fn cut(&self) {
        self.between.set_both(Mode::Blackhole).await;
    }

    async fn promoted(&self) {
        self.sentinels.name(self.replica.addr()).await.unwrap();
    }
}

/// A promoted replica has not got the lock of a holder that hears nothing of it. With the pause nobody is granted it before
/// that hold has ended.
async fn unreplicated(with_pause: bool) {
    let mut split = Split::start(with_pause).await;
    let off = || config(&split.sentinels).max_ttl(LONG).pause_after_failover(Duration::ZERO);
    let (terms, ttl) = if with_pause { (config(&split.sentinels), MAX_TTL) } else { (off(), LONG) };
    let a = split.beside(true, terms.clone(), ttl).await;
    let b = open_for(terms, ttl).await;
    let guard = unreplicated_hold(&a, &split.primary, &split.between, &split.replica).await;
    split.primary.kill().await.unwrap();
    split.promoted().await;

    if with_pause {
        assert_busy(&b).await;
        let next = hold_at_last(&b).await;
        assert_lost(&guard, "when the next one holds");
        assert!(next.token() > guard.token());
    } else {
        let next = hold_at_last(&b).await;
        guard.ensure_held().expect("nobody could tell it");
        next.ensure_held().unwrap();
        assert!(next.token() > guard.token());
    }
}

/// A primary on the wrong side of a cut goes on with a client of its own for as long as it may write without its replica.
async fn isolated(needs_replicas: bool) {
    let split = Split::start(true).await;
    if needs_replicas {
        ok(&split.primary, &["CONFIG", "SET", "min-replicas-max-lag", "1"]).await;
        ok(&split.primary, &["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    }
    let a = split.beside(true, config(&split.sentinels), MAX_TTL).await;
    let b = open_for(config(&split.sentinels), MAX_TTL).await;
    // A busy replica is away for a moment.
    let guard = hold_at_last(&a).await;
    split.cut().await;
    split.promoted().await;
    let next = hold_at_last(&b).await;
    if needs_replicas {
        assert_lost(&guard, "when the next one holds");
    } else {
        guard.renew().await.expect("its primary serves on");
        guard.ensure_held().unwrap();
    }
    next.ensure_held().unwrap();
    assert!(next.token() > guard.token());
}

/// A manager leaves a primary that serves on when the sentinels name another one, and holds on there. The first sentinel, which
/// it listens to, announces that, or is `silent`.
async fn followed(silent: bool) {
    let split = Split::start(false).await;
    let terms = config(&split.sentinels).max_ttl(LONG).pause_after_failover(Duration::ZERO);
    let locks = split.beside(false, terms, LONG).await;
    let guard = hold(&locks).await;
    if silent {
        split.sentinels.process(0).stop().await.unwrap();
    }
    split.cut().await;
    split.promoted().await;
    eventually("it is renewed at the new primary", async || {
        let before = command(&split.replica, &["PTTL", KEY]).await.integer();
        guard.renew().await.is_ok() && command(&split.replica, &["PTTL", KEY]).await.integer() > before
    })
    .await;
    let inboxes = command(&split.primary, &["PUBSUB", "CHANNELS", "leasehold:inbox:*"]).await;
    assert!(inboxes.elements().is_empty(), "it has left the former primary");
    guard.release().await.unwrap();
}

/// Clients contend while the primary changes to and fro: no two hold at once, tokens grow, and the locks are granted again.
async fn failovers_under_load_double_nothing() {
    let primary = server().await;
    let replica = replica_of(&primary).await;
    over_as(&primary, "leasehold", NOTED).await;
    let sentinels = watched(primary.addr(), 1).await;
    let contest = Contest::start(config(&sentinels), MAX_TTL).await;
    // It goes on as a primary until it is told to follow the other one.
    primary.process().stop().await.unwrap();
    sentinels.name(replica.addr()).await.unwrap();
    primary.process().cont().unwrap();
    sentinels.settled(1).await.unwrap();
    sentinels.fail_over(replica.addr()).await.unwrap();
    contest.goes_on().await;
    contest.assert_one_by_one();
}

/// A primary with one more, which could be promoted without a lock, is refused.
async fn asserted_replicas_confirm_each_grant() {
    let primary = server().await;
    let replica = replica_of(&primary).await;
    over_as(&primary, "leasehold", "6000/0/3000").await;
    let sentinels = watched(primary.addr(), 1).await;
    // The others know the first by another name, and it counts once all the same.
    let mut named: Vec<_> = sentinels.addrs().iter().map(ToString::to_string).collect();
    named[0] = named[0].replace("127.0.0.1", "localhost");
    let locks = open_for(of(named).replicas(1), MAX_TTL).await;
    let guard = hold(&locks).await;
    assert!(exists(&replica, KEY).await && exists(&replica, &format!("{KEY}:n")).await);
    let findings = locks.diagnose().await.unwrap();
    let said = |subject| &findings.iter().find(|finding| finding.subject == subject).unwrap().detail;
    assert!(said("fail-over").contains("all replicas confirm"), "{findings:?}");
    assert!(said("sentinels").contains("3 of 3"), "{findings:?}");
    guard.release().await.unwrap();

    let _other = replica_of(&primary).await;
    let refused = refusal(config(&sentinels).replicas(1)).await;
    assert!(refused.to_string().contains("has 2 replicas"), "{refused}");
}
