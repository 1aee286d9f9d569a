//! The server is killed with all its processes while sessions contend: what was not flushed is lost, a release or a place in
//! the queue. The holder of the moment keeps its grant meanwhile, or has released it just before.
//!
//! At depth `soak` it is killed a hundred times.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use leasehold::{ErrorKind, FencingToken, LockGuard, LockManager};
use testbed::pgbouncer::Bouncer;
use testbed::postgres::{Server, Setup};
use testbed::{Beside, Depth, eventually};
use tokio::sync::oneshot;

use super::open;
use crate::fixture::NAME;

const SESSIONS: usize = 8;

/// The latest token, the guard of the latest grant until its release, the sessions that had a grant since the last crash, and
/// what the next holder does.
#[derive(Default)]
struct Story {
    latest: Mutex<(Option<FencingToken>, Option<Arc<LockGuard>>)>,
    turns: Mutex<BTreeSet<usize>>,
    crash: Mutex<Option<Crash>>,
}

/// A crash that a holder waits for, with its grant or after its release.
struct Crash {
    keeps: bool,
    ready: oneshot::Sender<()>,
    over: oneshot::Receiver<()>,
}

pub(super) async fn crash_doubles_neither_lock_nor_token() {
    let server = Setup::new().start().await.unwrap();
    let addr = server.addr();
    contend_through_crashes(server, addr, "").await;
}

/// Clients keep their connections to the pooler, and learn of the crash by other means.
pub(super) async fn crash_behind_a_pooler_blocks_no_lock() {
    let server = Setup::new().start().await.unwrap();
    let pooler = Bouncer::start(&server, 20).await.unwrap();
    contend_through_crashes(server, pooler.addr(), "&listen=false").await;
}

/// One holds at a time, tokens grow, and the lock passes on, whatever the crash has made undone.
async fn contend_through_crashes(mut server: Server, addr: SocketAddr, more: &str) {
    let crashes = Depth::of_run().pick(5, 10, 100);
    let story = Arc::new(Story::default());
    let mut contending = Vec::new();
    for number in 0..SESSIONS {
        let locks = open(addr, more).await;
        contending.push(Beside::start(contend(number, locks, Arc::clone(&story))));
    }
    for crash in 0..=crashes {
        story.turns.lock().unwrap().clear();
        eventually("each has had its turn", async || {
            assert!(contending.iter().all(|contender| !contender.is_finished()), "a promise is broken");
            story.turns.lock().unwrap().len() == SESSIONS
        })
        .await;
        if crash == crashes {
            break;
        }
        let ((ready, is_ready), (is_over, over)) = (oneshot::channel(), oneshot::channel());
        *story.crash.lock().unwrap() = Some(Crash { keeps: crash % 2 == 0, ready, over });
        is_ready.await.unwrap();
        server.kill().await.unwrap();
        server.start_again().await.unwrap();
        is_over.send(()).unwrap();
    }
}

async fn contend(number: usize, locks: LockManager, story: Arc<Story>) {
    let lock = locks.lock(NAME).unwrap();
    loop {
        let guard = match lock.acquire().await {
            Ok(guard) => Arc::new(guard),
            Err(error) => {
                assert_eq!(*error.kind(), ErrorKind::Unavailable, "{error:#}");
                continue;
            }
        };
        let now = (Some(guard.token()), Some(Arc::clone(&guard)));
        let (token, before) = std::mem::replace(&mut *story.latest.lock().unwrap(), now);
        assert!(Some(guard.token()) > token, "{} after {token:?}", guard.token());
        let is_held = |guard: &Arc<LockGuard>| guard.ensure_held().is_ok();
        assert!(
            !(before.as_ref().is_some_and(is_held) && is_held(&guard)),
            "two hold: {before:?} and {guard:?}"
        );
        story.turns.lock().unwrap().insert(number);
        tokio::task::yield_now().await;
        let crash = story.crash.lock().unwrap().take();
        let Some(Crash { keeps, ready, over }) = crash else {
            drop(story.latest.lock().unwrap().1.take());
            continue;
        };
        if keeps {
            ready.send(()).unwrap();
            over.await.unwrap();
            // After it the holder knows whether the server has its grant.
            let _ = guard.renew().await;
            drop(story.latest.lock().unwrap().1.take());
        } else {
            drop(story.latest.lock().unwrap().1.take());
            if let Some(guard) = Arc::into_inner(guard) {
                let _ = guard.release().await;
            }
            ready.send(()).unwrap();
            over.await.unwrap();
        }
    }
}
