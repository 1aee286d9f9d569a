use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use leasehold_core::clock::{BootClock, Clock, Moment};
use leasehold_core::{LockName, Timing};

use super::*;
use crate::directory::Request;

fn env() -> Env {
    Env::new(Timing::for_ttl(Duration::from_secs(3))).unwrap()
}

fn session(config: &FileConfig) -> (Session, BoxStream<'static, StoreEvent>) {
    session_in(env(), config)
}

fn session_in(env: Env, config: &FileConfig) -> (Session, BoxStream<'static, StoreEvent>) {
    let (tell, events) = Events::new();
    (Session::open(config, env, tell).unwrap(), events.stream())
}

/// A request may come while its grant is on the disk and not held yet: it waits for that. One to a grant
/// that has ended, or that is not ours, does not.
#[tokio::test]
async fn a_request_waits_for_its_grant() {
    let scratch = tempfile::tempdir().unwrap();
    let config = FileConfig::new(scratch.path());
    let ((session, mut events), (admin, _)) = (session(&config), session(&config));
    let name = LockName::new("a").unwrap();
    let (key, ttl) = (Key::of(&name), session.env.timing().ttl);
    let request = AcquireRequest::new(name.clone(), session.env.owner_id(), ttl);
    let Some(Ok(Ok(grant))) = session.attempt(&request, &key).now_or_never() else {
        panic!("the lock is free")
    };
    let recorded = std::mem::take(&mut session.state.lock().holds);
    let held = session.directory.live(&name).unwrap().unwrap();
    let within = Duration::from_secs(60);
    let wanted = Request::to_holder(key, &held);
    session.directory.ask(&admin.env, &wanted, within).unwrap();
    let stale = Request { counter: held.counter + 1, ..wanted.clone() };
    session.directory.ask(&admin.env, &stale, within).unwrap();
    let requests = || session.directory.requests(session.id).unwrap();
    assert_eq!(requests(), std::slice::from_ref(&wanted), "taken back by who asked");

    session.directory.post(&admin.env, &stale, within).unwrap();
    session.check_requests();
    assert_eq!(requests(), [wanted]);
    assert_eq!(events.next().now_or_never(), None);

    session.state.lock().holds = recorded;
    session.check_requests();
    let asked = StoreEvent::RevocationRequested { name, counter: grant.counter, within };
    assert_eq!(events.next().now_or_never(), Some(Some(asked)));
    assert!(requests().is_empty());
    session.check_requests();
    assert_eq!(events.next().now_or_never(), None, "told once");
}

/// Removes a file once, when it is asked for the time that a record shows.
#[derive(Debug, Default)]
struct RemovingClock {
    file: Mutex<Option<PathBuf>>,
}

impl Clock for RemovingClock {
    fn now(&self) -> Moment {
        BootClock::new().now()
    }

    fn sleep_until(&self, at: Moment) -> BoxFuture<'static, ()> {
        BootClock::new().sleep_until(at)
    }

    fn wall_time(&self) -> SystemTime {
        self.file.lock().take().map_or(Ok(()), fs::remove_file).unwrap();
        SystemTime::UNIX_EPOCH
    }
}

/// A file that is removed while a grant is recorded in it is none: the next one is granted (file.session-2).
#[tokio::test]
async fn file_removed_under_a_grant_is_not_granted() {
    let scratch = tempfile::tempdir().unwrap();
    let clock = Arc::new(RemovingClock::default());
    let env = env().with_clock(Arc::<RemovingClock>::clone(&clock));
    let (session, _) = session_in(env, &FileConfig::new(scratch.path()));
    let name = LockName::new("a").unwrap();
    let acquire = async || {
        let request = AcquireRequest::new(name.clone(), session.env.owner_id(), session.env.timing().ttl);
        session.acquire(&request).await.unwrap()
    };
    let first = acquire().await;
    session.release(&first).unwrap();
    *clock.file.lock() = Some(session.directory.lock_path(&Key::of(&name)));
    let next = acquire().await;
    assert!(session.is_held(next.lease.id));
}
