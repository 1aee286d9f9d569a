//! `--metrics-addr`: what Prometheus would read.

use std::net::SocketAddr;

use testbed::Port;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::rig::{BOUND, Rig, exit_code, line, value};

async fn metrics(address: SocketAddr) -> String {
    let read = async {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.expect("it takes the question");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("it writes text");
        text
    };
    timeout(BOUND, read).await.expect("it answers")
}

/// While a lock is held, what has happened to it can be read; every metric says what it means.
#[tokio::test]
async fn a_holder_serves_its_metrics() {
    let rig = Rig::new();
    let port = Port::reserve().unwrap();
    let address = port.addr().to_string();
    let mut holder = rig.start(["hold", "--metrics-addr", &address, "a"]);
    line(&mut holder).await;
    assert_eq!(value(&mut holder).await["state"], "held");
    let text = metrics(port.addr()).await;
    for shown in [
        "# HELP leasehold_held_locks ",
        "leasehold_held_locks 1\n",
        "leasehold_acquisitions_total{outcome=\"granted\"} 1\n",
        "leasehold_wait_seconds_count 1\n",
    ] {
        assert!(text.contains(shown), "{shown:?} is not in {text}");
    }
    holder.close_stdin();
    assert_eq!(exit_code(&mut holder).await, 0);
}

/// The same for a command under a lock; an address that is taken is an error before the lock is.
#[tokio::test]
async fn a_command_does_not_run_unwatched() {
    let rig = Rig::new();
    let port = Port::reserve().unwrap();
    let address = port.addr().to_string();
    let mut running = rig.start(["run", "--metrics-addr", &address, "a", "--", "cat"]);
    running.send_line("in").await.unwrap();
    assert_eq!(line(&mut running).await, "in");
    assert!(metrics(port.addr()).await.contains("leasehold_held_locks 1\n"));
    let taken = rig.done(["run", "--metrics-addr", &address, "b", "--", "echo", "never"]).await;
    assert_eq!((taken.code, taken.out.as_str()), (71, ""), "{taken:?}");
    running.close_stdin();
    assert_eq!(exit_code(&mut running).await, 0);
}
