//! Requests that were carried out and whose replies were lost (G5).

use testbed::{Direction, Mode};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::fixture::{
    KEY, LONG, NAME, TTL, Waiter, command, eventually, exists, hold, ok, open, open_for, pass, proxy, server,
    trials, via, warm,
};

trials![
    a_connection_that_is_given_up_takes_its_requests_along,
    grant_delivered_late_by_a_partition_is_released,
    an_earlier_copy_of_a_request_outlives_no_release,
];

/// What a silent connection has not delivered when it is given up, it never delivers: it is reset, not
/// closed in order. The first request that goes unanswered gives it up, by itself.
async fn a_connection_that_is_given_up_takes_its_requests_along() {
    let server = server().await;
    let proxy = proxy(&server);
    let a = warm(open(via(&proxy)).await).await;
    ok(&server, &["CONFIG", "RESETSTAT"]).await;
    proxy.set(Direction::ClientToServer, Mode::Hold).await;
    proxy.refuse_new().await.unwrap();
    let unheard = a.lock(NAME).unwrap().try_acquire().await.unwrap_err();
    // The request's own bound, not that of the caller.
    assert!(unheard.to_string().contains("the server did not answer in time"), "{unheard}");
    // A connection that was closed in order would stay, as its end is held, too.
    proxy.idle().await;
    proxy.set(Direction::ClientToServer, Mode::Pass).await;
    proxy.accept_new().await.unwrap();
    hold(&a).await.release().await.unwrap();
    let calls = server.calls().await.unwrap();
    assert_eq!(calls.get("set"), Some(&2), "the first request was never heard: {calls:?}");
}

/// A network that keeps a request for longer than its lease and delivers it then, when its connection is
/// long gone: what the request makes is released as soon as the server can be reached.
async fn grant_delivered_late_by_a_partition_is_released() {
    let server = server().await;
    let proxy = proxy(&server);
    let a = warm(open(via(&proxy)).await).await;
    let (keep, mut kept) = mpsc::unbounded_channel();
    let keeps = move |frame: &[u8]| keep.send(frame.to_vec()).is_ok();
    proxy.set(Direction::ClientToServer, Mode::drop_frames(keeps)).await;
    a.lock(NAME).unwrap().acquire().await.unwrap_err();
    let request = kept.recv().await.unwrap();
    pass(3 * TTL).await;

    let mut late = TcpStream::connect(server.addr()).await.unwrap();
    late.write_all(&request).await.unwrap();
    eventually("it is carried out", async || exists(&server, KEY).await).await;
    // Its lease does not end it.
    command(&server, &["PEXPIRE", KEY, "600000"]).await;
    proxy.set(Direction::ClientToServer, Mode::Pass).await;
    eventually("what came late is released", async || !exists(&server, KEY).await).await;
}

/// An acquire that was repeated, after its connection had broken, may be carried out once more when its lock is released:
/// that grant is released, too.
async fn an_earlier_copy_of_a_request_outlives_no_release() {
    let server = server().await;
    let proxy = proxy(&server);
    let a = warm(open_for(via(&proxy), LONG).await).await;
    proxy.set(Direction::ClientToServer, Mode::Hold).await;
    let acquiring = Waiter::start(&a);
    proxy.held(Direction::ClientToServer, 1).await;
    proxy.reset().await;
    proxy.set(Direction::ClientToServer, Mode::Pass).await;
    let guard = acquiring.held().await;
    let owner = command(&server, &["GET", KEY]).await.text().unwrap().to_owned();
    guard.release().await.unwrap();
    ok(&server, &["SET", KEY, &owner, "PX", "600000"]).await;
    eventually("what came late is released", async || !exists(&server, KEY).await).await;
}
