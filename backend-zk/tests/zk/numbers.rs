//! Directories that have numbered very many contenders.

use std::sync::Arc;

use leasehold_core::ErrorKind;
use testbed::zookeeper::{Head, Op, Server, Setup};
use testbed::{Direction, Mode};
use tokio::task::JoinSet;
use zookeeper_client::{Acls, CreateMode};

use crate::fixture::{Fixture, Outside, Space, eventually, hold_aside, proxy, server};

/// The data of the directories that we make.
const OURS: &str = "leasehold";
/// Six numbers before the last one there is.
const NEAR_THE_END: i32 = i32::MAX - 7;

pub(crate) async fn nobody_holds_at_the_end_of_the_numbers(_rig: Arc<Fixture>) {
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
pub(crate) async fn directory_tells_its_next_number(fixture: Arc<Fixture>) {
    let (_server, far) = counted(NEAR_THE_END).await;
    for space in [fixture.space().await, far] {
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
pub(crate) async fn reentering_client_waits_by_its_new_node(fixture: Arc<Fixture>) {
    let space = fixture.space().await;
    let way = proxy(fixture.server().await);
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

/// A directory that another client made stays as it is where ours would begin its numbers anew. A listing tells it by the
/// length of its data; where that is the same, it is read, and the contender enters twice.
pub(crate) async fn foreign_directory_is_never_removed(_rig: Arc<Fixture>) {
    for (data, last) in [("", 1 << 30), ("otherwise", (1 << 30) + 1)] {
        // Nor may the server remove it while the test looks.
        let setup = Setup::new().property("znode.container.checkIntervalMs", 600_000);
        let server = server(setup.counted("/leasehold/a", (1 << 30) - 2, data)).await;
        let space = Space::whole(&server);
        let (outside, directory, locks) =
            (space.outside().await, space.directory("a"), space.manager().await);
        let before = outside.client.get_data(&directory).await.unwrap();
        for _ in 0..2 {
            locks.lock("a").unwrap().acquire().await.unwrap().release().await.unwrap();
        }
        let _guard = locks.lock("a").unwrap().acquire().await.unwrap();
        let after = outside.client.get_data(&directory).await.unwrap();
        assert_eq!((after.0, after.1.czxid), (before.0, before.1.czxid));
        let node = outside.has(&directory, 1).await.remove(0);
        assert!(node.ends_with(&format!("lock-{last}")), "{node}");
    }
}

/// A server on which the directory of one lock has counted to `counter`.
async fn counted(counter: i32) -> (Server, Space) {
    let server = server(Setup::new().counted("/leasehold/a", counter, OURS)).await;
    let space = Space::whole(&server);
    (server, space)
}
