//! Sessions and nodes that are lost, and replies that never come.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use leasehold_core::backend::LockState;
use leasehold_core::{ErrorKind, FencingToken, LockManager, LostReason, Result};
use testbed::Mode;
use testbed::zookeeper::{Op, Setup};
use tokio::runtime::Builder;
use zookeeper_client::{Acls, CreateMode};

use crate::fixture::{
    BOUND, Beside, Fixture, Space, TTL, eventually, hold_aside, noted, now, proxy, server, within,
};
use crate::switch::Switch;

/// The next client holds at the guard's deadline, not as soon as the loss is known.
pub(crate) async fn a_session_that_we_end_keeps_its_locks_until_the_deadline(fixture: Arc<Fixture>) {
    let server = fixture.server().await;
    let space = fixture.space().await;
    let locks = space.manager().await;
    let node = format!("{}/leasehold/%sessions/{:016x}", space.chroot, space.session(server).await);
    let rival = space.manager().await;
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    let lock = rival.lock("a").unwrap();
    let waiting = Beside::start(async move { (lock.acquire().await.unwrap(), now()) });
    let outside = space.outside().await;
    outside.has(&space.directory("a"), 2).await;
    let deadline = now() + guard.remaining();
    outside.client.delete(&node, None).await.unwrap();
    assert_eq!(guard.lost().await, LostReason::SessionLost);
    let (next, granted) = waiting.end("it holds").await;
    assert!(granted >= deadline, "two holders, if the guard had been told a little later");
    assert!(next.token() > guard.token());
}

pub(crate) async fn a_caller_who_is_not_polled_keeps_no_session(fixture: Arc<Fixture>) {
    let server = fixture.server().await;
    let space = fixture.space().await;
    let locks = space.manager().await;
    let node = format!("{}/leasehold/%sessions/{:016x}", space.chroot, space.session(server).await);
    let rival = space.manager().await;
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    let waiting = hold_aside(&rival, "a");
    let outside = space.outside().await;
    outside.has(&space.directory("a"), 2).await;
    let other = locks.lock("b").unwrap();
    let mut asking = std::pin::pin!(other.acquire());
    assert!(asking.as_mut().now_or_never().is_none(), "its request is under way");
    outside.client.delete(&node, None).await.unwrap();
    assert_eq!(guard.lost().await, LostReason::SessionLost);
    let next = waiting.end("it holds").await;
    asking.await.unwrap().release().await.unwrap();
    next.release().await.unwrap();
}

pub(crate) async fn a_waiter_hears_what_keeps_its_session_from_opening(fixture: Arc<Fixture>) {
    let server = fixture.server().await;
    let space = fixture.space().await;
    let waiter = space.manager().await;
    let session = space.session(server).await;
    let holder = space.manager().await;
    let guard = holder.lock("a").unwrap().acquire().await.unwrap();
    let lock = waiter.lock("a").unwrap();
    let waiting = Beside::start(async move { lock.acquire().await.map(drop).expect_err("it cannot go on") });
    let outside = space.outside().await;
    outside.has(&space.directory("a"), 2).await;
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let base = format!("{}/leasehold/%token_base", space.chroot);
    outside.client.create(&base, b"no number", &options).await.unwrap();
    server.end_session(session).await.unwrap();
    let told = waiting.end("it is told").await;
    assert!(told.to_string().contains("%token_base"), "{told}");
    assert_eq!(*told.kind(), ErrorKind::Protocol);
    outside.client.delete(&base, None).await.unwrap();
    let token = guard.token();
    guard.release().await.unwrap();
    assert!(waiter.lock("a").unwrap().acquire().await.unwrap().token() > token);
}

pub(crate) async fn a_session_that_was_exchanged_is_a_loss(fixture: Arc<Fixture>) {
    let server = fixture.server().await;
    let space = fixture.space().await;
    let switch = Switch::start(server.addr()).await;
    let locks = space.by(switch.addr()).manager().await;
    let rival = space.manager().await;
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    let waiting = hold_aside(&rival, "a");
    space.outside().await.has(&space.directory("a"), 2).await;
    switch.forget_sessions();
    let rivals = waiting.end("it holds").await;
    guard.ensure_held().expect_err("two holders");
    assert!(rivals.token() > guard.token());
    let waiting = hold_aside(&locks, "a");
    rivals.release().await.unwrap();
    assert!(waiting.end("it holds").await.token() > guard.token());
}

pub(crate) async fn a_lock_that_changes_hands_all_the_time_is_shown(fixture: Arc<Fixture>) {
    let space = fixture.space().await;
    let proxy = proxy(fixture.server().await);
    let administrator = patient(&space.by(proxy.addr())).await;
    let mut users = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let locks = space.manager().await;
        users.spawn(async move {
            loop {
                locks.lock("a").unwrap().acquire().await.unwrap().release().await.unwrap();
            }
        });
    }
    proxy.set_both(Mode::delay(Duration::from_millis(30))).await;
    for _ in 0..5 {
        administrator.inspect("a").await.unwrap();
        administrator.list("").await.unwrap();
    }
    users.shutdown().await;
}

/// A watch outlives its directory and its session. Only a new stream asks for the leader's state.
pub(crate) async fn a_watch_outlives_its_directory_and_its_session(fixture: Arc<Fixture>) {
    let server = server(reaping(100)).await;
    let space = fixture.space_on([server.addr()]);
    let proxy = proxy(&server);
    let onlooker = patient(&space.by(proxy.addr())).await;
    let session = space.session(&server).await;
    let (locks, outside) = (patient(&space).await, space.outside().await);
    let asked = noted(&proxy).await;
    let shows = async |watch: &mut BoxStream<'static, _>, token: Option<FencingToken>| loop {
        let item: Option<Result<LockState>> = within(BOUND, "the watch goes on", watch.next()).await;
        // The request that a session's end has met is told as an error.
        if let Ok(state) = item.unwrap()
            && state.holders.first().and_then(|holder| holder.token) == token
        {
            break;
        }
    };
    let mut watch = onlooker.watch("a").unwrap();
    for round in 0..3 {
        let guard = locks.lock("a").unwrap().acquire().await.unwrap();
        shows(&mut watch, Some(guard.token())).await;
        asked.lock().clear();
        guard.release().await.unwrap();
        shows(&mut watch, None).await;
        assert!(!asked.lock().contains(&SYNC), "{:?}", asked.lock());
        shows(&mut onlooker.watch("a").unwrap(), None).await;
        assert!(asked.lock().contains(&SYNC), "{:?}", asked.lock());
        eventually("the directory is gone", async || {
            outside.client.check_stat(&space.directory("a")).await.unwrap().is_none()
        })
        .await;
        if round == 1 {
            server.end_session(session).await.unwrap();
        }
    }
}

/// The request for the leader's state.
const SYNC: Op = Op::Other(9);

/// A session so long that a busy machine does not end it.
async fn patient(space: &Space) -> LockManager {
    space.manager_with(|builder| builder.ttl(patience())).await
}

fn patience() -> Duration {
    BOUND / 2
}

/// A server that removes empty containers every `milliseconds`.
fn reaping(milliseconds: u32) -> Setup {
    Setup::new()
        .property("znode.container.checkIntervalMs", milliseconds)
        .property("znode.container.maxPerMinute", 1_000_000)
}

pub(crate) async fn a_runtime_that_ends_panics_nobody(fixture: Arc<Fixture>) {
    static PANICS: AtomicU64 = AtomicU64::new(0);
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let is_of_a_watch =
            panic.payload().downcast_ref::<String>().is_some_and(|said| said.contains("Canceled"));
        PANICS.fetch_add(u64::from(is_of_a_watch), Ordering::Relaxed);
        others(panic);
    }));
    let space = fixture.space().await;
    let (holds, outside) = (space.manager().await, space.outside().await);
    for round in 0..4 {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let config = space.config();
        let opening = runtime.spawn(async { LockManager::builder(config).ttl(TTL).build().await.unwrap() });
        let waits = opening.await.unwrap();
        let names: Vec<_> = (0..8).map(|name| format!("{round}-{name}")).collect();
        let (mut held, mut waiting) = (Vec::new(), Vec::new());
        for name in &names {
            held.push(holds.lock(name).unwrap().acquire().await.unwrap());
            let lock = waits.lock(name).unwrap();
            waiting.push(Beside::start(async move { lock.acquire().await }));
        }
        for name in &names {
            outside.has(&space.directory(name), 2).await;
        }
        tokio::task::spawn_blocking(move || drop(runtime)).await.unwrap();
        for waiting in waiting {
            assert_eq!(*waiting.end("it hears").await.unwrap_err().kind(), ErrorKind::Closed);
        }
    }
    assert_eq!(PANICS.load(Ordering::Relaxed), 0);
}
