//! A client that acquires a lock again, with no other client in between, does not list.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::{Builder, Lock, LockGuard, LockManager};
use parking_lot::Mutex;
use testbed::zookeeper::{Op, Server, Setup};
use testbed::{Direction, Mode, Proxy};
use zookeeper_client::{Acl, Acls, AuthId, CreateMode, Permission};

use crate::fixture::{BOUND, Beside, Fixture, Outside, Space, eventually, hold_aside, noted, proxy, server};

/// A lock that several share by turns is listed each time; its directory is not watched.
pub(crate) async fn sharer_reads_in_the_same_flight(fixture: Arc<Fixture>) {
    let space = fixture.space().await;
    let way = proxy(fixture.server().await);
    let (one, other) = (long_session(&space.by(way.addr())).await, long_session(&space).await);
    cycle(&one).await;
    let seen = noted(&way).await;
    for _ in 0..4 {
        cycle(&other).await;
        cycle(&one).await;
    }
    assert_eq!(*seen.lock(), [Op::Create, Op::List, Op::Delete].repeat(4));
}

/// A try lists, and creates a node if the listing admits it. With the predicted number it holds, and with another one it
/// lists again. It watches the directory once for each connection.
pub(crate) async fn try_is_granted_by_the_listed_number(fixture: Arc<Fixture>) {
    let space = fixture.space().await;
    let way = proxy(fixture.server().await);
    let (one, other) = (long_session(&space.by(way.addr())).await, long_session(&space).await);
    let lock = one.lock("a").unwrap();
    cycle(&one).await;
    let seen = noted(&way).await;
    cycle(&other).await;
    for expected in [&[Op::List, Op::Get, Op::Create, Op::Delete][..], &[Op::Create, Op::Delete]] {
        lock.try_acquire().await.unwrap().expect("it is free").release().await.unwrap();
        assert_eq!(std::mem::take(&mut *seen.lock()), expected);
    }
    let guard = other.lock("a").unwrap().acquire().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert_eq!(std::mem::take(&mut *seen.lock()), [Op::Create, Op::List, Op::Delete, Op::Get]);
    guard.release().await.unwrap();
    // The holder is gone when it is to be read, and is not read again.
    way.set(Direction::ServerToClient, Mode::Hold).await;
    let trying = tries_aside(&lock);
    way.held(Direction::ServerToClient, 1).await;
    let guard = other.lock("a").unwrap().acquire().await.unwrap();
    for _ in 0..2 {
        way.release_held(Direction::ServerToClient).await;
        way.held(Direction::ServerToClient, 1).await;
    }
    guard.release().await.unwrap();
    way.set(Direction::ServerToClient, Mode::Pass).await;
    assert!(trying.end("it has tried").await.is_none());
    let expected = [Op::List, Op::Create, Op::List, Op::Delete, Op::Get];
    assert_eq!(std::mem::take(&mut *seen.lock()), expected);
    for holds in [true, false] {
        way.set(Direction::ServerToClient, Mode::Hold).await;
        let trying = tries_aside(&lock);
        way.held(Direction::ServerToClient, 1).await;
        let guard = other.lock("a").unwrap().acquire().await.unwrap();
        let guard = if holds { Some(guard) } else { guard.release().await.map(|()| None).unwrap() };
        way.set(Direction::ServerToClient, Mode::Pass).await;
        let tried = trying.end("it has tried").await;
        assert_eq!(tried.is_some(), !holds, "two hold at once");
        let expected: &[Op] = if holds {
            &[Op::List, Op::Create, Op::List, Op::Delete, Op::Get]
        } else {
            &[Op::List, Op::Create, Op::List]
        };
        // A hold that lasts for a moment is listed.
        let asked = std::mem::take(&mut *seen.lock());
        assert!(
            asked.starts_with(expected) && (tried.is_some() || asked.len() == expected.len()),
            "{asked:?}"
        );
        for guard in guard.into_iter().chain(tried) {
            guard.release().await.unwrap();
        }
        seen.lock().clear();
    }
}

/// A try that got another number than predicted lists in the middle of its hold. The next try counts on that listing,
/// although another contender has come and gone.
pub(crate) async fn try_counts_on_a_listing_of_its_hold(fixture: Arc<Fixture>) {
    /// This passes four times before that listing.
    const LATE: Duration = Duration::from_millis(200);
    let space = fixture.space().await;
    let way = proxy(fixture.server().await);
    let (one, other) = (long_session(&space.by(way.addr())).await, long_session(&space).await);
    let (outside, node) = (space.outside().await, format!("{}/lock-", space.directory("a")));
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let lock = one.lock("a").unwrap();
    let tries = async || lock.try_acquire().await.unwrap().expect("it is free");
    cycle(&other).await;
    tries().await.release().await.unwrap();
    cycle(&other).await;
    let seen = noted(&way).await;
    way.set(Direction::ServerToClient, Mode::delay(LATE)).await;
    let guard = tries().await;
    let (_, number) = outside.client.create(&node, b"", &options).await.unwrap();
    outside.client.delete(&format!("{node}{number}"), None).await.unwrap();
    eventually("it lists during its hold", async || *seen.lock() == [Op::Create, Op::List, Op::List]).await;
    // By this answer that of the listing was there.
    one.inspect("b").await.unwrap();
    guard.release().await.unwrap();
    seen.lock().clear();
    let guard = tries().await;
    assert_eq!(*seen.lock(), [Op::Create]);
    guard.release().await.unwrap();
}

/// The server removes a directory, and other clients count up in the next one to just below our next number. They are
/// waited for, whether the removal is reported before our request or with its reply.
pub(crate) async fn a_directory_that_counts_anew_is_looked_at(_rig: Arc<Fixture>) {
    let server = server(reaping(100)).await;
    let space = Space::whole(&server);
    counts_anew(&space, &server).await;
}

/// The same through each of three servers, while the other clients use the leader.
pub(crate) async fn every_server_tells_of_a_directory_that_counts_anew(fixture: Arc<Fixture>) {
    let ensemble = reaping(100).start_ensemble(3).await.unwrap();
    let leader = ensemble.leader().await.unwrap();
    for server in 0..ensemble.size() {
        counts_anew(&fixture.space_on([ensemble[leader].addr()]), &ensemble[server]).await;
    }
}

async fn counts_anew(space: &Space, ours: &Server) {
    let (outside, way) = (space.outside().await, proxy(ours));
    for (name, is_told_late) in [("a", false), ("b", true)] {
        let directory = space.directory(name);
        let locks = long_session(&space.by(way.addr())).await;
        let numbers = two_in_a_row(&locks, &outside, &directory, name).await;
        if is_told_late {
            way.set(Direction::ServerToClient, Mode::Hold).await;
        }
        eventually("the directory is gone", async || {
            outside.client.check_stat(&directory).await.unwrap().is_none()
        })
        .await;
        let others = strangers(&outside, &directory, numbers).await;
        let waiting = hold_aside(&locks, name);
        outside.has(&directory, numbers + 1).await;
        if is_told_late {
            // The directory's end, and the answer.
            way.held(Direction::ServerToClient, 2).await;
            way.set(Direction::ServerToClient, Mode::Pass).await;
        }
        waits_behind(ours, others.last().unwrap(), &waiting).await;
        for other in others {
            outside.client.delete(&other, None).await.unwrap();
        }
        waiting.end("it holds").await.release().await.unwrap();
        locks.shutdown().await.unwrap();
    }
}

/// Directories are removed between any two steps: one client holds at a time.
pub(crate) async fn repeated_entry_is_alone(_rig: Arc<Fixture>) {
    const TURNS: u32 = 100;
    let server = server(reaping(1)).await;
    let space = Space::whole(&server);
    let mut workers = tokio::task::JoinSet::new();
    let (held, last) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    for worker in 0..3 {
        let (locks, held, last) = (long_session(&space).await, Arc::clone(&held), Arc::clone(&last));
        workers.spawn(async move {
            for turn in 0..TURNS {
                for _ in 0..2 + (turn + worker) % 3 {
                    let lock = locks.lock("a").unwrap();
                    let guard = match lock.try_acquire().await.unwrap() {
                        Some(guard) => guard,
                        None if turn % 2 == 0 => continue,
                        None => lock.acquire().await.unwrap(),
                    };
                    assert!(!held.swap(true, Ordering::SeqCst), "two hold at once");
                    let token = guard.token().get();
                    assert!(last.swap(token, Ordering::SeqCst) < token, "tokens fall with the numbers");
                    tokio::time::sleep(Duration::from_millis(1)).await; // time for another one to come in
                    assert!(held.swap(false, Ordering::SeqCst));
                    guard.release().await.unwrap();
                }
                let pause = Duration::from_millis(u64::from((turn * 7 + worker * 5) % 23));
                tokio::time::sleep(pause).await; // time for others to come, and for the directory to go
            }
        });
    }
    workers.join_all().await;
}

/// A reconnect forgets the directory, and the next release knows it again. A node that another client deleted proves nothing.
pub(crate) async fn a_reconnect_is_followed_by_a_look(fixture: Arc<Fixture>) {
    let space = fixture.space().await;
    let way = proxy(fixture.server().await);
    let locks = long_session(&space.by(way.addr())).await;
    for _ in 0..3 {
        cycle(&locks).await;
    }
    let seen = noted(&way).await;
    comes_back(&way, &seen).await;
    for _ in 0..2 {
        cycle(&locks).await;
    }
    assert_eq!(
        *seen.lock(),
        // The watch of the earlier connection is no use any more.
        [REMOVE_WATCHES, Op::Create, Op::List, Op::Get, Op::Delete, Op::Create, Op::Delete],
    );
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    let (outside, directory) = (space.outside().await, space.directory("a"));
    let node = outside.has(&directory, 1).await.remove(0);
    outside.client.delete(&format!("{directory}/{node}"), None).await.unwrap();
    guard.release().await.expect_err("its node is gone");
    seen.lock().clear();
    cycle(&locks).await;
    assert_eq!(seen.lock()[..2], [Op::Create, Op::List]);
}

/// The end of a directory whose rights may change may not be reported: it is listed each time, and its rights are read
/// once.
pub(crate) async fn a_directory_that_is_not_as_we_make_them_is_looked_at(fixture: Arc<Fixture>) {
    let space = fixture.space().await;
    let way = proxy(fixture.server().await);
    let outside = space.outside().await;
    let locks = long_session(&space.by(way.addr())).await;
    locks.lock("warm").unwrap().acquire().await.unwrap().release().await.unwrap();
    for (name, data) in
        [("other", "other"), ("as-long", "otherwise"), ("written", "leasehold"), ("closed", "leasehold")]
    {
        let directory = space.directory(name);
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        outside.client.create(&directory, data.as_bytes(), &options).await.unwrap();
        if name == "written" {
            outside.client.set_data(&directory, data.as_bytes(), None).await.unwrap();
        }
        if name == "closed" {
            let anybody = [Acl::new(Permission::ALL, AuthId::anyone())];
            outside.client.set_acl(&directory, &anybody, None).await.unwrap();
        }
        let seen = noted(&way).await;
        for _ in 0..6 {
            locks.lock(name).unwrap().acquire().await.unwrap().release().await.unwrap();
        }
        let count = |op| seen.lock().iter().filter(|seen| **seen == op).count();
        assert_eq!(
            (count(Op::Create), count(Op::List), count(Op::Get), count(Op::Delete)),
            (6, 6, 1, 6),
            "{name}"
        );
        seen.lock().clear();
        let tried = locks.lock(name).unwrap().try_acquire().await.unwrap();
        tried.expect("it is free").release().await.unwrap();
        assert_eq!(*seen.lock(), [Op::List, Op::Create, Op::List, Op::Delete], "{name}");
    }
    // A listing takes data as long as ours for ours: a try finds out once.
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    outside.client.create(&space.directory("tried"), b"otherwise", &options).await.unwrap();
    let seen = noted(&way).await;
    for reads in [&[Op::Get][..], &[], &[]] {
        let tried = locks.lock("tried").unwrap().try_acquire().await.unwrap();
        tried.expect("it is free").release().await.unwrap();
        let expected = [&[Op::List], reads, &[Op::Create, Op::List, Op::Delete]].concat();
        // The watch that came with the reading goes at any moment.
        let asked = std::mem::take(&mut *seen.lock()).into_iter().filter(|op| *op != REMOVE_WATCHES);
        assert_eq!(asked.collect::<Vec<_>>(), expected);
    }
}

/// Tries once, in a task.
fn tries_aside(lock: &Lock) -> Beside<Option<LockGuard>> {
    let lock = lock.clone();
    Beside::start(async move { lock.try_acquire().await.unwrap() })
}

/// Holds a lock until its directory is known; returns the next number there.
async fn two_in_a_row(locks: &LockManager, outside: &Outside, directory: &str, name: &str) -> usize {
    // The directory may go in between.
    loop {
        let mut numbers = Vec::new();
        for _ in 0..2 {
            let guard = locks.lock(name).unwrap().acquire().await.unwrap();
            let node = outside.has(directory, 1).await.remove(0);
            numbers.push(node.rsplit('-').next().unwrap().parse::<usize>().unwrap());
            guard.release().await.unwrap();
        }
        if numbers[0] + 1 == numbers[1] {
            return numbers[1] + 1;
        }
    }
}

/// Foreign contenders, in a directory that they have created.
async fn strangers(outside: &Outside, directory: &str, count: usize) -> Vec<String> {
    let rights = Acls::anyone_all();
    outside.client.create(directory, b"leasehold", &CreateMode::Persistent.with_acls(rights)).await.unwrap();
    let mut nodes = Vec::new();
    for _ in 0..count {
        let path = format!("{directory}/lock-");
        let options = CreateMode::EphemeralSequential.with_acls(rights);
        let (_, sequence) = outside.client.create(&path, b"", &options).await.unwrap();
        nodes.push(format!("{path}{sequence}"));
    }
    nodes
}

/// Waits until the caller waits behind `ahead`, without a grant.
async fn waits_behind(server: &Server, ahead: &str, waiting: &Beside<LockGuard>) {
    eventually("it waits", async || {
        assert!(!waiting.is_finished(), "two hold at once");
        server.ask("wchp").await.unwrap().contains(ahead)
    })
    .await;
}

/// Cuts the connection, and waits until the next one was checked.
async fn comes_back(way: &Proxy, seen: &Arc<Mutex<Vec<Op>>>) {
    way.reset().await;
    // A node of its own is made, looked at and deleted, and its inbox is read.
    let ours = |op: &&Op| !matches!(op, Op::Other(_));
    eventually("it is back", async || seen.lock().iter().filter(ours).count() == 4).await;
    seen.lock().clear();
}

/// Servers that remove empty containers every `milliseconds`.
fn reaping(milliseconds: u32) -> Setup {
    Setup::new()
        .property("znode.container.checkIntervalMs", milliseconds)
        .property("znode.container.maxPerMinute", 1_000_000)
}

const REMOVE_WATCHES: Op = Op::Other(18);

async fn long_session(space: &Space) -> LockManager {
    // So long that no renewal falls into what is counted. And a request may take as long as a test holds its answer.
    let patient = |builder: Builder| builder.ttl(BOUND).op_timeout(BOUND / 3).connect_timeout(BOUND);
    space.manager_with(patient).await
}

async fn cycle(locks: &LockManager) {
    locks.lock("a").unwrap().acquire().await.unwrap().release().await.unwrap();
}
