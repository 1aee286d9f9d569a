//! Requests that arrive late, and replies that are lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use leasehold_core::backend::{AcquireRequest, Attempt, Grant, LockBackend, StoreConfig};
use leasehold_core::{Env, ErrorKind, LockName, Mode as Kind, Timing};
use leasehold_etcd::EtcdConfig;
use testbed::{Direction, Mode, Proxy};

use crate::fixture::{
    BOUND, Beside, Fixture, PREFIX, TTL, behind, eventually, hold, hold_aside, open, trials, within,
};

trials![
    a_lost_answer_leaves_a_session_in_the_move,
    a_try_that_cannot_read_who_is_before_it_ends,
    a_delayed_release_spares_a_newer_lock,
    a_delayed_acquisition_creates_nothing,
    many_lost_answers_cost_a_few_requests_each,
];

/// A session as a manager has it, without one.
struct Session {
    backend: Arc<dyn LockBackend>,
    env: Env,
}

impl Session {
    async fn open(config: EtcdConfig) -> Self {
        Self::open_in(config, Env::new(Timing::for_ttl(4 * TTL)).unwrap()).await
    }

    async fn open_in(config: EtcdConfig, env: Env) -> Self {
        Self { backend: config.open(env.clone()).await.unwrap(), env }
    }

    async fn grant(&self, name: &str) -> Grant {
        let request = AcquireRequest::new(self::name(name), self.env.owner_id(), self.env.timing().ttl);
        match within(BOUND, "an answer", self.backend.try_acquire(&request)).await.unwrap() {
            Attempt::Granted(grant) => grant,
            Attempt::Held { holder } => panic!("held by {holder:?}"),
        }
    }
}

/// The session's key is written anew to find out what an unconfirmed request did; that must not make a participant of a move
/// look like a plain session.
async fn a_lost_answer_leaves_a_session_in_the_move() {
    let fixture = Fixture::start().await;
    let proxy = fixture.proxy(0);
    let env = Env::new(Timing::for_ttl(4 * TTL)).unwrap().without_token_base();
    let (moving, plain) =
        (Session::open_in(behind(&proxy), env).await, Session::open(fixture.config()).await);
    let request = AcquireRequest::new(name("n"), moving.env.owner_id(), moving.env.timing().ttl);
    let key = format!("{PREFIX}/%session/");
    let written = async || fixture.store.keys(&key).await.iter().map(|key| key.modified).max();
    let opened = written().await;
    proxy.set(Direction::ServerToClient, Mode::Hold).await;
    let backend = Arc::clone(&moving.backend);
    let acquiring = Beside::start(async move { backend.acquire(&request).await });
    fixture.store.queued("n", 1).await;
    proxy.reset().await;
    proxy.set(Direction::ServerToClient, Mode::Pass).await;
    acquiring.end("it holds").await.unwrap();
    assert!(opened < written().await, "the session's key is written anew");
    assert_eq!(plain.backend.token_base().await.unwrap().sessions, Some(0));
}

/// Among permits of another capacity a try reads all of them. Without a reply it ends like any request, and no entry
/// stays.
async fn a_try_that_cannot_read_who_is_before_it_ends() {
    const MANY: usize = 20;
    let fixture = Fixture::start().await;
    let proxy = Proxy::start_framed(fixture.etcd.addr(0), h2_frame).unwrap();
    let (many, one) = (fixture.manager().await, Session::open(behind(&proxy)).await);
    let mut guards = Vec::new();
    for _ in 0..MANY {
        guards.push(many.lock("n").unwrap().permits(1, 40).acquire().await.unwrap());
    }
    let mut request = AcquireRequest::new(name("n"), one.env.owner_id(), one.env.timing().ttl);
    request.mode = Kind::permits(1, 41).unwrap();
    let has = |frame: &[u8], part: &str| frame.windows(part.len()).any(|bytes| bytes == part.as_bytes());
    let queue = format!("{PREFIX}/n/");
    // The first request passes, and so do renewals.
    let asked = AtomicBool::new(false);
    let reads = Mode::drop_frames(move |frame| has(frame, &queue) && asked.swap(true, Ordering::Relaxed));
    proxy.set(Direction::ClientToServer, reads).await;
    let refused = within(BOUND, "an answer", one.backend.try_acquire(&request)).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert!(proxy.traffic(Direction::ClientToServer).dropped > 0, "it was read");

    proxy.set(Direction::ClientToServer, Mode::Pass).await;
    eventually("no entry stays", async || fixture.store.queue("n").await.len() == MANY).await;
}

/// The type of a frame of HTTP/2 that cancels a request.
const RST_STREAM: u8 = 3;

/// The length of a frame of HTTP/2, and of a client's preface.
fn h2_frame(bytes: &[u8]) -> Option<usize> {
    let head = bytes.get(..9)?;
    let length = if head.starts_with(b"PRI") {
        24
    } else {
        9 + usize::from(head[0]) * 65_536 + usize::from(head[1]) * 256 + usize::from(head[2])
    };
    (length <= bytes.len()).then_some(length)
}

/// A release is held up on a connection that was replaced by another, where it was repeated. The first copy arrives when
/// the name is held again by the same key.
async fn a_delayed_release_spares_a_newer_lock() {
    let fixture = Fixture::start().await;
    let proxies = [(); 2].map(|()| Proxy::start_framed(fixture.etcd.addr(0), h2_frame).unwrap());
    let endpoints = proxies.iter().map(|proxy| proxy.addr().to_string());
    let session = Session::open(EtcdConfig::new(endpoints).prefix(PREFIX)).await;
    let used =
        the_one_used(&proxies, async || drop(session.backend.inspect(&name("n")).await.unwrap())).await;
    let older = session.grant("n").await;
    // What comes back to a client that has left would reset the connection, and the server would cancel the request.
    proxies[used].set_both(Mode::Hold).await;
    // Repeated, as the core repeats an unconfirmed release.
    eventually("the release", async || session.backend.release(&older).await.is_ok()).await;
    assert!(proxies[used].traffic(Direction::ClientToServer).held > 0, "nothing was on its way");
    let newer = session.grant("n").await;

    carries_out(&fixture, &proxies[used]).await;
    let keys = fixture.store.queue("n").await;
    assert_eq!(keys.len(), 1, "{keys:?}");
    assert_eq!(keys[0].created.cast_unsigned(), newer.counter);
    session.backend.release(&newer).await.unwrap();
}

/// Which of two proxies `act` uses: the only one over which something is sent meanwhile.
async fn the_one_used(proxies: &[Proxy; 2], act: impl AsyncFn()) -> usize {
    let sent = || [0, 1].map(|index| proxies[index].traffic(Direction::ClientToServer).forwarded);
    loop {
        let before = sent();
        act().await;
        // The other one may still be connecting.
        match [0, 1].map(|index| sent()[index] > before[index]) {
            [true, false] => return 0,
            [false, true] => return 1,
            _ => {}
        }
    }
}

/// Lets the request pass that is held on its way, and waits until the server has answered it.
async fn carries_out(fixture: &Fixture, proxy: &Proxy) {
    let answered = async || {
        let metrics = fixture.etcd.metrics(0).await.unwrap();
        metrics.sum("grpc_server_handled_total", "grpc_method=\"Txn\"")
    };
    let before = answered().await;
    // The caller has given up since: its cancellation, or the end of its connection, may overtake the request at the server.
    let cancels = |frame: &[u8]| frame.is_empty() || frame.get(3) == Some(&RST_STREAM);
    proxy.set(Direction::ClientToServer, Mode::drop_frames(cancels)).await;
    eventually("it is answered", async || answered().await > before).await;
}

fn name(name: &str) -> LockName {
    LockName::new(name).unwrap()
}

/// A request is held up on a connection that was replaced by another, and its acquisition is cancelled. When the request
/// arrives, it creates nothing.
async fn a_delayed_acquisition_creates_nothing() {
    let fixture = Fixture::start().await;
    let is_sent = Arc::new(AtomicBool::new(false));
    let inner = [0, 0].map(|member| {
        let is_sent = Arc::clone(&is_sent);
        let watching = move |bytes: &[u8]| {
            let key = format!("{PREFIX}/n/");
            if bytes.windows(key.len()).any(|window| window == key.as_bytes()) {
                is_sent.store(true, Ordering::SeqCst);
            }
            Some(bytes.len())
        };
        Proxy::start_framed(fixture.etcd.addr(member), watching).unwrap()
    });
    let outer = [0, 1].map(|index: usize| Proxy::start(inner[index].addr()).unwrap());
    let endpoints = outer.iter().map(|proxy| proxy.addr().to_string());
    let manager = open(EtcdConfig::new(endpoints).prefix(PREFIX)).await;
    let cycle = async || hold(&manager, "before").await.release().await.unwrap();
    let used = the_one_used(&outer, cycle).await;

    inner[used].set(Direction::ClientToServer, Mode::Hold).await;
    let acquiring = hold_aside(&manager, "n");
    eventually("it is sent", async || is_sent.load(Ordering::SeqCst)).await;
    // The client's cancellation, or the end of the connection, never arrives.
    outer[used].set_both(Mode::Blackhole).await;
    drop(acquiring);
    // Over the other connection, after the clean-up.
    let again = hold(&manager, "n").await;
    again.release().await.unwrap();
    let diary = fixture.store.diary(&format!("{PREFIX}/n/")).await;
    carries_out(&fixture, &inner[used]).await;
    // A creation would be reported before this.
    let key = format!("{PREFIX}/n/last");
    fixture.store.client.kv_client().put(key.as_str(), "", None).await.unwrap();
    fixture.store.delete(&key).await;
    diary.deletion(&key).await;
    let created: Vec<_> = diary.entries().into_iter().filter(|entry| !entry.is_deletion).collect();
    assert!(created.iter().all(|entry| entry.key == key), "{created:?}");
}

/// The replies to many acquisitions are lost at the same time: one move of the epoch serves all of them.
async fn many_lost_answers_cost_a_few_requests_each() {
    const NAMES: usize = 40;
    let fixture = Fixture::start().await;
    let prefix = format!("{PREFIX}/many");
    // Requests about the session itself are not counted.
    let made = Arc::new(AtomicUsize::new(0));
    let (counted, about) = (Arc::clone(&made), prefix.clone());
    let counting = Mode::drop_frames(move |frame| {
        let is_about = frame.windows(about.len()).any(|part| part == about.as_bytes());
        counted.fetch_add(usize::from(is_about), Ordering::SeqCst);
        false
    });
    let proxy = Proxy::start_framed(fixture.etcd.addr(0), h2_frame).unwrap();
    proxy.set(Direction::ClientToServer, counting).await;
    let manager = fixture.manager_behind(&proxy).await;
    proxy.set(Direction::ServerToClient, Mode::Hold).await;
    let acquiring: Vec<_> = (0..NAMES).map(|index| hold_aside(&manager, &format!("many{index}"))).collect();
    eventually("all are asked for", async || fixture.store.keys(&prefix).await.len() == NAMES).await;
    proxy.reset().await;
    proxy.set(Direction::ServerToClient, Mode::Pass).await;
    let mut guards = Vec::new();
    for acquiring in acquiring {
        guards.push(acquiring.end("it holds").await);
    }
    let made = made.load(Ordering::SeqCst);
    println!("{made} requests for {NAMES} lost answers");
    // Each is requested, moves the epoch or sees that it has moved, and is requested again.
    assert!((2 * NAMES..=4 * NAMES).contains(&made), "{made}");
    for guard in guards {
        guard.release().await.unwrap();
    }
}
