//! Many processes count together.

use std::time::Duration;

use crate::child::Holder;
use crate::fixture::Fixture;
use crate::store::TTL;

/// Eight processes count together while a ninth is killed again and again, wherever it is: every
/// count is there once, and tokens grow from line to line (G1, G3, G6).
pub(crate) async fn no_count_is_lost_while_processes_are_killed(fixture: Fixture) {
    const PROCESSES: usize = 8;
    // Where leases have to end, processes that die hold up all others: fewer cycles, and fewer deaths, or the
    // deaths would make the contest longer, and the longer contest more deaths.
    let (cycles, pause, deaths) = if fixture.leased { (60, 700, 15) } else { (1_000, 200, usize::MAX) };
    let fixture = fixture.steady();
    let journal = fixture.scratch.path().join("journal");
    std::fs::write(&journal, "").unwrap();

    let mut workers = Vec::new();
    for _ in 0..PROCESSES {
        let mut worker = fixture.holder().await;
        worker.order(&format!("count {} worker {cycles}", journal.display())).await;
        workers.push(worker);
    }
    let victims = async {
        for _ in 0..deaths {
            let mut victim = fixture.holder().await;
            victim.order(&format!("count {} victim {cycles}", journal.display())).await;
            tokio::time::sleep(Duration::from_millis(pause)).await; // the fault's own rhythm
            victim.process.kill().await.unwrap();
        }
        std::future::pending::<()>().await;
    };
    let counted = async {
        for worker in &mut workers {
            assert_eq!(worker.answer().await, "counted");
        }
    };
    tokio::select! {
        () = counted => {}
        () = victims => {}
    }

    let journal = std::fs::read_to_string(&journal).unwrap();
    let (mut last_token, mut by_workers, mut by_victims) = (0, 0, 0);
    for (index, line) in journal.lines().enumerate() {
        let [count, token, who] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        assert_eq!(count.parse(), Ok(index + 1), "two holders, or a lost count, at line {index}");
        let token: u64 = token.parse().unwrap();
        assert!(token > last_token, "token {token} after {last_token}");
        last_token = token;
        if who == "worker" { by_workers += 1 } else { by_victims += 1 }
    }
    assert_eq!(by_workers, PROCESSES * cycles);
    println!("{by_workers} counts by workers, {by_victims} by processes that were killed");
}

/// Writers count while others read what they have counted, and both are killed at any point: no process writes beside a
/// reader (G1), and everybody has a turn (G6, G7).
pub(crate) async fn no_count_is_written_beside_a_reader_despite_kills(fixture: Fixture) {
    const PROCESSES: usize = 3;
    const CYCLES: usize = 60;
    let fixture = fixture.steady();
    let journal = fixture.scratch.path().join("journal");
    std::fs::write(&journal, "").unwrap();
    let writes = format!("count {} writer {CYCLES}", journal.display());
    let reads = format!("read {} {CYCLES}", journal.display());
    let start = async |order: &str| {
        let mut holder = fixture.holder().await;
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
