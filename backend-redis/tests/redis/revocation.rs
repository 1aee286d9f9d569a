//! Revoking a lock: its requests, and lost messages.

use leasehold_core::{LockGuard, LockManager, Revocation, Revoke};
use testbed::redis::{Reply, is_push};
use testbed::{Direction, Mode};

use crate::counts::Requests;
use crate::fixture::{
    BOUND, Beside, KEY, LONG, NAME, Waiter, command, direct, eventually, hold, now, ok, open, open_for,
    proxy, server, trials, via, within,
};

trials![
    asking_and_taking_are_one_request,
    an_ask_is_told_with_a_grant_that_was_lost,
    a_strange_note_asks_nothing,
];

/// A grace that nothing here waits for.
pub(crate) const GRACE: Revoke = Revoke::Ask { grace: LONG };

/// A revocation that goes on by itself, until dropped.
pub(crate) struct Asking(Beside<leasehold_core::Result<Revocation>>);

impl Asking {
    pub(crate) fn start(locks: &LockManager, how: Revoke) -> Self {
        let locks = locks.clone();
        Self(Beside::start(async move { locks.revoke(NAME, how).await }))
    }

    /// The holder has released.
    pub(crate) async fn answered(self) {
        assert_eq!(self.0.end("an answer").await.unwrap(), Revocation::Released);
    }
}

/// The guard is revoked with a grace period, and held meanwhile.
pub(crate) async fn is_asked(guard: &LockGuard) {
    let until = within(BOUND, "it is asked", guard.revocation_requested()).await.expect("it is held");
    let left = until.remaining(now());
    assert!(LONG - BOUND < left && left <= LONG, "{left:?}");
    guard.ensure_held().unwrap();
}

/// The holder is not read before, and checks the message once.
async fn asking_and_taking_are_one_request() {
    let server = server().await;
    direct(&server).load_scripts().await.unwrap();
    let holder = open_for(direct(&server), LONG).await;
    // It looks for the answer later than this takes.
    let asker = LockManager::builder(direct(&server)).ttl(LONG * 16).op_timeout(LONG * 5);
    let asker = asker.connect_timeout(BOUND).build().await.unwrap();
    Requests::begin(&server).await;
    assert_eq!(asker.revoke(NAME, GRACE).await.unwrap(), Revocation::NotHeld);
    assert_eq!(Requests::since(&server).await.total(), 1);

    ok(&server, &["SET", KEY, "another client's"]).await;
    Requests::begin(&server).await;
    assert_eq!(asker.revoke(NAME, Revoke::Force).await.unwrap(), Revocation::Released);
    let requests = Requests::since(&server).await.0;
    assert_eq!(requests.get("evalsha"), Some(&1), "{requests:?}");
    assert_eq!(requests.len(), 1, "{requests:?}");

    let guard = hold(&holder).await;
    Requests::begin(&server).await;
    let asked = Asking::start(&asker, GRACE);
    is_asked(&guard).await;
    assert_eq!(Requests::since(&server).await.total(), 2);
    drop(asked);
    guard.release().await.unwrap();
}

/// A waiter that misses the messages of its grant and of a revocation finds both with its next refresh.
async fn an_ask_is_told_with_a_grant_that_was_lost() {
    let server = server().await;
    let proxy = proxy(&server);
    let (a, b) = (open(direct(&server)).await, open(via(&proxy)).await);
    let guard = hold(&a).await;
    let waiting = Waiter::queued(&b, 0, &a).await;
    proxy.set(Direction::ServerToClient, Mode::drop_frames(is_push)).await;
    guard.release().await.unwrap();
    let asked = Asking::start(&a, GRACE);
    proxy.dropped(Direction::ServerToClient, 2).await;
    let guard = waiting.held().await;
    is_asked(&guard).await;
    guard.release().await.unwrap();
    asked.answered().await;
}

/// What no version of ours writes there asks nothing, a grace is a day at most, and other locks go on.
async fn a_strange_note_asks_nothing() {
    let server = server().await;
    let locks = open(direct(&server)).await;
    let other = locks.lock("another").unwrap().acquire().await.unwrap();
    let large = "9".repeat(1 << 20);
    for (strange, asks) in [
        ("", false),
        ("ID", false),
        ("ID -1", false),
        ("ID 1 2", false),
        ("another 1", false),
        ("ID 86400001", true),
        (&*format!("ID {large}"), true),
    ] {
        let guard = hold(&locks).await;
        let holder = command(&server, &["GET", KEY]).await.text().unwrap();
        let note = ["HSET", &format!("{KEY}:e"), "revoked", &strange.replace("ID", &holder)];
        assert_eq!(command(&server, &note).await, Reply::Integer(1));
        guard.renew().await.unwrap();
        if asks {
            eventually("it hears", async || guard.revocation_deadline().is_some()).await;
        }
        assert!(asks || guard.revocation_deadline().is_none(), "{strange:?}");
        guard.release().await.unwrap();
    }
    other.renew().await.unwrap();
}
