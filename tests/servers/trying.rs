//! Many clients that try again and again over a slow network: a lock that is free does not stay so.
//!
//! At depth `soak` they try for longer, and how much of that time the lock is held is judged.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::backend::Load;
use leasehold::clock::{BootClock, Clock, Moment};
use leasehold::{LockManager, Mode as Kind};
use testbed::redis::Server as Redis;
use testbed::{Beside, Depth, Mode, Server, pass};
use tokio::sync::Barrier;

use crate::fixture::{LONG, NAME, Scene, options};
use crate::store::Store;

/// What somebody did, between these two times by its own account.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: Moment,
    to: Moment,
    kind: Kind,
}

impl Span {
    fn meets(&self, other: &Self) -> bool {
        self.from <= other.to && other.from <= self.to
    }
}

/// What came of the tries.
#[derive(Debug, Default)]
struct Story {
    /// From the answer until the release is sent.
    held: Vec<Span>,
    /// From the request until the release is confirmed.
    stored: Vec<Span>,
    refused: Vec<Span>,
}

pub(crate) async fn exclusive<S: Store>(scene: Scene<S>) {
    try_in(scene, &[Kind::EXCLUSIVE]).await;
}

pub(crate) async fn shared<S: Store>(scene: Scene<S>) {
    try_in(scene, &[Kind::SHARED, Kind::EXCLUSIVE]).await;
}

pub(crate) async fn permits<S: Store>(scene: Scene<S>) {
    try_in(scene, &[Kind::permits(3, 3).unwrap()]).await;
}

pub(crate) async fn some_permits<S: Store>(scene: Scene<S>) {
    let some = |weight| Kind::permits(weight, 3).unwrap();
    try_in(scene, &[some(1), some(2), some(3), Kind::SHARED]).await;
}

/// Clients try by turns in these modes. None is refused but by a holder, and each try and each grant costs only
/// so many requests.
async fn try_in<S: Store>(scene: Scene<S>, kinds: &[Kind]) {
    let server = S::start().await.unwrap();
    let proxy = server.proxy().unwrap();
    proxy.set_both(Mode::delay(ROUND_TRIP / 2)).await;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(scene.behind(&proxy, LONG).await);
    }
    let limits = Limits { trying: S::TRYING, lingers: S::LINGERS && kinds.len() > 1 };
    try_all(S::NAME, &clients, kinds, limits, async || server.requests().await).await;
}

/// The same with three Redis servers, each as far away. Votes of tries that meet refuse each other.
pub(crate) async fn on_a_quorum() {
    let (mut servers, mut proxies, mut clients) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        let server = <Redis as Server>::start().await.unwrap();
        let proxy = server.proxy().unwrap();
        proxy.set_both(Mode::delay(ROUND_TRIP / 2)).await;
        servers.push(server);
        proxies.push(proxy);
    }
    let addrs: Vec<_> = proxies.iter().map(|proxy| proxy.addr().to_string()).collect();
    let url = format!("redis+quorum://{}?{}&pause_after_restart=0s", addrs.join(","), options(LONG));
    for _ in 0..CLIENTS {
        clients.push(leasehold::connect(&url).await.unwrap());
    }
    let requests = async || {
        let mut sum = 0;
        for server in &servers {
            sum += server.requests().await;
        }
        sum
    };
    let limits = Limits { trying: [9, 12], lingers: true };
    try_all("redis-quorum", &clients, &[Kind::EXCLUSIVE], limits, requests).await;
}

/// What a store promises of tries.
struct Limits {
    /// The requests of a try, and of a grant with its release.
    trying: [u64; 2],
    /// A try may be refused by a client that tries for the lock alone.
    lingers: bool,
}

async fn try_all(
    name: &str,
    clients: &[LockManager],
    kinds: &[Kind],
    Limits { trying: limits, lingers }: Limits,
    requests: impl AsyncFn() -> u64,
) {
    let depth = Depth::of_run();
    let before = requests().await;
    let (story, start) = (Arc::new(Mutex::new(Story::default())), Arc::new(Barrier::new(CLIENTS)));
    let until = now() + depth.pick(SHORT, SHORT, MINUTE);
    let trying = clients.iter().zip(kinds.iter().cycle()).enumerate().map(|(place, (client, kind))| {
        let client = Client { locks: client.clone(), kind: *kind, story: Arc::clone(&story) };
        let start = Arc::clone(&start);
        Beside::start(async move {
            start.wait().await;
            pass(PAUSE * place as u32 / CLIENTS as u32).await;
            client.tries_until(until).await;
        })
    });
    for client in trying.collect::<Vec<_>>() {
        client.end_within(until.since(now()) + LONG, "the clients stop").await;
    }
    let requests = requests().await - before;
    let Story { held, stored, refused } = &*story.lock().unwrap();
    let share = is_held(held);
    println!(
        "{} {kinds:?}: {} refused, {} held, {:.0} % of the time, {requests} requests",
        name,
        refused.len(),
        held.len(),
        100.0 * share,
    );
    for span in refused {
        // Readers may be refused by a writer who came second.
        let is_writer = |other: &&Span| !std::ptr::eq(*other, span) && other.kind == Kind::EXCLUSIVE;
        let also = refused.iter().filter(|other| lingers && is_writer(other));
        let others = stored.iter().chain(also).filter(|other| span.meets(other)).map(|other| other.kind);
        assert!(!others.collect::<Load>().admits(span.kind), "{span:?} was refused by nobody who held");
    }
    let [try_costs, grant_costs] = limits.map(|count| count as usize);
    // What a client does at first is counted, too.
    let most = CLIENTS + try_costs * refused.len() + grant_costs * held.len();
    assert!(requests as usize <= most, "{requests} requests, at most {most}");
    assert!(depth != Depth::Soak || share >= 0.75, "held {:.0} % of the time", 100.0 * share);
}

/// One that tries.
struct Client {
    locks: LockManager,
    kind: Kind,
    story: Arc<Mutex<Story>>,
}

impl Client {
    async fn tries_until(&self, until: Moment) {
        let lock = match self.kind {
            Kind::EXCLUSIVE => self.locks.lock(NAME).unwrap(),
            Kind::SHARED => self.locks.lock(NAME).unwrap().shared(),
            kind => self.locks.lock(NAME).unwrap().permits(kind.weight(), kind.capacity()),
        };
        let span = |from, to| Span { from, to, kind: self.kind };
        while now() < until {
            let asked = now();
            let Some(guard) = lock.try_acquire().await.unwrap() else {
                self.story.lock().unwrap().refused.push(span(asked, now()));
                pass(PAUSE).await;
                continue;
            };
            let granted = now();
            pass(HOLD).await;
            guard.ensure_held().unwrap();
            let released = now();
            guard.release().await.unwrap();
            let mut story = self.story.lock().unwrap();
            story.held.push(span(granted, released));
            story.stored.push(span(asked, now()));
        }
    }
}

/// For how much of the time somebody holds, from the first grant to the last release.
fn is_held(held: &[Span]) -> f64 {
    let mut spans = held.to_vec();
    spans.sort_by_key(|span| span.from);
    let Some(first) = spans.first() else {
        return 0.0;
    };
    let (from, mut until, mut sum) = (first.from, first.from, Duration::ZERO);
    for Span { from, to, .. } in spans {
        sum += to.since(until.max(from));
        until = until.max(to);
    }
    sum.as_secs_f64() / until.since(from).as_secs_f64()
}

fn now() -> Moment {
    BootClock::new().now()
}

const CLIENTS: usize = 32;
const ROUND_TRIP: Duration = Duration::from_millis(10);
/// Between a try that was refused and the next.
const PAUSE: Duration = Duration::from_millis(100);
const HOLD: Duration = Duration::from_millis(100);
const SHORT: Duration = Duration::from_secs(2);
const MINUTE: Duration = Duration::from_secs(60);
