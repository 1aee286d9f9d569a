//! Readers and writers that die or stand still, on stores where readers share.

use std::time::Duration;

use leasehold::{LockManager, connect};
use libtest_mimic::Trial;
use testbed::{eventually, within};

use crate::child::Holder;
use crate::rig::Rig;
use crate::store::{Store, TTL};

pub(crate) fn trials(store: &Store) -> Vec<Trial> {
    vec![
        store.trial(
            "no_count_is_written_beside_a_reader_despite_kills",
            no_count_is_written_beside_a_reader_despite_kills,
        ),
        store.trial("a_killed_reader_ends_alone_and_in_time", a_killed_reader_ends_alone_and_in_time),
        store.trial(
            "a_killed_waiting_writer_lets_readers_in_in_time",
            a_killed_waiting_writer_lets_readers_in_in_time,
        ),
        store.trial(
            "a_stopped_reader_has_lost_before_a_writer_holds",
            a_stopped_reader_has_lost_before_a_writer_holds,
        ),
    ]
}

/// How many hold, and how many wait.
async fn shown(locks: &LockManager) -> (usize, usize) {
    let state = locks.inspect("a").await.unwrap();
    (state.holders.len(), state.contenders)
}

/// The token of a share.
async fn share(holder: &mut Holder) -> u64 {
    holder.order("share a").await;
    holder.token().await
}

/// Checks that it has not answered.
async fn is_silent(holder: &mut Holder) {
    let answer = holder.process.next_line(Duration::from_millis(100)).await;
    assert!(answer.is_err(), "{answer:?}");
}

async fn until_shown(locks: &LockManager, expected: (usize, usize)) {
    eventually(format!("{expected:?} hold and wait"), async || shown(locks).await == expected).await;
}

/// Its share ends with its lease (G6), the others' go on for as long as they live (G4), and keep a writer out (G1).
async fn a_killed_reader_ends_alone_and_in_time(rig: Rig) {
    let observer = connect(rig.url()).await.unwrap();
    let (mut dead, mut living, mut writer) = (rig.holder().await, rig.holder().await, rig.holder().await);
    share(&mut living).await;
    let last = share(&mut dead).await;
    writer.order("acquire a").await;
    until_shown(&observer, (2, 1)).await;
    dead.process.kill().await.unwrap();
    // As long as for a killed holder.
    within(3 * TTL, "its lease ends", until_shown(&observer, (1, 1))).await;
    is_silent(&mut writer).await;
    assert_eq!(living.ask("state").await, "held");
    assert_eq!(living.ask("release").await, "released");
    let token = writer.token().await;
    assert!(token > last, "token {token} after {last}");
}

/// Readers behind it wait no longer than for its lease to end (G6), beside one that goes on.
async fn a_killed_waiting_writer_lets_readers_in_in_time(rig: Rig) {
    let observer = connect(rig.url()).await.unwrap();
    let (mut reader, mut writer) = (rig.holder().await, rig.holder().await);
    let mut behind = [rig.holder().await, rig.holder().await];
    share(&mut reader).await;
    writer.order("acquire a").await;
    until_shown(&observer, (1, 1)).await;
    for (place, next) in behind.iter_mut().enumerate() {
        next.order("share a").await;
        until_shown(&observer, (1, 2 + place)).await;
    }
    writer.process.kill().await.unwrap();
    for next in &mut behind {
        within(3 * TTL, "its entry ends", next.token()).await;
    }
    for reader in [&mut reader].into_iter().chain(&mut behind) {
        assert_eq!(reader.ask("state").await, "held");
    }
    assert_eq!(shown(&observer).await, (3, 0));
}

/// One that is stopped for longer than its lease finds out at its first look, and a reader beside it keeps its share
/// meanwhile. The next writer has the larger token (G2, G3).
async fn a_stopped_reader_has_lost_before_a_writer_holds(rig: Rig) {
    let observer = connect(rig.url()).await.unwrap();
    let (mut stopped, mut living, mut writer) = (rig.holder().await, rig.holder().await, rig.holder().await);
    share(&mut living).await;
    let token = share(&mut stopped).await;
    writer.order("acquire a").await;
    until_shown(&observer, (2, 1)).await;
    stopped.process.stop().await.unwrap();
    until_shown(&observer, (1, 1)).await;
    is_silent(&mut writer).await;
    assert_eq!(living.ask("state").await, "held");
    assert_eq!(living.ask("release").await, "released");
    assert!(writer.token().await > token);
    stopped.process.cont().unwrap();
    let state = stopped.ask("state").await;
    assert!(state.starts_with("lost "), "{state}");
    let released = stopped.ask("release").await;
    assert!(released.starts_with("error "), "{released}");
    assert_eq!(writer.ask("state").await, "held");
    assert_eq!(writer.ask("release").await, "released");
    share(&mut stopped).await;
}

/// Writers count while others read what they have counted, and both are killed at any point: no process writes beside a
/// reader (G1), and everybody has a turn (G6, G7).
async fn no_count_is_written_beside_a_reader_despite_kills(rig: Rig) {
    const PROCESSES: usize = 3;
    const CYCLES: usize = 60;
    let rig = rig.steady();
    let journal = rig.scratch.path().join("journal");
    std::fs::write(&journal, "").unwrap();
    let writes = format!("count {} writer {CYCLES}", journal.display());
    let reads = format!("read {} {CYCLES}", journal.display());
    let start = async |order: &str| {
        let mut holder = rig.holder().await;
        holder.order(order).await;
        holder
    };
    let (mut writers, mut readers) = (Vec::<Holder>::new(), Vec::<Holder>::new());
    for _ in 0..PROCESSES {
        writers.push(start(&writes).await);
        readers.push(start(&reads).await);
    }
    let victims = async {
        for order in [&reads, &writes, &reads, &reads, &writes] {
            let mut victim = start(&order.replace("writer", "victim")).await;
            tokio::time::sleep(TTL / 10).await; // the fault's own rhythm
            victim.process.kill().await.unwrap();
        }
    };
    let counted = async {
        for (writer, reader) in writers.iter_mut().zip(&mut readers) {
            assert_eq!((&*writer.answer().await, &*reader.answer().await), ("counted", "read"));
        }
    };
    tokio::join!(counted, victims);
    let journal = std::fs::read_to_string(&journal).unwrap();
    assert_eq!(journal.matches("writer").count(), PROCESSES * CYCLES);
    for (index, line) in journal.lines().enumerate() {
        assert!(line.starts_with(&format!("{} ", index + 1)), "a lost count, at line {index}: {line}");
    }
}
