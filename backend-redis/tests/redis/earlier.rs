//! Managers of an earlier version on the same keys: its scripts, as they were, take turns with ours.

use leasehold_core::{LockManager, Revoke};
use testbed::redis::{Client, Reply, Server, is_push};
use testbed::{Direction, Mode};

use crate::revocation::{Asking, GRACE, is_asked};
use crate::rig::{
    BOUND, KEY, LONG, NAME, TTL, Waiter, assert_lost, command, direct, eventually, exists, hold, now, open,
    open_for, proxy, server, trials, via, within,
};

trials![
    each_waits_for_the_other_in_turn,
    each_renews_beside_the_other,
    each_passes_over_the_others_dead,
    each_asks_the_other_to_let_go,
    a_holder_that_knows_no_grace_is_asked,
    who_gives_no_grace_is_heard_at_once,
    who_gives_no_grace_is_heard_by_a_renewal,
];

macro_rules! frozen {
    ($($part:literal),*) => {
        concat!($(include_str!(concat!("../../../tests/interop/earlier/redis/", $part, ".lua"))),*)
    };
}

// As the earlier version put them together.
const ACQUIRE: &str = frozen!("acquire_free", "grant", "queue", "acquire");
const REFRESH: &str = frozen!("grant", "queue", "refresh");
const RELEASE: &str = frozen!("release_free", "grant", "queue", "release");
const REVOKE: &str = frozen!("grant", "queue", "revoke");
const INSPECT: &str = frozen!("grant", "queue", "inspect");

/// One contender of the earlier version, and what its inbox hears.
struct Earlier {
    owner: String,
    inbox: String,
    ttl: String,
    client: Client,
    ear: Client,
}

impl Earlier {
    async fn new(server: &Server, id: u8, ttl: std::time::Duration) -> Self {
        let inbox = format!("{id:032x}");
        let mut ear = server.client().await.unwrap();
        ear.command(&["SUBSCRIBE", &format!("leasehold:inbox:{inbox}")]).await.unwrap();
        let (owner, ttl) = (format!("{id:031x}f"), ttl.as_millis().to_string());
        Self { owner, inbox, ttl, client: server.client().await.unwrap(), ear }
    }

    async fn run(&mut self, script: &str, arguments: &[&str]) -> Reply {
        let keys = [KEY.to_owned(), format!("{KEY}:q"), format!("{KEY}:e"), format!("{KEY}:n")];
        let mut words = vec!["EVAL", script, "4"];
        words.extend(keys.iter().map(String::as_str));
        words.push("leasehold:inbox:");
        words.extend(arguments);
        self.client.command(&words).await.unwrap()
    }

    /// The counter if it has the lock now; otherwise it waits.
    async fn acquire(&mut self) -> Option<i64> {
        let (owner, ttl, inbox) = (self.owner.clone(), self.ttl.clone(), self.inbox.clone());
        let answer = self.run(ACQUIRE, &[&owner, &ttl, "1", &inbox, "7 earlier"]).await;
        let counter = answer.integer();
        assert!(counter.is_some() || answer.elements()[0] == Reply::Integer(0));
        counter
    }

    /// 1 if it holds, 0 if it waits, 2 if it is to let go, 3 if it has nothing.
    async fn refresh(&mut self) -> i64 {
        let (owner, ttl, inbox) = (self.owner.clone(), self.ttl.clone(), self.inbox.clone());
        let answers = self.run(REFRESH, &[&inbox, &owner, &ttl]).await.elements();
        answers.into_iter().next().unwrap().elements()[0].integer().unwrap()
    }

    async fn release(&mut self) -> Reply {
        let owner = self.owner.clone();
        self.run(RELEASE, &[&owner]).await
    }

    /// The next message in its inbox, as it reads them: the number in one of that kind.
    async fn hears(&mut self, news: &str) -> i64 {
        let message = within(BOUND, "it is told", self.ear.reply()).await.unwrap().elements();
        let text = message[2].text().unwrap();
        let words: Vec<_> = text.splitn(4, ' ').collect();
        assert_eq!([words[0], words[1], words[3]], [news, &*self.owner, KEY], "{text}");
        words[2].parse::<u64>().unwrap().try_into().unwrap()
    }

    /// The counter that its inbox is told with its grant.
    async fn is_granted(&mut self) -> i64 {
        self.hears("granted").await
    }

    /// Asks whoever holds to let go.
    async fn asks(&mut self) {
        let inbox = self.inbox.clone();
        assert_eq!(self.run(REVOKE, &[&inbox, "0"]).await.elements()[0], Reply::Integer(1));
    }
}

fn counter(guard: &leasehold_core::LockGuard) -> i64 {
    i64::try_from(guard.token().counter()).unwrap()
}

/// Exclusion, and hand-off by message in both directions, in order of arrival; tokens grow.
async fn each_waits_for_the_other_in_turn() {
    let server = server().await;
    let locks = [open_for(direct(&server), LONG).await, open_for(direct(&server), LONG).await];
    let mut old = [Earlier::new(&server, 1, LONG).await, Earlier::new(&server, 2, LONG).await];
    let mut last = old[0].acquire().await.expect("it is free");
    assert!(locks[0].lock(NAME).unwrap().try_acquire().await.unwrap().is_none());
    let first = Waiter::queued(&locks[0], 0, &locks[1]).await;
    assert_eq!(old[1].acquire().await, None);
    let third = Waiter::queued(&locks[1], 2, &locks[0]).await;

    let mut grows = |counter: i64| {
        assert!(last < counter);
        last = counter;
    };
    assert_eq!(old[0].release().await, Reply::Integer(1));
    let guard = first.held().await;
    grows(counter(&guard));
    assert_eq!(old[0].acquire().await, None);
    assert_eq!(old[1].refresh().await, 0);
    guard.release().await.unwrap();
    grows(old[1].is_granted().await);
    assert_eq!(old[1].refresh().await, 1);
    assert_eq!(old[1].release().await, Reply::Integer(1));
    let guard = third.held().await;
    grows(counter(&guard));
    guard.release().await.unwrap();
    grows(old[0].is_granted().await);
    assert_eq!(old[0].release().await, Reply::Integer(1));
    grows(counter(&hold(&locks[0]).await));
}

/// The one that holds stays the holder while the other asks, refreshes and gives up.
async fn each_renews_beside_the_other() {
    let server = server().await;
    let locks = open(direct(&server)).await;
    let mut old = Earlier::new(&server, 1, TTL).await;
    let guard = hold(&locks).await;
    assert_eq!(old.acquire().await, None);
    let deadline = now() + guard.remaining();
    eventually("the guard was renewed twice", async || {
        assert_eq!(old.refresh().await, 0);
        now() + guard.remaining() > deadline + TTL / 2
    })
    .await;
    guard.ensure_held().unwrap();
    assert_eq!(old.release().await, Reply::Integer(2));
    guard.release().await.unwrap();

    assert!(old.acquire().await.is_some());
    let waiting = Waiter::queued(&locks, 0, &locks).await;
    let until = now() + 2 * TTL;
    eventually("two ttls have passed", async || {
        assert_eq!(old.refresh().await, 1);
        now() > until
    })
    .await;
    assert!(waiting.is_waiting());
    assert_eq!(old.release().await, Reply::Integer(1));
    waiting.held().await.release().await.unwrap();
}

/// A holder and a contender before us are never heard of again; the lock comes to us, and the other way
/// round.
async fn each_passes_over_the_others_dead() {
    let server = server().await;
    let locks = open(direct(&server)).await;
    let mut dead = [Earlier::new(&server, 1, TTL).await, Earlier::new(&server, 2, TTL).await];
    assert!(dead[0].acquire().await.is_some());
    assert_eq!(dead[1].acquire().await, None);
    let guard = hold(&locks).await;
    let mut old = Earlier::new(&server, 3, LONG).await;
    assert_eq!(old.acquire().await, None);
    // As when its lease ends; a renewal in between would put off an end that is still to come.
    command(&server, &["DEL", KEY]).await;
    eventually("a refresh finds the lock free", async || old.refresh().await == 1).await;
    assert!(guard.renew().await.is_err());
}

/// A revocation is heard, whoever asks whom; both show the other's holder and contenders.
async fn each_asks_the_other_to_let_go() {
    let server = server().await;
    let locks: LockManager = open_for(direct(&server), LONG).await;
    let mut old = Earlier::new(&server, 1, LONG).await;
    let guard = hold(&locks).await;
    assert_eq!(old.acquire().await, None);
    let shown = old.run(INSPECT, &[]).await.elements().remove(0).elements();
    assert_eq!(shown[..2], [Reply::Integer(1), Reply::Integer(1)]);
    old.asks().await;
    eventually("the guard is asked to let go", async || guard.ensure_held().is_err()).await;
    drop(guard);
    old.is_granted().await;

    let shown = locks.inspect(NAME).await.unwrap();
    assert_eq!(shown.holder.unwrap().label, "earlier");
    let (revoked, ()) = tokio::join!(locks.revoke(NAME, Revoke::AT_ONCE), async {
        eventually("it is asked to let go", async || old.refresh().await == 2).await;
        assert_eq!(old.release().await, Reply::Integer(1));
    });
    revoked.unwrap();
    hold(&locks).await.release().await.unwrap();
}

/// It hears what it has always heard, a grace or not, and leaves nothing of either.
async fn a_holder_that_knows_no_grace_is_asked() {
    let server = server().await;
    let locks = open_for(direct(&server), LONG).await;
    let mut old = Earlier::new(&server, 1, LONG).await;
    for how in [Revoke::AT_ONCE, GRACE] {
        assert!(old.acquire().await.is_some());
        let asked = Asking::start(&locks, how);
        old.hears("revoked").await;
        assert_eq!(old.refresh().await, 2);
        assert_eq!(old.release().await, Reply::Integer(1));
        asked.answered().await;
        assert!(!exists(&server, &format!("{KEY}:e")).await);
    }
}

/// Also after somebody who did; and what it looks at then, the lock's key, says that it is free.
async fn who_gives_no_grace_is_heard_at_once() {
    let server = server().await;
    let (a, b) = (open_for(direct(&server), LONG).await, open_for(direct(&server), LONG).await);
    let mut old = Earlier::new(&server, 1, LONG).await;
    let guard = hold(&a).await;
    let asked = Asking::start(&b, GRACE);
    is_asked(&guard).await;
    old.asks().await;
    eventually("it is lost", async || guard.ensure_held().is_err()).await;
    asked.answered().await;
    assert!(!exists(&server, KEY).await && !exists(&server, &format!("{KEY}:e")).await);
}

/// The same where no message arrives: its note replaces the one of who gave a grace.
async fn who_gives_no_grace_is_heard_by_a_renewal() {
    let server = server().await;
    let proxy = proxy(&server);
    let (a, b) = (open(via(&proxy)).await, open_for(direct(&server), LONG).await);
    let mut old = Earlier::new(&server, 1, LONG).await;
    let guard = hold(&a).await;
    proxy.set(Direction::ServerToClient, Mode::drop_frames(is_push)).await;
    let asked = Asking::start(&b, GRACE);
    eventually("it is noted", async || exists(&server, &format!("{KEY}:e")).await).await;
    old.asks().await;
    proxy.dropped(Direction::ServerToClient, 2).await;
    asked.answered().await;
    assert_lost(&guard, "although it was asked to let go at once");
}
