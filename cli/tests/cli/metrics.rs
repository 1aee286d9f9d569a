//! `--metrics-addr`: what Prometheus would read.

use std::net::SocketAddr;
#[cfg(feature = "redis")]
use std::time::Duration;

use testbed::{Port, within};
#[cfg(feature = "redis")]
use testbed::{Process, ProcessErrorKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[cfg(feature = "redis")]
use crate::fixture::LEASEHOLD;
use crate::fixture::{BOUND, Fixture, finish, line, value};

testbed::trials![
    a_holder_serves_its_metrics,
    a_command_runs_watched_if_it_can,
    #[cfg(feature = "redis")]
    idle_connections_do_not_cost_the_lock,
];

async fn metrics(address: SocketAddr) -> String {
    let read = async {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.expect("it takes the question");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("it writes text");
        text
    };
    within(BOUND, "it answers", read).await
}

async fn a_holder_serves_its_metrics() {
    let fixture = Fixture::new();
    let port = Port::reserve().unwrap();
    let address = port.addr().to_string();
    let mut holder = fixture.hold(["--metrics-addr", &address, "a"]).await;
    let text = metrics(port.addr()).await;
    for shown in [
        "# HELP leasehold_held_locks ",
        "leasehold_held_locks 1\n",
        "leasehold_acquisitions_total{outcome=\"granted\"} 1\n",
        "leasehold_acquire_seconds_count 1\n",
        "leasehold_losses_total{reason=\"expired\"} 0\n",
    ] {
        assert!(text.contains(shown), "{shown:?} is not in {text}");
    }
    finish(&mut holder).await;
}

/// The same for a command under a lock, at an address by name; one that is taken is said, and the command
/// runs without.
async fn a_command_runs_watched_if_it_can() {
    let fixture = Fixture::new();
    let port = Port::reserve().unwrap();
    let address = format!("localhost:{}", port.addr().port());
    let mut running = fixture.running(["run", "--metrics-addr", &address, "a", "--", "cat"]).await;
    assert!(metrics(port.addr()).await.contains("leasehold_held_locks 1\n"));
    let taken = fixture.done(["run", "--metrics-addr", &address, "b", "--", "echo", "all the same"]).await;
    assert_eq!((taken.code, taken.out.as_str()), (0, "all the same\n"), "{taken:?}");
    assert!(taken.err.contains("without metrics") && taken.err.contains("in use"), "{taken:?}");
    let wrong = fixture.done(["run", "--metrics-addr", "9187", "b", "--", "echo", "never"]).await;
    assert_eq!((wrong.code, wrong.out.as_str()), (64, ""), "{wrong:?}");
    finish(&mut running).await;
}

#[cfg(feature = "redis")]
fn open_files(process: &Process) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", process.pid())).expect("it runs").count()
}

/// Whoever opens connections there and says nothing takes neither files nor time from the lock: its
/// connection to the store is made anew, it is renewed, and whoever asks is answered after that.
#[cfg(feature = "redis")]
async fn idle_connections_do_not_cost_the_lock() {
    const TTL: Duration = Duration::from_secs(4);
    let server = testbed::redis::Settings::new().start().await.unwrap_or_else(|error| panic!("{error}"));
    let fixture = Fixture::on(format!("{}/0?prefix=cli&ttl=4s", server.url()));
    let port = Port::reserve().unwrap();
    let address = port.addr().to_string();
    let limited = "ulimit -n 64 && exec \"$0\" \"$@\"";
    let mut holder =
        fixture.start_program("sh", ["-c", limited, LEASEHOLD, "hold", "--metrics-addr", &address, "a"]);
    line(&mut holder).await;
    assert_eq!(value(&mut holder).await["state"], "held");
    let before = open_files(&holder);
    let mut idle = Vec::new();
    for _ in 0..100 {
        idle.push(TcpStream::connect(port.addr()).await.expect("the system takes them"));
    }
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]).await.unwrap();
    server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await.unwrap();
    // It would say so if a renewal were overdue.
    let told = holder.next_line(2 * TTL).await;
    assert!(matches!(&told, Err(error) if error.kind() == ProcessErrorKind::TimedOut), "{told:?}");
    assert!(open_files(&holder) <= before + 8, "{} files, {before} before", open_files(&holder));
    drop(idle);
    assert!(metrics(port.addr()).await.contains("leasehold_held_locks 1\n"));
    finish(&mut holder).await;
}
