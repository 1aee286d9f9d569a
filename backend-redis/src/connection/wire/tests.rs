use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use leasehold_core::clock::ManualClock;
use leasehold_core::{Effect, Timing};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use testbed::{BOUND, within};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};

use super::answers::Answers;
use super::*;
use crate::config::{Failover, PauseOption};
use crate::connection::{Connection, Pause, SlotPause, Times};
use crate::scripts::{ADMIT, OWN, ReignTimes};

/// A wire to a server of the test, between which so many bytes are on their way at most.
struct Setup {
    wire: Arc<Wire>,
    server: DuplexStream,
    clock: ManualClock,
}

impl Setup {
    fn new(between: usize) -> Self {
        let (ours, server) = tokio::io::duplex(between);
        let (wire, clock) = Self::over(ours);
        Self { wire, server, clock }
    }

    fn over(stream: impl Stream + 'static) -> (Arc<Wire>, ManualClock) {
        let (clock, mut timing) = (ManualClock::new(), Timing::for_ttl(Timing::DEFAULT_TTL));
        timing.op_timeout = Duration::from_secs(4);
        let env = Env::new(timing).unwrap().with_clock(Arc::new(clock.clone()));
        (Wire::start(env, Box::new(stream), Arc::default()), clock)
    }
}

impl Wire {
    /// Asks for `number`, which is to be the answer, too.
    fn number(
        self: &Arc<Self>,
        number: i64,
        seconds: u64,
    ) -> impl Future<Output = Result<i64>> + Send + use<> {
        let (wire, give_up_at) = (Arc::clone(self), self.env.now() + Duration::from_secs(seconds));
        async move {
            let pack = |out: &mut Vec<u8>, _: &mut Texts, _| out.extend(format!("{number}\r\n").bytes());
            match wire.ask(give_up_at, pack).await? {
                Value::Int(answer) => Ok(answer),
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Answers every number with itself, in pieces, with messages between.
async fn echo(server: DuplexStream, mut dice: TestRng) {
    let (read, mut write) = tokio::io::split(server);
    let mut lines = BufReader::new(read).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let push = if dice.next_u32().is_multiple_of(8) { ">2\r\n+message\r\n:7\r\n" } else { "" };
        let answer = format!("{push}:{line}\r\n");
        for piece in answer.as_bytes().chunks(1 + dice.next_u32() as usize % 9) {
            if write.write_all(piece).await.is_err() {
                return;
            }
            if dice.next_u32().is_multiple_of(4) {
                tokio::task::yield_now().await;
            }
        }
    }
}

async fn text(ask: impl Future<Output = Result<i64>>) -> String {
    within(BOUND, "it has ended", ask).await.unwrap_err().to_string()
}

async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[expect(clippy::disallowed_methods, reason = "a test's own")]
fn beside<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> tokio::task::JoinHandle<T> {
    tokio::spawn(task)
}

/// Each caller has its own answers, whatever pieces they come in, beside callers that go away in the middle and one that is
/// polled once and never again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_come_to_their_callers() {
    for (callers, between) in [(1, 7), (2, 64), (64, 999)] {
        let Setup { wire, server, .. } = Setup::new(between);
        let mut parked = Box::pin(wire.number(-1, 60));
        assert!((&mut parked).now_or_never().is_none());
        beside(echo(server, TestRng::deterministic_rng(RngAlgorithm::ChaCha)));
        let calls = (0..callers).map(|caller| {
            let wire = Arc::clone(&wire);
            beside(async move {
                for count in 0..200 {
                    let number = caller * 1000 + count;
                    if number % 3 == 0 {
                        let mut dropped = Box::pin(wire.number(-2, 60));
                        assert!((&mut dropped).now_or_never().is_none_or(|answer| answer.unwrap() == -2));
                    }
                    assert_eq!(wire.number(number, 60).await.unwrap(), number);
                }
            })
        });
        for call in within(BOUND, "all are answered", join_all(calls)).await {
            call.unwrap();
        }
        assert_eq!(parked.await.unwrap(), -1);
    }
}

/// A request that is not written whole leaves whole, also when its caller has gone; none is written twice.
#[tokio::test]
async fn request_of_a_caller_that_goes_is_sent_whole() {
    let Setup { wire, mut server, .. } = Setup::new(3);
    let mut dropped = Box::pin(wire.number(1_234_567, 60));
    assert!((&mut dropped).now_or_never().is_none());
    drop(dropped);
    let next = beside(wire.number(8, 60));
    let mut sent = [0; 12];
    within(BOUND, "both are sent", server.read_exact(&mut sent)).await.unwrap();
    assert_eq!(&sent, b"1234567\r\n8\r\n");
    server.write_all(b":1234567\r\n:8\r\n").await.unwrap();
    assert_eq!(next.await.unwrap().unwrap(), 8);
}

/// Each is overdue at its own bound, in whatever order they were begun; the first that is ends a connection that was silent,
/// and with it the others. Nothing is asked of it any more.
#[tokio::test]
async fn silent_connection_ends_at_the_first_bound() {
    let Setup { wire, server: _server, clock } = Setup::new(999);
    let (late, early) = (beside(wire.number(1, 9)), beside(wire.number(2, 3)));
    settle().await;
    clock.advance(Duration::from_secs(2));
    settle().await;
    assert!(!late.is_finished() && !early.is_finished());
    clock.advance(Duration::from_secs(1));
    assert!(text(early.map(Result::unwrap)).await.starts_with("the server did not answer in time"));
    assert!(text(late.map(Result::unwrap)).await.starts_with("the connection was lost before the answer"));
    assert_eq!(wire.number(3, 60).await.unwrap_err().effect(), Effect::NotApplied);
    assert!(wire.connection.is_over());
    // Also if its caller has gone.
    let Setup { wire, server: _server, clock } = Setup::new(999);
    let mut dropped = Box::pin(wire.number(1, 3));
    assert!((&mut dropped).now_or_never().is_none());
    drop(dropped);
    settle().await;
    clock.advance(Duration::from_secs(3));
    within(BOUND, "it ends", wire.connection.over()).await;
    // Also before its task has ended.
    let Setup { wire, server: _server, .. } = Setup::new(999);
    wire.connection.end();
    let refused = wire.number(1, 60).now_or_never().expect("it is refused at once").unwrap_err();
    assert_eq!(refused.effect(), Effect::NotApplied, "{refused}");
}

/// A request that begins just before its bound ends alone. Its answer comes later and is dropped. Half an answer shows that
/// the connection is alive. A request without time is not sent.
#[tokio::test]
async fn late_request_ends_alone() {
    let Setup { wire, mut server, clock } = Setup::new(999);
    let late = beside(wire.number(1, 1));
    settle().await;
    clock.advance(Duration::from_secs(1));
    assert!(text(late.map(Result::unwrap)).await.starts_with("the server did not answer in time"));
    let early = beside(wire.number(2, 3));
    settle().await;
    server.write_all(b":").await.unwrap();
    settle().await;
    clock.advance(Duration::from_secs(3));
    assert!(text(early.map(Result::unwrap)).await.starts_with("the server did not answer in time"));
    let refused = wire.number(3, 0).now_or_never().expect("it is refused at once").unwrap_err();
    assert_eq!(refused.effect(), Effect::NotApplied, "{refused}");
    let next = beside(wire.number(4, 3));
    settle().await;
    server.write_all(b"1\r\n:2\r\n:4\r\n").await.unwrap();
    assert_eq!(next.await.unwrap().unwrap(), 4);
}

/// A runtime that was blocked past a bound has not seen an answer that has come meanwhile.
#[cfg(unix)]
#[tokio::test]
async fn answer_that_came_to_a_blocked_runtime_counts() {
    let (ours, mut server) = std::os::unix::net::UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let (wire, clock) = Setup::over(tokio::net::UnixStream::from_std(ours).unwrap());
    settle().await;
    let asked = beside(wire.number(1, 3));
    settle().await;
    std::io::Write::write_all(&mut server, b":1\r\n").unwrap();
    clock.advance(Duration::from_secs(3));
    assert_eq!(asked.await.unwrap().unwrap(), 1);
}

/// A panic leaves no answer to another caller.
#[tokio::test]
async fn panic_ends_the_connection() {
    let Setup { wire, server: _server, .. } = Setup::new(999);
    let first = beside(wire.number(1, 60));
    settle().await;
    let panics = || wire.ask(Moment::from_nanos(u64::MAX), |_, _, _| panic!("in a test")).now_or_never();
    catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
    assert!(text(first.map(Result::unwrap)).await.starts_with("the connection was lost"));
    assert_eq!(wire.number(2, 60).await.unwrap_err().effect(), Effect::NotApplied);
}

/// The last waker of a task drops the task, and with it requests of the same wire.
#[tokio::test]
async fn wakers_are_dropped_without_the_lock() {
    let Setup { wire, server: _server, .. } = Setup::new(999);
    let is_wrong = Arc::new(AtomicBool::new(false));
    let mut requests = [Box::pin(wire.number(1, 60)), Box::pin(wire.number(2, 60))];
    for _ in 0..3 {
        for request in &mut requests {
            let waker = Waker::from(Arc::new(Dropped(Arc::clone(&wire), Arc::clone(&is_wrong))));
            assert!(request.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
    }
    drop(requests);
    assert!(!is_wrong.load(Ordering::SeqCst));
}

/// A waker that tells whether it is dropped under the lock of the wire.
struct Dropped(Arc<Wire>, Arc<AtomicBool>);

impl Wake for Dropped {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Dropped {
    fn drop(&mut self) {
        self.1.fetch_or(self.0.state.try_lock().is_none(), Ordering::SeqCst);
    }
}

/// An answer shows that the connection is alive, also one that is not read because its caller, alone in flight, is not
/// polled, and because there is more before it than is read at a time.
#[tokio::test]
async fn connection_that_answers_is_kept() {
    let Setup { wire, mut server, clock } = Setup::new(1 << 20);
    let mut parked = Box::pin(wire.number(1, 3));
    assert!((&mut parked).now_or_never().is_none());
    let pushes = b">2\r\n+message\r\n:7\r\n".repeat(3 * READ_AT_ONCE / 20);
    server.write_all(&[&pushes, &b":1\r\n"[..]].concat()).await.unwrap();
    clock.advance(Duration::from_secs(4));
    settle().await;
    assert_eq!(parked.await.unwrap(), 1);
}

/// The bound of a request ends it although the peer sends without end, and others have their turn.
#[tokio::test]
async fn peer_that_sends_without_end_delays_no_bound() {
    let Setup { wire, mut server, clock } = Setup::new(3 * READ_AT_ONCE);
    let push = [&b">1\r\n$300000\r\n"[..], &[b'x'; 300_000], b"\r\n"].concat();
    beside(async move { while server.write_all(&push).await.is_ok() {} });
    let asked = beside(wire.number(1, 3));
    settle().await;
    clock.advance(Duration::from_secs(3));
    settle().await;
    assert!(!asked.is_finished(), "the answer may be unread");
    clock.advance(Duration::from_secs(3));
    assert!(text(asked.map(Result::unwrap)).await.starts_with("the server did not answer in time"));
}

/// What is no answer, or an answer to nothing, ends the connection, also while nothing is in flight; so does the peer, also of
/// a wire that was never asked.
#[tokio::test]
async fn foreign_bytes_end_the_connection() {
    for bytes in
        [&b":1\r\n:2\r\n"[..], b":1\r\n$900000000\r\n", b":1\r\nHTTP/1.1 400 Bad Request\r\n", b":1\r\n"]
    {
        let Setup { wire, mut server, .. } = Setup::new(999);
        let first = beside(wire.number(1, 60));
        settle().await;
        server.write_all(bytes).await.unwrap();
        if bytes.len() == 4 {
            drop(server);
        }
        let _ = first.await.unwrap();
        within(BOUND, "it ends", wire.connection.over()).await;
        wire.number(2, 60).await.unwrap_err();
    }
    let Setup { wire, server, .. } = Setup::new(999);
    settle().await;
    drop(server);
    within(BOUND, "it ends", wire.connection.over()).await;
}

/// A server that does not read costs a bounded amount of memory; who finds no room waits for it until its bound.
#[tokio::test]
async fn requests_without_room_wait_for_it() {
    let Setup { wire, server, clock } = Setup::new(64);
    let in_flight: Vec<_> = (0..4096).map(|number| beside(wire.number(number, 60))).collect();
    settle().await;
    let (hopeless, patient) = (beside(wire.number(5000, 5)), beside(wire.number(5001, 60)));
    settle().await;
    clock.advance(Duration::from_secs(5));
    let refused = hopeless.await.unwrap().unwrap_err();
    assert_eq!(refused.effect(), Effect::NotApplied, "{refused}");
    beside(echo(server, TestRng::deterministic_rng(RngAlgorithm::ChaCha)));
    for (number, call) in in_flight.into_iter().enumerate() {
        assert_eq!(within(BOUND, "it is answered", call).await.unwrap().unwrap(), number as i64);
    }
    assert_eq!(patient.await.unwrap().unwrap(), 5001);
}

fn connection(wire: Arc<Wire>, times: Times) -> Connection {
    let (up_at, state) = (wire.env.now(), Arc::clone(&wire.connection));
    let client = crate::RedisConfig::new("h", 1).client(up_at.since(up_at)).unwrap();
    let slots = tokio::sync::OnceCell::new();
    Connection { id: 0, client, began_at: up_at, up_at, times, wire, listener: None, slots, state }
}

/// The next requests to the server that come together.
async fn read_requests(server: &mut DuplexStream, requests: &mut Answers) -> Vec<Vec<String>> {
    let count = within(BOUND, "it is asked", server.read(requests.room())).await.unwrap();
    requests.filled(count);
    let mut read = Vec::new();
    while let Some(request) = requests.next().unwrap() {
        read.push(redis::from_redis_value(request).unwrap());
    }
    read
}

/// A server with a slot, which says since when it has that; how often it was asked about that.
fn slot_server(mut server: DuplexStream, reign: &'static str, since: Arc<AtomicUsize>) -> Arc<AtomicUsize> {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    beside(async move {
        let mut requests = Answers::new();
        loop {
            for words in read_requests(&mut server, &mut requests).await {
                let since = since.load(Ordering::Relaxed);
                let answer = match (&*words[0], words[1] == ADMIT.hash) {
                    ("CLUSTER", _) => "*0\r\n".to_owned(),
                    (_, true) => format!("*5\r\n:1\r\n:{since}\r\n:9\r\n$3\r\n{reign}\r\n$0\r\n\r\n"),
                    (_, false) => ":1\r\n".to_owned(),
                };
                counted.fetch_add(usize::from(words[1] == ADMIT.hash), Ordering::Relaxed);
                server.write_all(answer.as_bytes()).await.unwrap();
            }
        }
    });
    asked
}

/// How a slot whose server may have been replaced is asked about, with that lag.
fn slot_pause(env: &Env, lag: Duration) -> Pause {
    let option = PauseOption { name: "pause", span: lag, lag, max_ttl: None };
    let keys = crate::RedisConfig::new("h", 1).keys().unwrap();
    let failover = Failover { max_ttl: lag, lag, replicas: None };
    Pause::Slots(Arc::new(SlotPause::new(env, &keys, option, failover)))
}

async fn slot_connection(wire: Arc<Wire>, pause: &Pause) -> Connection {
    let mut connection = connection(wire, Times::Unasked);
    let give_up_at = connection.up_at + BOUND;
    connection.times = pause.ask(&connection, give_up_at, error::of).await.unwrap();
    connection
}

/// A slot that was idle is asked about again before its server can be replaced and come back unseen (redis.slots-1).
#[tokio::test]
async fn idle_slot_is_asked_about_again() {
    let Setup { wire, server, clock } = Setup::new(1 << 16);
    let (env, lag) = (wire.env.clone(), 4 * wire.env.timing().op_timeout);
    let asked = slot_server(server, "a b", Arc::new(AtomicUsize::new(5)));
    let connection = slot_connection(wire, &slot_pause(&env, lag)).await;
    let call = OWN.operation("renew", &["{a}"]);
    let idle = lag / 2 - env.timing().op_timeout;
    for (after, times) in [(Duration::ZERO, 1), (idle - Duration::from_millis(1), 1), (idle, 2)] {
        clock.advance(after);
        connection.run(&call, env.now() + BOUND, false).await.unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), times, "idle for {after:?}");
    }
}

/// A slot that has come back is asked about over each connection to its server (redis.slots-1), which need not say that it had
/// given the slot away (redis.slots-3).
#[tokio::test]
async fn slot_that_is_back_is_asked_about_over_each_connection() {
    let [first, second, other] = [(); 3].map(|()| Setup::new(1 << 16));
    let since = Arc::new(AtomicUsize::new(5));
    let (pause, clock) = (slot_pause(&first.wire.env, BOUND), first.clock);
    let asked = [(first.server, "a b"), (second.server, "a b"), (other.server, "c d")]
        .map(|(server, reign)| slot_server(server, reign, Arc::clone(&since)));
    let wires = [first.wire, second.wire, other.wire];
    let [first, second, other] =
        join_all(wires.map(|wire| slot_connection(wire, &pause))).await.try_into().unwrap();
    let call = OWN.operation("renew", &["{a}"]);
    let run = async |connection: &Connection| {
        connection.run(&call, connection.up_at + BOUND, false).await.map(drop)
    };
    for connection in [&first, &second, &first, &other] {
        run(connection).await.unwrap();
    }
    run(&first).await.expect_err("it may be a primary that was replaced");
    since.store(7, Ordering::Relaxed);
    clock.advance(Duration::from_millis(1));
    for connection in [&second, &first, &second] {
        run(connection).await.unwrap();
    }
    assert_eq!(asked.map(|asked| asked.load(Ordering::Relaxed)), [3, 2, 1]);
}

/// Calls that find a server without their script bring its text once: 64 at a time, and then again after it has lost the
/// script. Where the user may not bring it, each ends.
#[tokio::test]
async fn script_is_sent_once_for_all_calls() {
    for may_load in [true, false] {
        let Setup { wire, mut server, .. } = Setup::new(1 << 20);
        let connection = connection(wire, Times::Server(ReignTimes { paused_until: 9, lag_until: 7 }));
        let connection = Arc::new(connection);
        for round in 0..2 {
            let call = |_| {
                let connection = Arc::clone(&connection);
                beside(async move {
                    let give_up_at = connection.up_at + BOUND;
                    connection.run(&ADMIT.call(&[]), give_up_at, false).await
                })
            };
            let calls: Vec<_> = (0..64).map(call).collect();
            settle().await;
            let (mut texts, mut has_script, mut answered) = (0, false, 0);
            let mut requests = Answers::new();
            while answered < 64 {
                for words in read_requests(&mut server, &mut requests).await {
                    assert_eq!(words.last().unwrap(), "~9 7");
                    let brings_text = words[0] == "EVAL";
                    texts += usize::from(brings_text);
                    has_script |= brings_text && may_load;
                    answered += usize::from(has_script || brings_text);
                    let answer: &[u8] = match (has_script, brings_text) {
                        (true, _) => b":1\r\n",
                        (false, true) => b"-NOPERM no rights to run the 'eval' command\r\n",
                        (false, false) => b"-NOSCRIPT No matching script.\r\n",
                    };
                    server.write_all(answer).await.unwrap();
                }
            }
            for call in calls {
                assert_eq!(call.await.unwrap().is_ok(), may_load, "round {round}");
            }
            if may_load {
                assert_eq!(texts, 1, "round {round}");
            }
        }
    }
}

/// Requests end with the runtime of their wire, wherever they are polled and however far they have come.
#[test]
fn requests_end_with_their_runtime() {
    for (in_flight, polls, answer) in [(1, 0, &b""[..]), (1, 1, b""), (1, 1, b":"), (2, 1, b":"), (2, 0, b"")]
    {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let Setup { wire, mut server, .. } = runtime.block_on(async { Setup::new(999) });
        let mut calls: Vec<_> = (0..in_flight).map(|number| Box::pin(wire.number(number, 60))).collect();
        for call in calls.iter_mut().take(polls * in_flight as usize) {
            assert!(call.now_or_never().is_none());
        }
        runtime.block_on(async {
            server.write_all(answer).await.unwrap();
            settle().await;
        });
        drop(runtime);
        for call in calls {
            let lost = futures_util::FutureExt::now_or_never(call).expect("it has ended").unwrap_err();
            assert!(lost.to_string().starts_with("the connection was lost"), "{lost}");
        }
    }
}

/// What comes after a reply that cannot be read belongs to no place, also before the connection has ended.
#[tokio::test]
async fn nothing_is_read_after_a_reply_that_cannot_be_read() {
    let (ours, mut server) = tokio::io::duplex(999);
    let mut io = Io::new(Box::new(ours));
    let mut read = |found: &mut Vec<Value>| {
        let mut cx = Context::from_waker(Waker::noop());
        io.read(&mut cx, |answer| {
            found.push(answer);
            Ok(())
        })
    };
    let mut found = Vec::new();
    server.write_all(b":x\r\n").await.unwrap();
    read(&mut found).unwrap_err();
    let _closed = server.write_all(b":1\r\n").await;
    assert!(read(&mut found).is_err() && found.is_empty(), "{found:?}");
}
