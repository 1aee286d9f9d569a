//! A library whose contenders stand in one queue with ours, in etcd and in ZooKeeper: the same with each of them.

use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::{LockGuard, LockManager, LockOptions, LostReason, Mode, Revocation, Revoke};
use testbed::{BOUND, Beside, Launch, Process, ProcessErrorKind, Scratch, Server, eventually, within};

use crate::setup::SHORT;

/// The name of every lock here.
pub(crate) const NAME: &str = "n";

/// The namespace of all of ours.
pub(crate) const NAMESPACE: &str = "locks";

/// Nothing here waits for the end of such a session.
pub(crate) const SESSION: Duration = BOUND;

/// For a release to reach the next contender by notification: clients read the queue on their own more seldom.
const AT_ONCE: Duration = Duration::from_secs(10);

/// One of theirs: a program that acquires and releases one lock, as it is told by lines.
pub(crate) struct Peer {
    process: Process,
    lock: String,
    _scratch: Scratch,
}

impl Peer {
    /// Starts a program with the addresses of servers, its session and what it calls the lock; it ends with the test.
    pub(crate) async fn start(
        program: &[String],
        hosts: impl ToString,
        session: Duration,
        lock: &str,
    ) -> Self {
        let scratch = Scratch::new("foreign-peer").unwrap();
        let launch = Launch::new("setpriv", scratch.path()).args(["--pdeathsig", "KILL", "--"]).args(program);
        let launch = launch.args([hosts.to_string(), session.as_secs().to_string()]);
        let process = launch.piped_lines().spawn().unwrap();
        let mut peer = Self { process, lock: lock.to_owned(), _scratch: scratch };
        assert_eq!(peer.answer().await, "ready");
        peer
    }

    pub(crate) async fn ask(&mut self, order: &str) -> String {
        self.process.send_line(order).await.unwrap();
        self.answer().await
    }

    async fn answer(&mut self) -> String {
        self.process.next_line(BOUND).await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Asks for the lock; [`holds`](Self::holds) waits for it.
    pub(crate) async fn asks(&mut self) {
        self.process.send_line(&format!("acquire {}", self.lock)).await.unwrap();
    }

    pub(crate) async fn holds(&mut self) {
        assert_eq!(within(AT_ONCE, "they are told", self.answer()).await, "held");
    }

    pub(crate) async fn releases(&mut self) {
        assert_eq!(self.ask("release").await, "released");
    }

    /// Has not answered.
    pub(crate) async fn is_silent(&mut self) {
        let answer = self.process.next_line(Duration::from_millis(200)).await;
        let silent = answer.as_ref().is_err_and(|error| error.kind() == ProcessErrorKind::TimedOut);
        assert!(silent, "{answer:?}");
    }
}

pub(crate) async fn open<S: Server>(server: &S, ttl: Duration) -> LockManager {
    let (ttl, third) = (ttl.as_millis(), ttl.as_millis() / 3);
    let options = format!("ttl={ttl}ms&op_timeout={third}ms&connect_timeout={}s", BOUND.as_secs());
    leasehold::connect(&S::url(server.addr(), NAMESPACE, &options)).await.unwrap()
}

/// The lock that is held in some way, by a grant of its own each time.
fn lock(locks: &LockManager, mode: Mode) -> leasehold::Lock {
    let options = LockOptions::default().mode(mode);
    locks.lock(NAME).unwrap().options(options).handoff_limit(0)
}

pub(crate) async fn take(locks: &LockManager, mode: Mode) -> LockGuard {
    lock(locks, mode).wait(BOUND).acquire().await.unwrap()
}

async fn is_refused(locks: &LockManager, mode: Mode) -> bool {
    lock(locks, mode).try_acquire().await.unwrap().is_none()
}

/// Waits in a task, as the last of so many in the queue, the holders counted.
pub(crate) async fn waits(locks: &LockManager, mode: Mode, queued: usize) -> Beside<LockGuard> {
    let lock = lock(locks, mode);
    let waiting = Beside::start(async move { lock.acquire().await.unwrap() });
    in_queue(locks, queued).await;
    waiting
}

pub(crate) async fn in_queue(locks: &LockManager, count: usize) {
    eventually(format!("{count} hold or wait"), async || {
        let state = locks.inspect(NAME).await.unwrap();
        state.holders.len() + state.contenders == count
    })
    .await;
}

/// G1, G2 and G3: two of our clients hold, one by one or together, then one of the library, two of our clients, and another of
/// the library. A release wakes the next contender, no contender passes a waiter, and our tokens grow.
pub(crate) async fn each_waits_its_turn<S: Server>(
    server: &S,
    [theirs, last]: &mut [Peer; 2],
    modes: &[Mode],
) {
    let open = async || open(server, SESSION).await;
    let [one, other, third, fourth] = [open().await, open().await, open().await, open().await];
    let mut tokens = Vec::new();
    for mode in modes.iter().copied() {
        let first = take(&one, mode).await;
        let second = waits(&other, mode, 2).await;
        theirs.asks().await;
        in_queue(&one, 3).await;
        assert!(is_refused(&third, mode).await, "{mode} passes one of theirs that waits");
        let behind = [waits(&third, mode, 4).await, waits(&fourth, mode, 5).await];
        last.asks().await;
        in_queue(&one, 6).await;

        tokens.push(first.token());
        first.release().await.unwrap();
        let second = within(AT_ONCE, "the second is told", second).await;
        theirs.is_silent().await;
        tokens.push(second.token());
        second.release().await.unwrap();
        theirs.holds().await;
        assert!(behind.iter().all(|waiting| !waiting.is_finished()), "{mode} beside theirs");
        assert!(is_refused(&other, mode).await, "{mode} beside theirs");
        theirs.releases().await;
        let mut held: Vec<LockGuard> = Vec::new();
        for waiting in behind {
            if mode == Mode::EXCLUSIVE
                && let Some(guard) = held.pop()
            {
                guard.release().await.unwrap();
            }
            held.push(within(AT_ONCE, "we are told", waiting).await);
            tokens.extend(held.last().map(LockGuard::token));
        }
        for guard in held {
            last.is_silent().await;
            guard.release().await.unwrap();
        }
        last.holds().await;
        last.releases().await;
    }
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "tokens do not grow: {tokens:?}");
    in_queue(&one, 0).await;
}

/// One of theirs is shown while it waits and while it holds; it cannot be asked to release, but forced out. So can we, and
/// our release leaves what they hold then.
/// `is_dated` if the store knows since when a lock is held.
pub(crate) async fn each_is_shown_and_forced_out<S: Server>(server: &S, theirs: &mut Peer, is_dated: bool) {
    // Stores count milliseconds.
    let earliest = BootClock::new().wall_time() - Duration::from_millis(1);
    let [one, other] = [open(server, SESSION).await, open(server, SESSION).await];
    // It waits for an answer as long as its lease.
    let admin = open(server, SHORT).await;
    let sharers = [take(&one, Mode::SHARED).await, take(&other, Mode::SHARED).await];
    theirs.asks().await;
    in_queue(&admin, 3).await;
    let state = admin.inspect(NAME).await.unwrap();
    assert!(state.holders.iter().all(|holder| holder.mode == Mode::SHARED && !holder.foreign), "{state:?}");
    assert_eq!(state.contenders, 1);
    assert_eq!(admin.revoke(NAME, Revoke::AT_ONCE).await.unwrap(), Revocation::Released);
    for guard in sharers {
        assert_eq!(guard.lost().await, LostReason::Revoked);
    }
    theirs.holds().await;
    let earlier = state.holders[1].since;
    let times = earliest..=BootClock::new().wall_time();
    assert_eq!(earlier.map(|since| times.contains(&since)), is_dated.then_some(true), "{state:?}");
    is_theirs(&admin, earlier).await;
    theirs.releases().await;

    let ours = take(&one, Mode::EXCLUSIVE).await;
    theirs.asks().await;
    in_queue(&admin, 2).await;
    assert_eq!(admin.revoke(NAME, Revoke::Force).await.unwrap(), Revocation::Released);
    theirs.holds().await;
    let lost = ours.release().await.expect_err("it is theirs");
    assert!(lost.lost_reason().is_some(), "{lost:?}");
    is_theirs(&admin, earlier).await;

    let waiting = waits(&one, Mode::EXCLUSIVE, 2).await;
    assert_ne!(admin.revoke(NAME, Revoke::AT_ONCE).await.unwrap(), Revocation::Released);
    assert!(!waiting.is_finished(), "two hold");
    assert_eq!(admin.revoke(NAME, Revoke::Force).await.unwrap(), Revocation::Released);
    within(AT_ONCE, "we hold after they were forced out", waiting).await.release().await.unwrap();
    in_queue(&admin, 0).await;
}

/// They hold alone, later than `earlier` where the store knows since when.
async fn is_theirs(admin: &LockManager, earlier: Option<std::time::SystemTime>) {
    let shown = admin.list("").await.unwrap().pop().expect("they hold");
    let [holder] = &shown.holders[..] else { panic!("{shown:?}") };
    assert!(holder.foreign && holder.mode == Mode::EXCLUSIVE, "{holder:?}");
    assert!(holder.since > earlier || (holder.since, earlier) == (None, None), "{holder:?}");
    assert_eq!(shown.contenders, 0);
}
