//! The messages about a contender's turn are only hints: they are lost, late, repeated, made
//! up, or forbidden, and the lock is passed on all the same, once.

use std::time::Duration;

use futures_util::{Stream, StreamExt};
use leasehold_core::backend::{Finding, Severity, StoreEvent};
use leasehold_core::{ErrorKind, LockManager, Revoke};
use leasehold_redis::{QuorumConfig, RedisConfig};
use testbed::redis::{Reply, Server};
use testbed::{Direction, Mode};

use crate::counts::Requests;
use crate::diagnosis;
use crate::fixture::{
    BOUND, Beside, KEY, LONG, NAME, Waiter, command, direct, eventually, hold, now, ok, open, open_for, pass,
    proxy, server, store, trials, via, within,
};
use crate::quorum::three;
use crate::revocation::{Asking, GRACE, is_asked};
use crate::tokens::BASE;

trials![
    made_up_messages_end_no_hold_and_raise_no_token = || made_up(None),
    unsigned_messages_are_passed_over = || made_up(Some("a secret of sixteen")),
    made_up_messages_end_no_hold_of_a_quorum = || made_up_of_three(None),
    revocation_between_votes_arrives_with_the_hold,
    a_quorum_passes_over_unsigned_messages = || made_up_of_three(Some("a secret of sixteen")),
    made_up_revocations_are_looked_up_at_a_pace,
    grant_during_a_release_is_released,
    another_message_key_is_warned_of,
    session_that_moves_refuses_another_format,
    without_the_right_to_listen_turns_come_by_refresh = || unheard("+@all resetchannels"),
    without_the_right_to_publish_turns_come_by_refresh = || unheard("+@all -publish &*"),
    lost_channel_right_while_opening_is_known,
];

/// The owner that the server has for the lock.
async fn owner(server: &Server) -> Option<String> {
    command(server, &["GET", KEY]).await.text()
}

/// A user that may read and publish makes messages up: no hold is lost, and no token is far ahead. With a key, nothing is
/// granted either.
async fn made_up(message_key: Option<&str>) {
    let server = server().await;
    let config = || match message_key {
        Some(key) => direct(&server).message_key(key),
        None => direct(&server),
    };
    let (a, b) = (open_for(config(), LONG).await, open_for(config(), LONG).await);
    let guard = hold(&a).await;
    let waiting = Waiter::queued(&b, 0, &a).await;
    let holder = owner(&server).await.unwrap();
    let next = command(&server, &["ZRANGE", &format!("{KEY}:q"), "0", "-1"]).await.elements();
    let next = next[0].text().unwrap();
    let largest = leasehold_core::FencingToken::MAX_COUNTER;
    let mut messages = vec![
        format!("granted {holder} 1 {KEY}"),
        format!("revoked {holder} 0 {KEY}"),
        format!("revoked {next} 0 {KEY}"),
        format!("granted {next} {largest} {KEY}"),
    ];
    if message_key.is_some() {
        let counter = guard.token().counter() + 1;
        messages.push(format!("granted {next} {counter} {KEY}"));
        messages.push(format!("granted {next} {counter}/{} {KEY}", "0".repeat(40)));
    }
    for inbox in command(&server, &["PUBSUB", "CHANNELS"]).await.elements() {
        for message in &messages {
            command(&server, &["PUBLISH", &inbox.text().unwrap(), message]).await;
        }
    }
    // What is looked up, is by then.
    pass(Duration::from_millis(200)).await;
    a.inspect("another").await.unwrap();
    guard.ensure_held().unwrap();
    assert!(guard.revocation_deadline().is_none() && waiting.is_waiting());
    assert_eq!(owner(&server).await.as_ref(), Some(&holder));
    guard.release().await.unwrap();
    // Its refresh is minutes away: the true message grants.
    let guard = waiting.held().await;
    assert!(guard.token().counter() < largest);
    guard.release().await.unwrap();
}

/// The same of three servers, where messages say that one votes again, or that the lock was revoked. True ones count.
async fn made_up_of_three(message_key: Option<&str>) {
    let servers = three().await;
    let sign = |server: RedisConfig| match message_key {
        Some(key) => server.message_key(key),
        None => server,
    };
    let config = || {
        QuorumConfig::new(servers.iter().map(|server| sign(direct(server))))
            .pause_after_restart(Duration::ZERO)
    };
    let open =
        async || LockManager::builder(config()).ttl(LONG).connect_timeout(BOUND).build().await.unwrap();
    let (a, b) = (open().await, open().await);
    let guard = hold(&a).await;
    let waiting = Waiter::queued(&b, 0, &a).await;
    for server in &servers {
        let vote = command(server, &["GET", &format!("{KEY}:vote")]).await.text().unwrap_or_default();
        let holder = vote.split(':').next().unwrap();
        let waits = command(server, &["ZRANGE", &format!("{KEY}:waits"), "0", "-1"]).await.elements();
        // A straggler may know of neither.
        let next = waits.first().and_then(Reply::text).unwrap_or_default();
        let next = next.split(' ').next().unwrap();
        for inbox in command(server, &["PUBSUB", "CHANNELS"]).await.elements() {
            for (news, owner) in [("revoked", holder), ("revoked", next), ("freed", next), ("freed", holder)]
            {
                let message = format!("{news} {owner} 0 {KEY}:vote");
                command(server, &["PUBLISH", &inbox.text().unwrap(), &message]).await;
            }
        }
    }
    // What is looked up, is by then.
    pass(Duration::from_millis(200)).await;
    guard.ensure_held().unwrap();
    assert!(guard.revocation_deadline().is_none() && waiting.is_waiting());
    let asking = Asking::start(&b, GRACE);
    is_asked(&guard).await;
    guard.release().await.unwrap();
    asking.answered().await;
    // Its next look is minutes away.
    waiting.held().await.release().await.unwrap();
}

/// The message comes from the server that has voted already, before the votes of the others.
async fn revocation_between_votes_arrives_with_the_hold() {
    let servers = three().await;
    let proxies: Vec<_> = servers.iter().map(proxy).collect();
    // Only the first server may send messages for the administrator.
    for server in &servers[1..] {
        ok(server, &["ACL", "SETUSER", "silent", "on", ">secret", "~*", "&*", "+@all", "-publish"]).await;
    }
    let to_admin = |(at, server)| match at {
        0 => direct(server),
        _ => direct(server).credentials("silent", "secret"),
    };
    let open = async |config: QuorumConfig| {
        let config = config.pause_after_restart(Duration::ZERO);
        let manager = LockManager::builder(config).ttl(LONG).op_timeout(LONG / 3).connect_timeout(BOUND);
        manager.build().await.unwrap()
    };
    let locks = open(QuorumConfig::new(proxies.iter().map(via))).await;
    let admin = open(QuorumConfig::new(servers.iter().enumerate().map(to_admin))).await;
    hold(&locks).await.release().await.unwrap();
    for proxy in &proxies[1..] {
        proxy.set(Direction::ServerToClient, Mode::Hold).await;
    }
    let acquiring = Waiter::start(&locks);
    for proxy in &proxies[1..] {
        proxy.held(Direction::ServerToClient, 1).await;
    }
    let vote = format!("{KEY}:vote");
    eventually("the first server votes", async || {
        command(&servers[0], &["EXISTS", &vote]).await.integer() == Some(1)
    })
    .await;
    let forwarded = proxies[0].traffic(Direction::ServerToClient).forwarded;
    let asking = Asking::start(&admin, GRACE);
    proxies[0].forwarded(Direction::ServerToClient, forwarded + 1).await;
    for proxy in &proxies[1..] {
        proxy.set(Direction::ServerToClient, Mode::Pass).await;
    }
    let guard = acquiring.held().await;
    is_asked(&guard).await;
    guard.release().await.unwrap();
    asking.answered().await;
}

async fn made_up_revocations_are_looked_up_at_a_pace() {
    let server = server().await;
    let (a, b) = (open_for(direct(&server), LONG).await, open_for(direct(&server), LONG).await);
    let guard = hold(&a).await;
    let forged = format!("revoked {} 0 {KEY}", owner(&server).await.unwrap());
    let inboxes = command(&server, &["PUBSUB", "CHANNELS"]).await.elements();
    let began = now();
    Requests::begin(&server).await;
    while now().since(began) < Duration::from_secs(1) {
        for inbox in &inboxes {
            command(&server, &["PUBLISH", &inbox.text().unwrap(), &forged]).await;
        }
    }
    let (requests, took) = (Requests::since(&server).await, now().since(began));
    let looked_up = requests.0.get("evalsha").copied().unwrap_or_default();
    let most = took.as_millis() / 250 + 1;
    assert!((1..=most).contains(&u128::from(looked_up)), "{looked_up} times in {took:?}");
    let revoked = Beside::start(async move { b.revoke(NAME, Revoke::Ask { grace: LONG }).await });
    within(BOUND, "it hears that it is to let go", guard.revocation_requested()).await;
    guard.release().await.unwrap();
    revoked.end("it is released").await.unwrap();
}

/// A waiter that leaves may be granted the lock before its release arrives: the message of that causes one more release.
async fn grant_during_a_release_is_released() {
    let server = server().await;
    let proxy = proxy(&server);
    let a = open_for(direct(&server), LONG).await;
    // A release that waits is not given up meanwhile.
    let b = LockManager::builder(via(&proxy)).ttl(LONG).op_timeout(LONG / 3).connect_timeout(BOUND);
    let b = b.build().await.unwrap();
    let guard = hold(&a).await;
    let leaving = Waiter::queued(&b, 0, &a).await;
    let entry = command(&server, &["ZRANGE", &format!("{KEY}:q"), "0", "-1"]).await.elements();
    proxy.set(Direction::ClientToServer, Mode::Hold).await;
    drop(leaving);
    proxy.held(Direction::ClientToServer, 1).await;
    let message = format!("granted {} {} {KEY}", entry[0].text().unwrap(), guard.token().counter() + 1);
    for inbox in command(&server, &["PUBSUB", "CHANNELS"]).await.elements() {
        command(&server, &["PUBLISH", &inbox.text().unwrap(), &message]).await;
    }
    proxy.held(Direction::ClientToServer, 2).await;
    proxy.set(Direction::ClientToServer, Mode::Pass).await;
    eventually("it has left", async || a.inspect(NAME).await.is_ok_and(|state| state.contenders == 0)).await;
    guard.release().await.unwrap();
}

/// A session with another key, or with none, is warned and can lock. Whether a manager has the key is noted by the first.
async fn another_message_key_is_warned_of() {
    let server = server().await;
    let proxy = proxy(&server);
    let signing = |key: &str| direct(&server).message_key(key);
    let early = store(via(&proxy)).await;
    let mut warned_early = early.events();
    assert_eq!(
        command(&server, &["EXISTS", FORMAT]).await.integer(),
        Some(0),
        "without a key nothing is written"
    );
    let a = open(signing("a secret of sixteen")).await;
    hold(&a).await.release().await.unwrap();
    for (config, said) in
        [(direct(&server), "is missing"), (signing("another secret of many"), "differs from that")]
    {
        let other = store(config).await;
        let said = format!("`message_key` {said}");
        warned(&mut other.events(), &said).await;
        let findings = other.diagnose().await.unwrap();
        let is_found = |found: &Finding| found.severity == Severity::Warning && found.detail.contains(&said);
        assert!(findings.iter().any(is_found), "{findings:?}");
    }
    // One that was there before is warned when it comes back.
    proxy.reset().await;
    warned(&mut warned_early, "`message_key` is missing").await;
    let b = open(direct(&server)).await;
    hold(&b).await.release().await.unwrap();
    command(&server, &["DEL", FORMAT]).await;
    command(&server, &["SET", BASE, "4000000000000000"]).await;
    a.diagnose().await.unwrap();
    assert_eq!(command(&server, &["EXISTS", FORMAT]).await.integer(), Some(0), "a diagnosis writes nothing");
    let token = hold(&a).await.token();
    assert!(token.counter() < 4_000_000_000_000_000, "a diagnosis raises no token: {token}");
}

async fn warned(events: &mut (impl Stream<Item = StoreEvent> + Unpin), of: &str) {
    let warning = async {
        loop {
            match events.next().await {
                Some(StoreEvent::Warning(said)) if said.contains(of) => return,
                Some(_) => {}
                None => panic!("the session has ended"),
            }
        }
    };
    within(BOUND, "it is warned", warning).await;
}

/// A session that moves reads the format with the record.
async fn session_that_moves_refuses_another_format() {
    let server = server().await;
    ok(&server, &["SET", FORMAT, "2"]).await;
    let refused = crate::ledger::ledger(direct(&server)).await.read().await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Unsupported, "{refused}");
    assert!(refused.to_string().contains("format \"2\""), "{refused}");
}

const FORMAT: &str = "leasehold:{%move}:format";

/// Where messages are forbidden, each turn comes with the contender's next refresh.
async fn unheard(rights: &'static str) {
    let server = server().await;
    let user = ["ACL", "SETUSER", "app", "on", ">secret", "~*"];
    let user: Vec<&str> = user.into_iter().chain(rights.split(' ')).collect();
    ok(&server, &user).await;
    let config = || direct(&server).credentials("app", "secret");
    let managers: [LockManager; 2] = [open(config()).await, open(config()).await];
    for round in 0..2 {
        let guard = hold(&managers[round % 2]).await;
        let waiting = Waiter::queued(&managers[(round + 1) % 2], 0, &managers[round % 2]).await;
        guard.release().await.unwrap();
        let granted = owner(&server).await;
        let next = waiting.held().await;
        assert_eq!(owner(&server).await, granted, "it is the grant that was not heard of");
        next.release().await.unwrap();
    }
}

/// The link reconnects before there is a session, and the user may not subscribe any more: the session says so.
async fn lost_channel_right_while_opening_is_known() {
    let server = server().await;
    let proxy = proxy(&server);
    ok(&server, &["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all"]).await;
    proxy.set(Direction::ServerToClient, Mode::Hold).await;
    let config = via(&proxy).credentials("app", "secret").wait_replicas(1);
    let opening = Beside::start(open_for(config, LONG));
    // It may subscribe, and goes on to the link to the replicas, which is not up yet.
    // Both HELLO; SUBSCRIBE; PUBLISH and its message, MGET, GET.
    for answers in [2, 1, 4] {
        proxy.held(Direction::ServerToClient, answers).await;
        proxy.release_held(Direction::ServerToClient).await;
    }
    proxy.held(Direction::ServerToClient, 1).await;
    // Unlike frames that are held, the end of a connection goes through.
    proxy.set(Direction::ServerToClient, Mode::delay(LONG)).await;
    let sent = proxy.traffic(Direction::ClientToServer).forwarded;
    // The server cuts a client with a subscription that its user may not have.
    ok(&server, &["ACL", "SETUSER", "app", "resetchannels"]).await;
    proxy.forwarded(Direction::ClientToServer, sent + 1).await;
    proxy.set(Direction::ServerToClient, Mode::Pass).await;
    let locks = opening.end("it is open").await;
    assert_eq!(diagnosis::of(&locks, "messages").await.0, Severity::Warning);
}
