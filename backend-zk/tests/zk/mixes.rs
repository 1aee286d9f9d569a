//! The requests of shared locks, in every mix, by the server's count; and foreign nodes among them.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{LockManager, Mode as Kind};
use parking_lot::Mutex;
use testbed::zookeeper::{Op, Server, Setup};
use testbed::{Direction, Mode, Proxy};
use zookeeper_client::{Acls, CreateMode};

use crate::fixture::{BOUND, Fixture, Space, eventually, noted, proxy, server};
use crate::sharing::{R, W, aside, take};

async fn cycle(locks: &LockManager, mode: Kind) {
    take(locks, mode).await.release().await.unwrap();
}

/// So long a session that only the counted requests are sent.
async fn manager(space: &Space) -> LockManager {
    space.manager_with(|builder| builder.ttl(VERY_LONG)).await
}

/// A tenth of it is longer than a test: no client watches its own node.
const VERY_LONG: Duration = Duration::from_secs(1_800);

fn patient() -> Setup {
    Setup::new().longest_session(VERY_LONG)
}

/// A manager behind a proxy of its own, and its requests.
struct Watched {
    locks: LockManager,
    _way: Proxy,
    asked: Arc<Mutex<Vec<Op>>>,
}

impl Watched {
    async fn start(space: &Space, server: &Server) -> Self {
        let way = proxy(server);
        let locks = manager(&space.by(way.addr())).await;
        // By then it has read its inbox.
        locks.lock("warm").unwrap().acquire().await.unwrap().release().await.unwrap();
        let asked = noted(&way).await;
        Self { locks, _way: way, asked }
    }

    /// The requests since the last call.
    fn takes(&self) -> Vec<Op> {
        std::mem::take(&mut *self.asked.lock())
    }

    fn count(&self, op: Op) -> usize {
        self.asked.lock().iter().filter(|asked| **asked == op).count()
    }

    /// Waits until it has watched the node ahead so many times.
    async fn watches(&self, times: usize) {
        eventually("it watches who is ahead", async || self.count(Op::Get) == times).await;
    }
}

/// A reader lists, also after exclusive holds in a row, and its numbers prove nothing: a writer waits for one that stays.
pub(crate) async fn sharer_counts_on_no_number(fixture: Arc<Fixture>) {
    let server = server(patient()).await;
    let space = fixture.space_on([server.addr()]);
    let (one, other) = (Watched::start(&space, &server).await, manager(&space).await);
    for _ in 0..3 {
        cycle(&one.locks, W).await;
    }
    one.takes();
    cycle(&one.locks, R).await;
    let reader = take(&other, R).await;
    for _ in 0..2 {
        cycle(&one.locks, R).await;
    }
    assert_eq!(one.takes(), [Op::Create, Op::List, Op::Delete].repeat(3));
    let waiting = aside(&one.locks, W);
    eventually("it watches, or holds", async || one.count(Op::Get) == 1 || waiting.is_finished()).await;
    assert!(!waiting.is_finished(), "it holds beside one who shares");
    reader.release().await.unwrap();
    waiting.end("it holds").await.release().await.unwrap();
}

/// A reader behind a writer holds by the notification, whether the writer passes the lock on, deletes its node or leaves
/// the queue. It lists once more if another client is ahead of a writer that ends otherwise.
pub(crate) async fn a_reader_behind_a_writer_needs_four_requests(fixture: Arc<Fixture>) {
    let server = server(patient()).await;
    let space = fixture.space_on([server.addr()]);
    let (first, second) = (manager(&space).await, manager(&space).await);
    let reader = Watched::start(&space, &server).await;
    let (outside, directory) = (space.outside().await, space.directory("a"));
    cycle(&first, W).await;
    let four = [Op::Create, Op::List, Op::Get, Op::Delete];

    let writing = take(&first, W).await;
    let reading = aside(&reader.locks, R);
    reader.watches(1).await;
    writing.release().await.unwrap();
    reading.end("it holds").await.release().await.unwrap();
    assert_eq!(reader.takes(), four);

    let writing = take(&first, W).await;
    let next = aside(&second, W);
    outside.has(&directory, 2).await;
    let reading = aside(&reader.locks, R);
    reader.watches(1).await;
    writing.release().await.unwrap();
    let writing = next.end("it holds").await;
    assert!(!reading.is_finished(), "it holds beside who writes");
    writing.release().await.unwrap();
    reading.end("it holds").await.release().await.unwrap();
    assert_eq!(reader.takes(), four);

    // The second one only ends: that says nothing of the first.
    let writing = take(&first, W).await;
    let next = aside(&second, W);
    let nodes = outside.has(&directory, 2).await;
    let reading = aside(&reader.locks, R);
    reader.watches(1).await;
    writing.release().await.unwrap();
    let writing = next.end("it holds").await;
    outside.client.delete(&format!("{directory}/{}", nodes[1]), None).await.unwrap();
    reading.end("it holds").await.release().await.unwrap();
    assert_eq!(reader.takes(), [Op::Create, Op::List, Op::Get, Op::List, Op::Delete]);
    drop(writing);

    let beside = take(&first, R).await;
    let next = aside(&second, W);
    outside.has(&directory, 2).await;
    let reading = aside(&reader.locks, R);
    reader.watches(1).await;
    drop(next);
    reading.end("it holds").await.release().await.unwrap();
    assert_eq!(reader.takes(), four);
    beside.release().await.unwrap();
}

/// An entry whose predecessor is gone since its listing passes the lock on, too: others may have listed both.
pub(crate) async fn entry_passes_on_when_the_one_ahead_is_gone(fixture: Arc<Fixture>) {
    let server = server(patient()).await;
    let space = fixture.space_on([server.addr()]);
    let (outside, directory) = (space.outside().await, space.directory("a"));
    let (first, way) = (manager(&space).await, proxy(&server));
    let held_up = space.by(way.addr());
    let second = held_up.manager_with(|builder| builder.ttl(VERY_LONG).op_timeout(BOUND)).await;
    let readers = [Watched::start(&space, &server).await, Watched::start(&space, &server).await];
    let guard = take(&first, W).await;
    way.set(Direction::ServerToClient, Mode::Hold).await;
    let writing = aside(&second, W);
    outside.has(&directory, 2).await;
    let reading = readers.each_ref().map(|reader| aside(&reader.locks, R));
    for reader in &readers {
        reader.watches(1).await;
    }
    // Its node, and who was there then.
    way.held(Direction::ServerToClient, 2).await;
    guard.release().await.unwrap();
    way.set(Direction::ServerToClient, Mode::Pass).await;
    writing.end("it writes").await.release().await.unwrap();
    for (reader, reading) in readers.iter().zip(reading) {
        let guard = reading.end("it shares").await;
        assert_eq!(reader.takes(), [Op::Create, Op::List, Op::Get]);
        guard.release().await.unwrap();
    }
}

/// Foreign nodes count as writers, also those of Curator's read-write lock and names that only look like ours.
pub(crate) async fn whatever_is_not_ours_is_waited_for_as_a_writer(fixture: Arc<Fixture>) {
    const UUID: &str = "51e3f9c4-2c4c-4d0e-9c0e-8f3c1a5b7d21";
    let space = fixture.space().await;
    let (locks, other, outside) = (space.manager().await, space.manager().await, space.outside().await);
    let path = space.directory("a");
    take(&locks, R).await.release().await.unwrap();
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    for stem in [
        // Curator's other recipes, the locks of kazoo and go-zookeeper, ZooKeeper's own recipe.
        format!("_c_{UUID}-__READ__"),
        format!("_c_{UUID}-__WRIT__"),
        format!("{}__lock__", UUID.replace('-', "")),
        format!("_c_{}-lock-", UUID.replace('-', "")),
        "x-72057594037927936-".to_owned(),
        // As we give them, almost.
        format!("_c_{}-shared-lock-", UUID.replace('-', "")),
        format!("_c_{}-shared-lock-", UUID.to_uppercase()),
        format!("{UUID}-shared-lock-"),
        format!("_c_{UUID}-2of8-lock-"),
        format!("_c_{UUID}-shared-lock--"),
    ] {
        let node = format!("{path}/{stem}");
        let (_, number) = outside.client.create(&node, b"", &options).await.unwrap();
        assert!(locks.lock("a").unwrap().shared().try_acquire().await.unwrap().is_none(), "{stem}");
        let waiting = [aside(&locks, R), aside(&other, R)];
        outside.has(&path, 3).await;
        assert!(waiting.iter().all(|reader| !reader.is_finished()), "beside {stem}");
        outside.client.delete(&format!("{node}{number}"), None).await.unwrap();
        let mut guards = Vec::new();
        for reader in waiting {
            guards.push(reader.end(&stem).await);
        }
        for guard in guards {
            guard.release().await.unwrap();
        }
    }
    outside.has(&path, 0).await;
}
