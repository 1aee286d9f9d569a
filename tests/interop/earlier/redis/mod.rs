//! Redis: the earlier version's scripts, as they were.

mod sharing;

use std::time::Duration;

use leasehold::LostReason;
use leasehold::clock::{BootClock, Clock};
use libtest_mimic::Trial;
use testbed::redis::{Client, Reply, Server, is_push};
use testbed::{BOUND, Direction, Mode, eventually, trial, within};

use crate::ours::{GRACE, LONG, open, options, queued, revoke, take};
use crate::played::{NAME, Process, Store};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("redis::each_renews_beside_the_other", each_renews_beside_the_other),
        trial("redis::who_gives_no_grace_is_heard_by_a_renewal", who_gives_no_grace_is_heard_by_a_renewal),
    ]
    .into_iter()
    .chain(sharing::trials())
    .collect()
}

macro_rules! frozen {
    ($($part:literal),*) => {
        concat!($(include_str!(concat!($part, ".lua"))),*)
    };
}

// As the earlier version put them together.
const ACQUIRE: &str = frozen!("acquire_free", "grant", "queue", "acquire");
const REFRESH: &str = frozen!("grant", "queue", "refresh");
const RELEASE: &str = frozen!("release_free", "grant", "queue", "release");
const REVOKE: &str = frozen!("grant", "queue", "revoke");
const INSPECT: &str = frozen!("grant", "queue", "inspect");

/// What its documents have an administrator allow.
const RIGHTS: &str = "on >secret resetkeys ~billing:* resetchannels &billing:inbox:* nocommands +evalsha +eval \
    +script|load +subscribe +publish +scan +time +get +exists +set +del +pttl +pexpire +zadd +zrem +zrange \
    +zrevrange +zscore +hset +hget +hdel";

/// The key of the lock, and those beside it.
const KEYS: [&str; 4] = ["billing:{a}", "billing:{a}:q", "billing:{a}:e", "billing:{a}:n"];

/// A server with the user of the documents.
pub(crate) struct Scripts(Server);

impl Scripts {
    fn url_by(addr: std::net::SocketAddr, options: &str) -> String {
        format!("redis://billing:secret@{addr}?prefix=billing&{options}")
    }

    async fn client(&self) -> Client {
        let mut client = self.0.client().await.unwrap();
        let reply = client.command(&["AUTH", "billing", "secret"]).await.unwrap();
        assert_eq!(reply.text().as_deref(), Some("OK"));
        client
    }
}

impl Store for Scripts {
    const NAME: &str = "redis";
    const TTL: Duration = Duration::from_secs(2);
    const ORDERED: bool = true;
    type Process = Earlier;

    async fn start() -> Self {
        let server = testbed::redis::Settings::new().start().await.unwrap();
        let words: Vec<_> = ["ACL", "SETUSER", "billing"].into_iter().chain(RIGHTS.split(' ')).collect();
        assert_eq!(server.command(&words).await.unwrap().text().as_deref(), Some("OK"));
        Self(server)
    }

    fn url(&self, options: &str) -> String {
        Self::url_by(self.0.addr(), options)
    }

    async fn process(&self, ttl: Duration) -> Earlier {
        let (mut ear, client) = (self.client().await, self.client().await);
        let id = self.0.command(&["INCR", "processes"]).await.unwrap().integer().unwrap();
        let inbox = format!("{id:032x}");
        ear.command(&["SUBSCRIBE", &format!("billing:inbox:{inbox}")]).await.unwrap();
        Earlier { owner: format!("{id:031x}f"), inbox, ttl: ttl.as_millis().to_string(), client, ear }
    }

    async fn messages(&self) -> usize {
        let there = self.0.command(&["EXISTS", KEYS[2]]).await.unwrap();
        usize::from(there == Reply::Integer(1))
    }
}

/// One contender, and what its inbox hears.
pub(crate) struct Earlier {
    owner: String,
    inbox: String,
    ttl: String,
    client: Client,
    ear: Client,
}

impl Earlier {
    async fn run(&mut self, script: &str, arguments: &[&str]) -> Reply {
        let mut words = vec!["EVAL", script, "4"];
        words.extend(KEYS);
        words.push("billing:inbox:");
        words.extend(arguments);
        self.client.command(&words).await.unwrap()
    }

    /// 1 if it holds, 0 if it waits, 2 if it is to let go, 3 if it has nothing; and the counter if it holds.
    async fn refresh(&mut self) -> (i64, Option<u64>) {
        let (owner, ttl, inbox) = (self.owner.clone(), self.ttl.clone(), self.inbox.clone());
        let answers = self.run(REFRESH, &[&inbox, &owner, &ttl]).await.elements();
        let answer = answers.into_iter().next().unwrap().elements();
        let counter = answer.get(1).and_then(Reply::text).map(|counter| counter.parse().unwrap());
        (answer[0].integer().unwrap(), counter)
    }

    /// Whether it held.
    async fn release(&mut self) -> bool {
        let owner = self.owner.clone();
        self.run(RELEASE, &[&owner]).await == Reply::Integer(1)
    }

    /// The next message in its inbox, as it reads them: the number in one of that kind.
    async fn hears(&mut self, news: &str) -> u64 {
        let message = within(BOUND, "it is told", self.ear.reply()).await.unwrap().elements();
        let text = message[2].text().unwrap();
        let words: Vec<_> = text.splitn(4, ' ').collect();
        assert_eq!([words[0], words[1], words[3]], [news, &*self.owner, KEYS[0]], "{text}");
        words[2].parse().unwrap()
    }
}

impl Process for Earlier {
    async fn enters(&mut self) -> Option<u64> {
        let (owner, ttl, inbox) = (self.owner.clone(), self.ttl.clone(), self.inbox.clone());
        let answer = self.run(ACQUIRE, &[&owner, &ttl, "1", &inbox, &format!("7 {}", Scripts::LABEL)]).await;
        let counter = answer.integer();
        assert!(counter.is_some() || answer.elements()[0] == Reply::Integer(0));
        counter.map(i64::cast_unsigned)
    }

    async fn is_next(&mut self) -> u64 {
        let counter = self.hears("granted").await;
        assert_eq!(self.refresh().await, (1, Some(counter)));
        counter
    }

    async fn outlasts(&mut self) -> u64 {
        let mut granted = None;
        eventually("a refresh finds the lock free", async || {
            let (state, counter) = self.refresh().await;
            granted = counter.filter(|_| state == 1);
            granted.is_some()
        })
        .await;
        granted.unwrap()
    }

    async fn leaves(&mut self) {
        assert!(self.release().await);
    }

    async fn sees_a_holder(&mut self) -> bool {
        let shown = self.run(INSPECT, &[]).await.elements().remove(0).elements();
        shown[1] == Reply::Integer(1)
    }

    async fn is_asked(&mut self) {
        self.hears("revoked").await;
        assert_eq!(self.refresh().await.0, 2);
    }

    async fn asks(&mut self) -> Option<u64> {
        let inbox = self.inbox.clone();
        assert_eq!(self.run(REVOKE, &[&inbox, "0"]).await.elements()[0], Reply::Integer(1));
        None
    }

    async fn ends(self) {}
}

/// The one that holds stays the holder while the other asks, refreshes and gives up.
async fn each_renews_beside_the_other() {
    let store = Scripts::start().await;
    let (ttl, clock) = (3 * Scripts::TTL, BootClock::new());
    let locks = open(&store.url(&options(ttl))).await;
    let mut old = store.process(ttl).await;
    let guard = take(&locks).await;
    assert_eq!(old.enters().await, None);
    let ends = clock.now() + guard.remaining();
    eventually("the lease that it has now would be over", async || {
        assert_eq!(old.refresh().await.0, 0);
        clock.now() > ends
    })
    .await;
    guard.ensure_held().unwrap();
    assert!(!old.release().await);
    guard.release().await.unwrap();

    old.enters().await.expect("it is free");
    let waiting = queued(&locks, 0, &locks).await;
    let ends = clock.now() + ttl;
    eventually("a lease would be over", async || {
        assert_eq!(old.refresh().await.0, 1);
        clock.now() > ends
    })
    .await;
    assert!(!waiting.is_finished());
    old.leaves().await;
    waiting.end("we hold after it").await.release().await.unwrap();
}

/// Where no message arrives its note replaces the one of who gave a grace.
async fn who_gives_no_grace_is_heard_by_a_renewal() {
    let store = Scripts::start().await;
    let proxy = testbed::Server::proxy(&store.0).unwrap();
    // A renewal is waited for.
    let a = open(&Scripts::url_by(proxy.addr(), &options(3 * Scripts::TTL))).await;
    let b = open(&store.url(&options(LONG))).await;
    let mut old = store.process(LONG).await;
    let guard = take(&a).await;
    proxy.set(Direction::ServerToClient, Mode::drop_frames(is_push)).await;
    let asked = revoke(&b, GRACE);
    eventually("it is noted", async || store.messages().await == 1).await;
    old.asks().await;
    proxy.dropped(Direction::ServerToClient, 2).await;
    asked.end("it has let go").await;
    assert_eq!(within(BOUND, "it is lost", guard.lost()).await, LostReason::Revoked);
    assert!(a.inspect(NAME).await.unwrap().holder().is_none());
}
