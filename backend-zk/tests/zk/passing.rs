//! Passing a lock on: a holder writes its node before it deletes it, and only its own note counts.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Builder, LockManager, LostReason};
use parking_lot::Mutex;
use testbed::zookeeper::{Head, Op, Setup};
use testbed::{Beside, Direction, Mode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use zookeeper_client::{Acls, CreateMode, Error as ZkError};

use crate::fixture::{
    Fixture, Outside, Space, TTL, eventually, hold_aside, milliseconds, noted, noting, now, proxy, server,
};

/// A transaction.
const MULTI: Op = Op::Other(14);
/// A node as we and Curator name it.
const NODE: &str = "_c_51e3f9c4-2c4c-4d0e-9c0e-8f3c1a5b7d21-lock-";
const PASSES: &[u8] = b"leasehold 1\n1000\na\npasses 51e3f9c42c4c4d0e9c0e8f3c1a5b7d21";

/// So long a session that only the counted requests are sent.
async fn manager(space: &Space) -> LockManager {
    space.manager_with(|builder| builder.ttl(Duration::from_secs(60))).await
}

/// A client that found the lock free only deletes. One that has waited passes the lock on by one request, and the next
/// one holds without another.
pub(crate) async fn waiter_passes_on_by_one_request(fixture: Arc<Fixture>) {
    let (space, outside) = (fixture.space().await, fixture.space().await.outside().await);
    let directory = space.directory("a");
    let (mut waiting, mut seen, mut managers) = (Vec::new(), Vec::new(), Vec::new());
    let since_it_came = |asked: &Mutex<Vec<Op>>| {
        let asked = asked.lock();
        asked.iter().copied().skip_while(|op| *op != Op::Create).collect::<Vec<_>>()
    };
    for position in 1..=4 {
        let way = proxy(fixture.server().await);
        let locks = manager(&space.by(way.addr())).await;
        let asked = noted(&way).await;
        waiting.push(hold_aside(&locks, "a"));
        outside.has(&directory, position).await;
        let waits = position > 1;
        eventually("it waits", async || since_it_came(&asked).contains(&Op::Get) || !waits).await;
        seen.push(asked);
        managers.push((locks, way));
    }
    for (position, next) in waiting.into_iter().enumerate() {
        next.end("it holds").await.release().await.unwrap();
        let mut asked = since_it_came(&seen[position]);
        // A client that waited for long watches its own node, too.
        asked.dedup();
        if position == 0 {
            // It has made the directory, too.
            assert!(asked.ends_with(&[Op::Create, Op::List, Op::Delete]), "{asked:?}");
        } else {
            assert_eq!(asked, [Op::Create, Op::List, Op::Get, MULTI]);
        }
    }
    outside.has(&directory, 0).await;
}

pub(crate) async fn a_pass_that_is_not_heard_is_repeated(fixture: Arc<Fixture>) {
    let space = fixture.space().await;
    let way = proxy(fixture.server().await);
    let (first, second, third) =
        (manager(&space).await, manager(&space.by(way.addr())).await, manager(&space).await);
    let outside = space.outside().await;
    let guard = first.lock("a").unwrap().acquire().await.unwrap();
    let passing = hold_aside(&second, "a");
    outside.has(&space.directory("a"), 2).await;
    let waiting = hold_aside(&third, "a");
    outside.has(&space.directory("a"), 3).await;
    guard.release().await.unwrap();
    let guard = passing.end("it holds").await;
    way.set(Direction::ServerToClient, Mode::Hold).await;
    let releasing = Beside::start(guard.release());
    let next = waiting.end("it holds").await;
    way.held(Direction::ServerToClient, 1).await;
    way.reset().await;
    way.set(Direction::ServerToClient, Mode::Pass).await;
    releasing.end("it is released").await.unwrap();
    next.renew().await.unwrap();
    outside.has(&space.directory("a"), 1).await;
    next.release().await.unwrap();
}

/// Neither a foreign client nor another session of the user can write the node of a contender, whatever its rights.
pub(crate) async fn nobody_else_writes_a_contenders_node(fixture: Arc<Fixture>) {
    for user in [None, Some("me")] {
        let space = fixture.space().await;
        let config = match user {
            None => space.config(),
            Some(user) => space.config().credentials(user, "secret"),
        };
        let locks = LockManager::builder(config).build().await.unwrap();
        let guard = locks.lock("a").unwrap().acquire().await.unwrap();
        let outside = space.outside().await;
        outside.client.auth("digest", b"me:secret").await.unwrap();
        let directory = space.directory("a");
        let node = format!("{directory}/{}", outside.has(&directory, 1).await[0]);
        let written = outside.client.set_data(&node, b"__REVOKE__", None).await;
        assert_eq!(written.unwrap_err(), ZkError::NoAuth, "{user:?}");
        outside.client.set_data(&directory, b"leasehold", None).await.unwrap();
        outside.client.get_data(&node).await.unwrap();
        outside.client.delete(&node, None).await.unwrap();
        drop(guard);
    }
}

/// A change of a node is a pass only if its note says so, and only if it is the first change.
pub(crate) async fn foreign_data_is_no_pass(fixture: Arc<Fixture>) {
    for (note, writes_before, passes) in
        [(&b"127.0.0.1"[..], 0, false), (PASSES, 1, false), (PASSES, 0, true)]
    {
        let space = fixture.space().await;
        let way = proxy(fixture.server().await);
        let (locks, outside) = (manager(&space.by(way.addr())).await, space.outside().await);
        locks.lock("a").unwrap().acquire().await.unwrap().release().await.unwrap();
        let node = enter(&outside, &space.directory("a"), note).await;
        for _ in 0..writes_before {
            outside.client.set_data(&node, note, None).await.unwrap();
        }
        let asked = noted(&way).await;
        let waiting = hold_aside(&locks, "a");
        let watches = |asked: &[Op]| asked.iter().filter(|op| **op == Op::Get).count();
        eventually("it watches", async || watches(&asked.lock()) == 1).await;
        outside.client.set_data(&node, b"__REVOKE__", None).await.unwrap();
        if !passes {
            eventually("it watches again", async || watches(&asked.lock()) == 2).await;
            assert!(!waiting.is_finished(), "{note:?}");
            outside.client.delete(&node, None).await.unwrap();
        }
        waiting.end("it holds").await.release().await.unwrap();
    }
}

/// A server that makes another digest of the password refuses the pass: the lock is released by a deletion.
pub(crate) async fn a_right_that_is_missing_costs_one_request(fixture: Arc<Fixture>) {
    const PATIENCE: Duration = Duration::from_secs(20);
    let server = server(Setup::new().property(DIGEST, "SHA-256")).await;
    let space = fixture.space_on([server.addr()]);
    let way = proxy(&server);
    // A release whose answer is late is repeated from its beginning: as long as a session's length allows, none is.
    let patient = |builder: Builder| builder.ttl(3 * PATIENCE).op_timeout(PATIENCE);
    let second = space.by(way.addr()).manager_with(patient).await;
    let (first, third) = (manager(&space).await, manager(&space).await);
    let outside = space.outside().await;
    let guard = first.lock("a").unwrap().acquire().await.unwrap();
    let asked = noted(&way).await;
    let middle = hold_aside(&second, "a");
    eventually("it watches", async || asked.lock().contains(&Op::Get)).await;
    let waiting = hold_aside(&third, "a");
    outside.has(&space.directory("a"), 3).await;
    guard.release().await.unwrap();
    let guard = middle.end("it holds").await;
    asked.lock().clear();
    guard.release().await.unwrap();
    assert_eq!(*asked.lock(), [MULTI, Op::Delete]);
    waiting.end("it holds").await.release().await.unwrap();
}

/// On servers without this identity no client passes a lock on, and Curator's `Revoker` requests a release.
pub(crate) async fn servers_without_digest_are_served(fixture: Arc<Fixture>) {
    let (server, space) = (fixture.server().await, fixture.space().await);
    let way = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let without = space.by(way.local_addr().unwrap());
    let _serving = Beside::start(serve_without_digest(way, server.addr()));
    let (first, second) = (without.manager().await, without.manager().await);
    let outside = space.outside().await;
    let guard = first.lock("a").unwrap().acquire().await.unwrap();
    let waiting = hold_aside(&second, "a");
    let directory = space.directory("a");
    let nodes = outside.has(&directory, 2).await;
    let node = format!("{directory}/{}", nodes[0]);
    let (acl, _) = outside.client.get_acl(&node).await.unwrap();
    assert_eq!(acl.len(), 1, "{acl:?}");
    outside.client.set_data(&node, b"written", None).await.unwrap();
    guard.renew().await.unwrap();
    assert!(!waiting.is_finished());
    outside.client.set_data(&node, b"__REVOKE__", None).await.unwrap();
    assert_eq!(guard.lost().await, LostReason::Revoked);
    waiting.end("it holds").await.release().await.unwrap();
}

/// Where every client may write, no node says that it passes. A waiting node with a revocation request is deleted when
/// its client holds, and the client queues again.
pub(crate) async fn a_node_that_is_asked_for_while_it_waits_is_let_go(fixture: Arc<Fixture>) {
    let server = server(Setup::new().property("zookeeper.skipACL", "yes")).await;
    let space = fixture.space_on([server.addr()]);
    let way = proxy(&server);
    let (first, second) = (manager(&space).await, manager(&space.by(way.addr())).await);
    let outside = space.outside().await;
    let guard = first.lock("a").unwrap().acquire().await.unwrap();
    let asked = noted(&way).await;
    let _waiting = hold_aside(&second, "a");
    let directory = space.directory("a");
    let node = outside.has(&directory, 2).await.remove(1);
    let (note, _) = outside.client.get_data(&format!("{directory}/{node}")).await.unwrap();
    assert!(!String::from_utf8_lossy(&note).contains("passes"), "{note:?}");
    outside.client.set_data(&format!("{directory}/{node}"), b"__REVOKE__", None).await.unwrap();
    let watches = || asked.lock().iter().filter(|op| **op == Op::Get).count();
    eventually("it watches the one ahead and its own", async || watches() >= 2).await;
    guard.release().await.unwrap();
    let is_there = async || outside.client.list_children(&directory).await.unwrap().contains(&node);
    eventually("the node goes", async || !is_there().await).await;
}

/// A contender whose node was written while it reads the next one ahead watches its own node again before that one can
/// end: it never holds by a node that was deleted.
pub(crate) async fn a_node_that_is_written_is_watched_again_at_once(fixture: Arc<Fixture>) {
    let server = server(Setup::new().property("zookeeper.skipACL", "yes")).await;
    let space = fixture.space_on([server.addr()]);
    let way = proxy(&server);
    let (first, third) = (manager(&space).await, manager(&space).await);
    let second = space.by(way.addr()).manager_with(|builder| builder.ttl(Duration::from_secs(30))).await;
    let (outside, directory) = (space.outside().await, space.directory("a"));
    let guard = first.lock("a").unwrap().acquire().await.unwrap();
    let ahead = enter(&outside, &directory, b"127.0.0.1").await;
    let asked = noted(&way).await;
    let waiting = hold_aside(&second, "a");
    let own = format!("{directory}/{}", outside.has(&directory, 3).await.remove(2));
    let watches = || asked.lock().iter().filter(|op| **op == Op::Get).count();
    eventually("it watches the one ahead and its own", async || watches() == 2).await;
    way.set(Direction::ClientToServer, Mode::Hold).await;
    outside.client.delete(&ahead, None).await.unwrap();
    way.held(Direction::ClientToServer, 1).await;
    let told = way.traffic(Direction::ServerToClient).forwarded;
    outside.client.set_data(&own, b"written", None).await.unwrap();
    way.forwarded(Direction::ServerToClient, told + 1).await;
    way.set(Direction::ClientToServer, noting(&asked)).await;
    eventually("it watches the next one ahead", async || watches() >= 4).await;
    let beside = hold_aside(&third, "a");
    outside.has(&directory, 3).await;
    outside.client.delete(&own, None).await.unwrap();
    guard.release().await.unwrap();
    let beside = beside.end("it holds").await;
    let queues = async || outside.children(&directory).await.len() == 2;
    eventually("it has an answer", async || waiting.is_finished() || queues().await).await;
    assert!(!waiting.is_finished(), "it holds without a node");
    beside.release().await.unwrap();
    waiting.end("it holds").await.release().await.unwrap();
}

/// Our node is deleted by hand while we read the one ahead, or watch it. That the one ahead is gone is no grant after a
/// reconnect, nor for a node that has stood for a while.
pub(crate) async fn nobody_ahead_is_no_grant_of_a_node_that_may_be_gone(fixture: Arc<Fixture>) {
    for (reconnects, watches) in [(true, false), (false, false), (true, true)] {
        let space = fixture.space().await;
        let way = proxy(fixture.server().await);
        let first = manager(&space).await;
        let by_way = space.by(way.addr());
        let second = if reconnects { manager(&by_way).await } else { by_way.manager().await };
        let (outside, directory) = (space.outside().await, space.directory("a"));
        let guard = first.lock("a").unwrap().acquire().await.unwrap();
        let asked = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&asked);
        let unheard = Mode::drop_frames(move |frame| {
            let has = |part: &[u8]| frame.windows(part.len()).any(|bytes| bytes == part);
            let asks = has(b"-lock-") && Head::of(frame).is_some_and(|head| head.op == Op::Get);
            *counted.lock() += usize::from(asks);
            // The connection after the reconnect stays unchecked.
            if watches { has(b"-look") } else { asks }
        });
        way.set(Direction::ClientToServer, unheard).await;
        let came = now();
        let waiting = hold_aside(&second, "a");
        let nodes = outside.has(&directory, 2).await;
        eventually("it asks who is ahead", async || *asked.lock() > 0).await;
        let stands = || !reconnects && milliseconds(came) <= TTL.as_millis() / 10;
        eventually("it has stood for a while", async || !stands()).await;
        if watches {
            // Answered after the watch.
            second.inspect("a").await.unwrap();
            way.set(Direction::ServerToClient, Mode::Hold).await;
        }
        outside.client.delete(&format!("{directory}/{}", nodes[1]), None).await.unwrap();
        guard.release().await.unwrap();
        let beside = first.lock("a").unwrap().acquire().await.unwrap();
        if reconnects {
            way.reset().await;
        }
        let unheard = if watches { Direction::ServerToClient } else { Direction::ClientToServer };
        way.set(unheard, Mode::Pass).await;
        let queues = async || outside.children(&directory).await.len() == 2;
        eventually("it has an answer", async || waiting.is_finished() || queues().await).await;
        assert!(!waiting.is_finished(), "{reconnects} {watches}");
        beside.release().await.unwrap();
        waiting.end("it holds").await.release().await.unwrap();
    }
}

/// Our node is deleted by hand, and the one ahead ends, while our connection is lost. The next connection is checked before
/// the waiter is polled again: that end is no grant, because our own may have come before it.
pub(crate) async fn end_by_another_connection_is_no_grant(fixture: Arc<Fixture>) {
    let (space, way) = (fixture.space().await, proxy(fixture.server().await));
    let (first, second) = (manager(&space).await, manager(&space.by(way.addr())).await);
    let (outside, directory) = (space.outside().await, space.directory("a"));
    let guard = first.lock("a").unwrap().acquire().await.unwrap();
    let (lock, server) = (second.lock("a").unwrap(), fixture.server().await);
    let mut waiting = pin!(lock.acquire());
    let node = tokio::select! {
        _ = &mut waiting => panic!("two hold"),
        node = async {
            let nodes = outside.has(&directory, 2).await;
            let watches = async || server.ask("wchp").await.unwrap().contains(&nodes[0]);
            eventually("it watches", watches).await;
            // Answered after the watch.
            second.inspect("a").await.unwrap();
            nodes[1].clone()
        } => node,
    };
    way.set(Direction::ServerToClient, Mode::Hold).await;
    outside.client.delete(&format!("{directory}/{node}"), None).await.unwrap();
    guard.release().await.unwrap();
    let beside = first.lock("a").unwrap().acquire().await.unwrap();
    let asked = noted(&way).await;
    way.reset().await;
    way.set(Direction::ServerToClient, Mode::Pass).await;
    // The inbox is read after the check, which ends with a deletion.
    let is_read = || asked.lock().iter().skip_while(|op| **op != Op::Delete).any(|op| *op == Op::Get);
    eventually("it is checked", async || is_read()).await;
    tokio::select! {
        _ = &mut waiting => panic!("two hold"),
        _ = outside.has(&directory, 2) => {}
    }
    beside.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
}

/// Forwards all requests but those for an identity, which end the connection, as on a server without it.
async fn serve_without_digest(listener: TcpListener, server: SocketAddr) {
    let mut connections = JoinSet::new();
    loop {
        let (mut client, _) = listener.accept().await.unwrap();
        connections.spawn(async move {
            let mut server = TcpStream::connect(server).await.unwrap();
            let (mut answers, mut asks) = server.split();
            let (mut reads, mut writes) = client.split();
            let mut handing_on = async || -> std::io::Result<i32> {
                loop {
                    let mut frame = vec![0; usize::try_from(reads.read_i32().await?).unwrap()];
                    reads.read_exact(&mut frame).await?;
                    let head = Head::of(&[&[0; 4], &frame[..]].concat());
                    if let Some(head) = head.filter(|head| head.op == Op::Other(100)) {
                        return Ok(head.number);
                    }
                    asks.write_i32(i32::try_from(frame.len()).unwrap()).await?;
                    asks.write_all(&frame).await?;
                }
            };
            let identity = tokio::select! {
                _ = tokio::io::copy(&mut answers, &mut writes) => return,
                identity = handing_on() => identity,
            };
            let Ok(number) = identity else {
                return;
            };
            // Its length, number and transaction, and why.
            for word in [16, number, 0, 0, -115] {
                writes.write_i32(word).await.unwrap();
            }
        });
    }
}

/// A foreign contender, whose node everybody may write.
async fn enter(outside: &Outside, directory: &str, note: &[u8]) -> String {
    let path = format!("{directory}/{NODE}");
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let (_, sequence) = outside.client.create(&path, note, &options).await.unwrap();
    format!("{path}{sequence}")
}

/// The server property that names the digest of passwords.
const DIGEST: &str = "zookeeper.DigestAuthenticationProvider.digestAlg";
