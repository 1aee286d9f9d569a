//! Another library's locks on the same key: redis-py, in both directions.

use std::time::Duration;

use leasehold_core::LockManager;
use testbed::redis::{Reply, Server};
use testbed::{Launch, Process, Scratch, peers};

use crate::rig::{
    BOUND, KEY, NAME, TTL, Waiter, command, direct, exists, hold, now, ok, open, pass, server, trials,
};

trials![
    we_wait_for_redis_py,
    redis_py_waits_for_us,
    a_hold_of_redis_py_that_ends_is_followed,
    a_hold_of_redis_py_without_end_is_waited_for,
    redis_py_cannot_release_ours,
    no_count_is_lost_between_the_two,
    the_key_is_the_name_only_if_asked_for,
];

/// A program that holds a lock of redis-py, and does as it is told by lines.
struct Peer {
    process: Process,
    /// Where it logs; removed after it.
    _scratch: Scratch,
}

impl Peer {
    async fn start(server: &Server) -> Option<Self> {
        let Some(python) = peers::python() else {
            peers::skip("redis-py", "it is not installed; run `make tools`");
            return None;
        };
        let scratch = Scratch::new("redis-py").unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/foreign/redis/peer.py");
        let port = server.addr().port().to_string();
        let mut launch = Launch::new(python, scratch.path()).args([script, &port]).piped_lines();
        let mut process = launch.spawn().unwrap();
        assert_eq!(process.next_line(BOUND).await.unwrap(), "ready");
        Some(Self { process, _scratch: scratch })
    }

    async fn ask(&mut self, order: &str) -> String {
        self.order(order).await;
        self.answer().await
    }

    async fn order(&mut self, order: &str) {
        self.process.send_line(order).await.unwrap();
    }

    async fn answer(&mut self) -> String {
        self.process.next_line(BOUND).await.unwrap()
    }
}

/// Ours, on exactly that key.
async fn ours(server: &Server) -> LockManager {
    open(direct(server).exact_key(true)).await
}

/// It holds: we do not get the lock, and queue; it releases, without telling anybody: our next
/// refresh finds that.
async fn we_wait_for_redis_py() {
    let server = server().await;
    let Some(mut peer) = Peer::start(&server).await else { return };
    let (a, b) = (ours(&server).await, ours(&server).await);
    assert_eq!(peer.ask(&format!("acquire {NAME} 60 0")).await, "held");
    assert!(a.lock(NAME).unwrap().try_acquire().await.unwrap().is_none());
    let first = Waiter::queued(&a, 0, &b).await;
    let second = Waiter::queued(&b, 1, &b).await;
    assert!(b.inspect(NAME).await.unwrap().holder().is_some());

    assert_eq!(peer.ask("release").await, "released");
    let guard = first.held().await;
    let token = guard.token();
    guard.release().await.unwrap();
    let guard = second.held().await;
    assert!(guard.token() > token);
    guard.release().await.unwrap();
}

/// We hold, and renew: it does not get the lock for as long, and gets it when we release.
async fn redis_py_waits_for_us() {
    let server = server().await;
    let Some(mut peer) = Peer::start(&server).await else { return };
    let locks = ours(&server).await;
    let guard = hold(&locks).await;
    assert_eq!(peer.ask(&format!("acquire {NAME} 60 0")).await, "busy");
    let longer = (2 * TTL).as_secs();
    assert_eq!(peer.ask(&format!("acquire {NAME} 60 {longer}")).await, "busy");
    guard.ensure_held().unwrap();
    peer.order(&format!("acquire {NAME} 60 {}", BOUND.as_secs())).await;
    guard.release().await.unwrap();
    assert_eq!(peer.answer().await, "held");
    assert!(locks.lock(NAME).unwrap().try_acquire().await.unwrap().is_none());
    assert_eq!(peer.ask("release").await, "released");
    hold(&locks).await.release().await.unwrap();
}

/// It is killed: its lease ends by itself, and we hold then; not before.
async fn a_hold_of_redis_py_that_ends_is_followed() {
    let server = server().await;
    let Some(mut peer) = Peer::start(&server).await else { return };
    let locks = ours(&server).await;
    let sent = now();
    assert_eq!(peer.ask(&format!("acquire {NAME} 3 0")).await, "held");
    peer.process.kill().await.unwrap();
    let guard = hold(&locks).await;
    assert!(now().since(sent) >= Duration::from_secs(3));
    guard.release().await.unwrap();
}

/// A lock without expiry, which redis-py makes by default, is waited for as long as it is there.
async fn a_hold_of_redis_py_without_end_is_waited_for() {
    let server = server().await;
    let Some(mut peer) = Peer::start(&server).await else { return };
    let (a, b) = (ours(&server).await, ours(&server).await);
    assert_eq!(peer.ask(&format!("acquire {NAME} none 0")).await, "held");
    let waiting = Waiter::queued(&a, 0, &b).await;
    pass(2 * TTL).await;
    assert!(waiting.is_waiting());
    assert_eq!(command(&server, &["PTTL", NAME]).await, Reply::Integer(-1));
    assert_eq!(peer.ask("release").await, "released");
    waiting.held().await.release().await.unwrap();
}

/// Neither its release nor ours touches what the other holds.
async fn redis_py_cannot_release_ours() {
    let server = server().await;
    let Some(mut peer) = Peer::start(&server).await else { return };
    let locks = ours(&server).await;
    assert_eq!(peer.ask(&format!("acquire {NAME} 60 0")).await, "held");
    command(&server, &["DEL", NAME]).await;
    let guard = hold(&locks).await;
    assert_eq!(peer.ask("release").await, "not owned");
    guard.renew().await.unwrap();

    command(&server, &["DEL", NAME]).await;
    assert_eq!(peer.ask(&format!("acquire {NAME} 60 0")).await, "held");
    let lost = guard.release().await.unwrap_err();
    assert!(lost.lost_reason().is_some(), "{lost}");
    assert_eq!(peer.ask("release").await, "released");
}

/// Both kinds add to a number that nothing else protects; none of it is lost.
async fn no_count_is_lost_between_the_two() {
    const EACH: u32 = 30;
    let server = server().await;
    let (Some(mut one), Some(mut two)) = (Peer::start(&server).await, Peer::start(&server).await) else {
        return;
    };
    let (a, b) = (ours(&server).await, ours(&server).await);
    ok(&server, &["SET", "number", "0"]).await;
    for peer in [&mut one, &mut two] {
        peer.order(&format!("count {NAME} {EACH} number")).await;
    }
    let counting = async |locks: &LockManager| {
        let mut client = server.client().await.unwrap();
        for _ in 0..EACH {
            let guard = hold(locks).await;
            let number: u32 =
                client.command(&["GET", "number"]).await.unwrap().text().unwrap().parse().unwrap();
            pass(Duration::from_millis(1)).await;
            client.command(&["SET", "number", &(number + 1).to_string()]).await.unwrap();
            guard.release().await.unwrap();
        }
    };
    tokio::join!(counting(&a), counting(&b));
    assert_eq!((one.answer().await, two.answer().await), ("counted".to_owned(), "counted".to_owned()));
    let number = command(&server, &["GET", "number"]).await;
    assert_eq!(number.text().unwrap(), (4 * EACH).to_string());
}

/// With the option the key is the name; without it, a client that locks the name's own key is somebody
/// else's business.
async fn the_key_is_the_name_only_if_asked_for() {
    let server = server().await;
    let (exact, own) = (ours(&server).await, open(direct(&server)).await);
    let (guard, other) = (hold(&exact).await, hold(&own).await);
    assert!(exists(&server, NAME).await && exists(&server, KEY).await);
    guard.release().await.unwrap();
    assert!(!exists(&server, NAME).await && exists(&server, KEY).await);
    other.release().await.unwrap();
}
