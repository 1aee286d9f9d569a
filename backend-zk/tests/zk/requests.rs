//! Requests, by the server's count.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::LockManager;
use parking_lot::Mutex;
use testbed::zookeeper::{Head, Op, Server, Setup};
use testbed::{Direction, Mode};
use zookeeper_client::{Acls, CreateMode};

use crate::fixture::{
    Beside, Fixture, Outside, Space, TTL, eventually, hold_aside, noted, now, proxy, requests_of, server,
};

/// Create and list leave together, and the delete follows. After two exclusive holds in a row the directory is watched
/// in the flight of the delete.
pub(crate) async fn an_uncontended_cycle_is_two_flights(fixture: Arc<Fixture>) {
    let server = fixture.server().await;
    let space = fixture.space().await;
    let proxy = proxy(server);
    let locks = long_session(&space.by(proxy.addr())).await;
    cycle(&locks, "a").await;
    proxy.set(Direction::ServerToClient, Mode::Hold).await;
    let seen = noted(&proxy).await;
    let lock = locks.lock("a").unwrap();
    let taking = Beside::start(async move { lock.acquire().await });
    proxy.held(Direction::ServerToClient, 2).await;
    assert_eq!(*seen.lock(), [Op::Create, Op::List]);
    proxy.set(Direction::ServerToClient, Mode::Pass).await;
    let guard = taking.end("it holds").await.unwrap();
    seen.lock().clear();
    proxy.set(Direction::ServerToClient, Mode::Hold).await;
    let releasing = Beside::start(async move { guard.release().await });
    proxy.held(Direction::ServerToClient, 2).await;
    assert_eq!(*seen.lock(), [Op::Get, Op::Delete]);
    proxy.set(Direction::ServerToClient, Mode::Pass).await;
    releasing.end("it is released").await.unwrap();
}

/// A waiter checks the node ahead once in the time of a session, by a transaction that only checks. It lists nothing and
/// sets no new watch.
pub(crate) async fn a_waiter_asks_the_leader_once_in_a_session(fixture: Arc<Fixture>) {
    const CHECKED: Op = Op::Other(14);
    let server = fixture.server().await;
    let space = fixture.space().await;
    let proxy = proxy(server);
    let (holder, waiter) = (space.manager().await, space.by(proxy.addr()));
    let waiter = waiter.manager().await;
    let guard = holder.lock("a").unwrap().acquire().await.unwrap();
    let waiting = hold_aside(&waiter, "a");
    space.outside().await.has(&space.directory("a"), 2).await;
    let (seen, answered) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)));
    let began = now();
    let noted = Arc::clone(&seen);
    let noting = Mode::drop_frames(move |frame| {
        noted
            .lock()
            .extend(Head::of(frame).filter(|head| head.op != Op::Ping).map(|head| (head.number, head.op)));
        false
    });
    proxy.set(Direction::ClientToServer, noting).await;
    let (asked, counted) = (Arc::clone(&seen), Arc::clone(&answered));
    let counting = Mode::drop_frames(move |frame| {
        let number = frame.get(4..8).map(|number| i32::from_be_bytes(number.try_into().unwrap()));
        *counted.lock() +=
            usize::from(number.is_some_and(|number| asked.lock().contains(&(number, CHECKED))));
        false
    });
    proxy.set(Direction::ServerToClient, counting).await;
    // A question that a release overtakes finds nobody, and is followed by a listing.
    eventually("it has asked twice, and was answered", async || *answered.lock() == 2).await;
    assert!(now().since(began) > TTL, "more often than once in a session");
    assert!(!waiting.is_finished());
    guard.release().await.unwrap();
    let guard = waiting.end("it holds").await;
    let mut seen: Vec<_> = seen.lock().iter().map(|(_, op)| *op).collect();
    // Beside what keeps the session, and what the first watch may have been.
    seen.retain(|op| *op != Op::SetData);
    let from = seen.iter().position(|op| *op == CHECKED).unwrap();
    assert_eq!(seen[from..], [CHECKED; 2]);
    guard.release().await.unwrap();
}

/// The last of twenty thousand waiters, more names than Java clients accept in a listing, makes as many requests as
/// behind two.
pub(crate) async fn twenty_thousand_waiters_cost_the_last_no_more_than_two(fixture: Arc<Fixture>) {
    let server = server(Setup::new().longest_session(VERY_LONG)).await;
    let mut spent = Vec::new();
    for waiters in [2, 20_000] {
        let space = fixture.space_on([server.addr()]);
        let (first, last) = (very_long_session(&space).await, very_long_session(&space).await);
        let holder = first.lock("a").unwrap().acquire().await.unwrap();
        let outside = space.outside().await;
        let directory = space.directory("a");
        let others = stand_in_line(&outside, &directory, waiters).await;
        cycle(&last, "warm").await;
        let session = session_of(&space, &server, &outside, &last).await;
        let before = requests_of(&server, session).await;
        let lock = last.lock("a").unwrap();
        let waiting = Beside::start(async move { lock.acquire().await });
        outside.has(&directory, waiters + 2).await;
        // It has made its node, seen those ahead, and watches one.
        eventually("the last one watches", async || requests_of(&server, session).await == before + 3).await;
        // Those ahead leave from the front; the last one watches only the nearest.
        let mut removals = Vec::new();
        for other in &others {
            removals.push(outside.client.delete(other, None));
        }
        for removal in removals {
            removal.await.unwrap();
        }
        outside.has(&directory, 2).await;
        // It has listed again, and watches the holder.
        eventually("the holder is watched", async || requests_of(&server, session).await == before + 5).await;
        holder.release().await.unwrap();
        let guard = waiting.end("it holds").await.unwrap();
        spent.push(requests_of(&server, session).await - before);
        guard.release().await.unwrap();
    }
    println!("{spent:?} requests of the last of 2 and of 20 000");
    assert_eq!(spent[0], spent[1]);
    // Create, list, watch; and then, as the holder alone is left ahead, list and watch that.
    assert_eq!(spent[0], 5);
}

pub(crate) async fn coming_back_is_two_writes(fixture: Arc<Fixture>) {
    let server = fixture.server().await;
    let space = fixture.space().await;
    let proxy = proxy(server);
    let locks = long_session(&space.by(proxy.addr())).await;
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    let seen = noted(&proxy).await;
    proxy.reset().await;
    let asked = || {
        let seen = seen.lock();
        let ours = seen.iter().filter(|op| !matches!(op, Op::Other(_))).skip_while(|op| **op != Op::Create);
        ours.copied().collect::<Vec<_>>()
    };
    // A proved session reads its inbox again.
    eventually("it has looked", async || asked().len() >= 4).await;
    assert_eq!(asked(), [Op::Create, Op::Get, Op::Delete, Op::Get]);
    guard.renew().await.unwrap();
    guard.ensure_held().unwrap();
}

pub(crate) async fn a_pause_of_the_server_breaks_no_connection(fixture: Arc<Fixture>) {
    let server = fixture.server().await;
    let proxy = proxy(server);
    let space = fixture.space_on([proxy.addr(); 9]);
    let builder = LockManager::builder(space.config()).ttl(Duration::from_secs(16));
    let locks = builder.connect_timeout(Duration::from_secs(10)).build().await.unwrap();
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    // No client that disconnects comes back.
    proxy.refuse_new().await.unwrap();
    proxy.set(Direction::ServerToClient, Mode::Hold).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await; // the pause
    proxy.set(Direction::ServerToClient, Mode::Pass).await;
    guard.renew().await.unwrap();
    assert_eq!(proxy.connections(), 1);
}

async fn long_session(space: &Space) -> LockManager {
    // So long that no renewal falls into what is counted.
    space.manager_with(|builder| builder.ttl(Duration::from_secs(60))).await
}

/// A tenth of it is longer than a test: no client watches its own node.
async fn very_long_session(space: &Space) -> LockManager {
    space.manager_with(|builder| builder.ttl(VERY_LONG)).await
}

const VERY_LONG: Duration = Duration::from_secs(1_800);

/// Acquires and releases, without a local hand-off.
async fn cycle(locks: &LockManager, name: &str) {
    locks.lock(name).unwrap().acquire().await.unwrap().release().await.unwrap();
}

/// Foreign contenders that wait for nothing.
async fn stand_in_line(outside: &Outside, directory: &str, count: usize) -> Vec<String> {
    let path = format!("{directory}/_c_00000000-0000-0000-0000-000000000000-lock-");
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let creations: Vec<_> = (0..count).map(|_| outside.client.create(&path, b"", &options)).collect();
    let mut nodes = Vec::new();
    for creation in creations {
        let (_, sequence) = creation.await.unwrap();
        nodes.push(format!("{path}{sequence}"));
    }
    nodes
}

/// The session that owns the node of a lock that `locks` holds.
async fn session_of(space: &Space, server: &Server, outside: &Outside, locks: &LockManager) -> i64 {
    let guard = locks.lock("which").unwrap().acquire().await.unwrap();
    let directory = space.directory("which");
    let children = outside.has(&directory, 1).await;
    let node = format!("{directory}/{}", children[0]);
    let owners = server.ephemerals().await.unwrap();
    let owner = owners.iter().find(|(_, nodes)| nodes.contains(&node)).map(|(session, _)| *session);
    guard.release().await.unwrap();
    owner.expect("the node belongs to a session")
}
