//! Directories that have numbered very many contenders.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold_core::{Builder, ErrorKind, FencingToken, LockManager};
use testbed::zookeeper::{Head, Op, Server, Setup};
use testbed::{Direction, Mode};
use tokio::task::JoinSet;
use zookeeper_client::{Acls, CreateMode};

use crate::rig::{Outside, Rig, Space, eventually, hold_aside, proxy, server};

/// The data of the directories that we make.
const OURS: &str = "leasehold";
/// Six numbers before the last one there is.
const NEAR_THE_END: i32 = i32::MAX - 7;
/// The last one of the first half.
const HALF: i32 = (1 << 30) - 1;

/// A directory of ours begins to count anew near its end and long before: one client holds at a time, and tokens grow.
pub(crate) async fn worn_numbers_begin_anew(_rig: Arc<Rig>) {
    for counter in [NEAR_THE_END, HALF] {
        let (_server, space) = counted(counter).await;
        let tokens = contest(&space, 4, 10).await;
        assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "{tokens:?}");
        let locks = space.manager().await;
        let guard = locks.lock("a").unwrap().acquire().await.unwrap();
        assert!(Some(guard.token()) > tokens.last().copied());
        let number = number_of_the_first(&space).await;
        assert!(number < 1_000, "from {counter} to {number}");
    }
}

/// At the end of the numbers no client holds, and each gets the reason. Without the foreign node the lock works again.
pub(crate) async fn nobody_holds_at_the_end_of_the_numbers(_rig: Arc<Rig>) {
    let (_server, space) = counted(NEAR_THE_END).await;
    let (outside, directory) = (space.outside().await, space.directory("a"));
    let kept = format!("{directory}/kept");
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    outside.client.create(&kept, b"", &options).await.unwrap();
    let mut attempts = JoinSet::new();
    for at in 0..8 {
        let locks = space.manager().await;
        attempts.spawn(async move {
            let lock = locks.lock("a").unwrap();
            let refused =
                if at % 2 == 0 { lock.acquire().await.map(drop) } else { lock.try_acquire().await.map(drop) };
            locks.shutdown().await.unwrap();
            refused
        });
    }
    for attempt in attempts.join_all().await {
        // A try finds the lock held by a client that has not left yet, or gets the error.
        let Err(refused) = attempt else { continue };
        assert_eq!(refused.kind(), &ErrorKind::Protocol, "{refused}");
        assert!(
            refused.to_string().contains("2147483647") && refused.to_string().contains(&directory),
            "{refused}"
        );
    }
    let locks = space.manager().await;
    let refused = locks.lock("a").unwrap().try_acquire().await.unwrap_err();
    assert_eq!(refused.kind(), &ErrorKind::Protocol, "{refused}");
    assert_eq!(outside.children(&directory).await, ["kept"]);

    outside.client.delete(&kept, None).await.unwrap();
    locks.lock("a").unwrap().acquire().await.unwrap().release().await.unwrap();
}

/// A server's listing predicts the next number, whatever has come and gone there, and however far it has counted.
pub(crate) async fn directory_tells_its_next_number(rig: Arc<Rig>) {
    let (_server, far) = counted(NEAR_THE_END).await;
    for space in [rig.space().await, far] {
        let (Outside { client }, directory) = (space.outside().await, space.directory("a"));
        let (node, plain) = (format!("{directory}/lock-"), format!("{directory}/plain"));
        let rights = Acls::anyone_all();
        let (persistent, ephemeral) =
            (CreateMode::Persistent.with_acls(rights), CreateMode::EphemeralSequential.with_acls(rights));
        client.mkdir(&directory, &persistent).await.unwrap();
        for step in 0..5 {
            match step {
                0 => {}
                1 => drop(client.create(&plain, b"", &persistent).await.unwrap()),
                2 => drop(client.set_data(&plain, b"written", None).await.unwrap()),
                3 => {
                    let mut all = client.new_multi_writer();
                    all.add_delete(&plain, None).unwrap();
                    all.add_create(&node, b"", &ephemeral).unwrap();
                    all.commit().await.unwrap();
                    let mut nothing = client.new_multi_writer();
                    nothing.add_create(&node, b"", &ephemeral).unwrap();
                    nothing.add_delete(&plain, None).unwrap();
                    nothing.commit().await.unwrap_err();
                }
                _ => {
                    let other = space.outside().await.client;
                    other.create(&node, b"", &ephemeral).await.unwrap();
                    let before = client.list_children(&directory).await.unwrap().len();
                    drop(other);
                    eventually("its session is over", async || {
                        client.list_children(&directory).await.unwrap().len() < before
                    })
                    .await;
                }
            }
            let (children, stat) = client.get_children(&directory).await.unwrap();
            let twice = stat.cversion.wrapping_add(children.len() as i32).cast_unsigned();
            let (_, sequence) = client.create(&node, b"", &ephemeral).await.unwrap();
            assert_eq!(sequence.into_i64(), i64::from(twice / 2), "at step {step}");
            if step % 2 == 0 {
                client.delete(&format!("{node}{sequence}"), None).await.unwrap();
            }
        }
    }
}

/// A contender that watched its own node, and leaves it for a new directory, is not notified of that end when it waits
/// again.
pub(crate) async fn reentering_client_waits_by_its_new_node(rig: Arc<Rig>) {
    let space = rig.space().await;
    let way = proxy(rig.server().await);
    let (first, second) = (space.manager().await, space.by(way.addr()).manager().await);
    let (outside, directory) = (space.outside().await, space.directory("a"));
    let guard = first.lock("a").unwrap().acquire().await.unwrap();
    let watches = Arc::new(parking_lot::Mutex::new(0));
    let counted = Arc::clone(&watches);
    let counting = Mode::drop_frames(move |frame| {
        let is_of_a_contender = frame.windows(6).any(|part| part == b"-lock-");
        *counted.lock() +=
            usize::from(Head::of(frame).is_some_and(|head| head.op == Op::Get) && is_of_a_contender);
        false
    });
    way.set(Direction::ClientToServer, counting).await;
    let waiting = hold_aside(&second, "a");
    eventually("its own node is watched, too", async || *watches.lock() == 2).await;
    let last = format!("{directory}/lock-2147483647");
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    outside.client.create(&last, b"", &options).await.unwrap();
    let own = outside.has(&directory, 3).await.remove(1);
    way.reset().await;
    eventually("it has left", async || !outside.children(&directory).await.contains(&own)).await;
    outside.client.delete(&last, None).await.unwrap();
    outside.has(&directory, 2).await;
    guard.release().await.unwrap();
    waiting.end("it holds").await.release().await.unwrap();
    outside.has(&directory, 0).await;
}

/// A foreign directory, with its own rights and data, is used as it is and never removed.
pub(crate) async fn a_directory_that_somebody_else_made_is_never_removed(_rig: Arc<Rig>) {
    for data in ["", "otherwise"] {
        // Nor may the server remove it while we look.
        let setup = Setup::new().property("znode.container.checkIntervalMs", 600_000);
        let server = server(setup.counted("/leasehold/a", HALF - 4, data)).await;
        let space = Space::whole(&server);
        let (outside, directory) = (space.outside().await, space.directory("a"));
        let before = outside.client.get_data(&directory).await.unwrap();
        contest(&space, 2, 4).await;
        let locks = space.manager().await;
        let _guard = locks.lock("a").unwrap().acquire().await.unwrap();
        assert!(number_of_the_first(&space).await > i64::from(HALF));
        let after = outside.client.get_data(&directory).await.unwrap();
        assert_eq!((after.0, after.1.czxid), (before.0, before.1.czxid));
    }
}

/// A server on which the directory of one lock has counted to `counter`.
async fn counted(counter: i32) -> (Server, Space) {
    let server = server(Setup::new().counted("/leasehold/a", counter, OURS)).await;
    let space = Space::whole(&server);
    (server, space)
}

/// Acquires by turns in several sessions; returns the tokens in the order of the holds.
async fn contest(space: &Space, sessions: usize, cycles: usize) -> Vec<FencingToken> {
    let inside = Arc::new(AtomicU32::new(0));
    let tokens = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let mut workers = JoinSet::new();
    for _ in 0..sessions {
        let locks: LockManager =
            space.manager_with(|builder: Builder| builder.ttl(Duration::from_secs(10))).await;
        let (inside, tokens) = (Arc::clone(&inside), Arc::clone(&tokens));
        workers.spawn(async move {
            for _ in 0..cycles {
                let guard = locks.lock("a").unwrap().acquire().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold at once");
                tokens.lock().push(guard.token());
                tokio::time::sleep(Duration::from_millis(2)).await; // time for another one to come in
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        });
    }
    workers.join_all().await;
    Arc::into_inner(tokens).unwrap().into_inner()
}

async fn number_of_the_first(space: &Space) -> i64 {
    let children = space.outside().await.has(&space.directory("a"), 1).await;
    children[0].rsplit("lock-").next().unwrap().parse().unwrap()
}
