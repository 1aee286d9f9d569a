//! Locks that other libraries take too, each in its format; the libraries are commands here. `tests/foreign` has the real
//! ones.

use std::time::Duration;

use futures_util::StreamExt;
use leasehold_core::backend::{AcquireRequest, Attempt, Holder, StoreConfig, StoreEvent};
use leasehold_core::{ErrorKind, Guarantees, LockName, OwnerId, Revoke};
use leasehold_redis::Format;
use testbed::redis::{Reply, Server};
use testbed::{Direction, Mode};

use crate::counts::Requests;
use crate::fixture::{
    KEY, LONG, NAME, TTL, Waiter, command, direct, eventually, exists, hold, now, ok, open, open_for, proxy,
    server, store, trials, via,
};
use crate::foreign::{CHANNEL, Kind, with_foreign};
use crate::lost::request;

trials![
    a_message_of_redisson_wakes_the_first_of_ours = || wakes(Kind::Redisson),
    a_message_of_spring_wakes_the_first_of_ours = || wakes(Kind::Spring),
    another_entry_that_ends_takes_no_channel_away,
    a_release_before_anybody_listens_is_found_at_once,
    foreign_clients_of_strings_are_never_shown_by_their_value = || shows(Kind::String),
    foreign_clients_of_hashes_are_never_shown_by_their_value = || shows(Kind::Redisson),
    names_of_our_own_keys_are_refused,
    a_message_about_another_key_grants_nothing,
    unsupported_option_of_a_format_is_refused,
    a_silent_wait_behind_a_foreign_client_is_a_poll,
];

/// No poll comes within minutes: only the message can wake the waiter, also after a reconnect. The holder unsubscribes.
async fn wakes(kind: Kind) {
    let (server, mut foreign) = with_foreign(kind).await;
    let channel = kind.message().unwrap().0;
    let listeners = async || listeners(&server, channel).await;
    let config = || direct(&server).format(kind.format().poll(Duration::from_secs(10)));
    let (a, b) = (open_for(config(), LONG).await, open_for(config(), LONG).await);
    for reconnects in [false, true] {
        assert!(foreign.takes(Some(600_000)).await);
        let first = Waiter::queued(&a, 0, &b).await;
        let second = Waiter::queued(&b, 1, &b).await;
        eventually("the first listens", async || listeners().await == Some(1)).await;
        if reconnects {
            command(&server, &["CLIENT", "KILL", "TYPE", "pubsub"]).await;
            eventually("it listens again", async || listeners().await == Some(1)).await;
        }
        // It asks once more then.
        a.inspect(NAME).await.unwrap();
        let began = now();
        assert!(foreign.releases().await);
        let guard = first.held().await;
        assert!(now().since(began) < Duration::from_secs(7), "it was polling that found it");
        eventually("nobody listens", async || listeners().await == Some(0)).await;
        guard.release().await.unwrap();
        second.held().await.release().await.unwrap();
    }
}

async fn listeners(server: &Server, channel: &str) -> Option<i64> {
    command(server, &["PUBSUB", "NUMSUB", channel]).await.elements()[1].integer()
}

/// An entry that ends leaves the channel to the entry of the same session that listens.
async fn another_entry_that_ends_takes_no_channel_away() {
    let (server, mut foreign) = with_foreign(Kind::Redisson).await;
    let config = direct(&server).format(Format::redisson().poll(Duration::from_secs(10)));
    let backend = config.open(crate::ledger::env(LONG)).await.unwrap();
    let name: LockName = NAME.parse().unwrap();
    let of = |id| AcquireRequest::new(name.clone(), OwnerId::from_random([id; 16]), LONG);
    assert!(foreign.takes(Some(600_000)).await);
    let (waits, tries) = (of(1), of(2));
    let releases = async {
        eventually("it listens", async || listeners(&server, CHANNEL).await == Some(1)).await;
        // It asks once more then.
        backend.inspect(&name).await.unwrap();
        assert!(matches!(backend.try_acquire(&tries).await.unwrap(), Attempt::Held { .. }));
        assert!(foreign.releases().await);
        now()
    };
    let (granted, began) = tokio::join!(backend.acquire(&waits), releases);
    assert!(now().since(began) < Duration::from_secs(7), "it was polling that found it");
    backend.release(&granted.unwrap()).await.unwrap();
}

/// It is released while our answer is in flight: the waiter that subscribes then has missed the message, and refreshes
/// (redis.foreign-1). A poll is further away.
async fn a_release_before_anybody_listens_is_found_at_once() {
    let (server, mut foreign) = with_foreign(Kind::Redisson).await;
    let proxy = proxy(&server);
    let format = || Format::redisson().poll(Duration::from_secs(10));
    let (a, b) = (
        open_for(via(&proxy).format(format()), LONG).await,
        open_for(direct(&server).format(format()), LONG).await,
    );
    direct(&server).load_scripts().await.unwrap();
    assert!(foreign.takes(Some(600_000)).await);
    proxy.set(Direction::ServerToClient, Mode::Hold).await;
    let waiting = Waiter::start(&a);
    eventually("it is in the queue", async || b.inspect(NAME).await.unwrap().contenders == 1).await;
    assert!(foreign.releases().await);
    proxy.set(Direction::ServerToClient, Mode::Pass).await;
    let began = now();
    let guard = waiting.held().await;
    assert!(now().since(began) < Duration::from_secs(7), "it was polling that found it");
    guard.release().await.unwrap();
}

/// In all that names a holder.
async fn shows(kind: Kind) {
    const FOREIGN_OWNER: &str = "(not leasehold)";
    let (server, mut foreign) = with_foreign(kind).await;
    let backend = store(kind.config(&server)).await;
    let mut events = backend.events();
    let locks = open(kind.config(&server)).await;
    // So that the name is one of ours.
    hold(&locks).await.release().await.unwrap();
    assert!(foreign.takes(Some(60_000)).await);
    let is_theirs = |holder: &Holder| holder.label == FOREIGN_OWNER && holder.foreign;
    assert!(is_theirs(locks.inspect(NAME).await.unwrap().holder().unwrap()));
    let listed = locks.list("").await.unwrap();
    assert!(is_theirs(listed[0].holder().unwrap()));
    let (tries, waits) = (request(1), request(2));
    let Attempt::Held { holder } = backend.try_acquire(&tries).await.unwrap() else { panic!("it is held") };
    assert!(is_theirs(&holder.unwrap()));
    let acquiring = backend.acquire(&waits);
    let queued = async {
        loop {
            if let Some(StoreEvent::Queued { holder, .. }) = events.next().await {
                return holder;
            }
        }
    };
    tokio::select! {
        granted = acquiring => panic!("{granted:?}"),
        holder = queued => assert!(is_theirs(&holder)),
    }
    let shown = format!("{:?} {listed:?}", locks.inspect(NAME).await.unwrap());
    assert!(!shown.contains("0f0e0d0c") && !shown.contains("ours"), "{shown}");
    // It cannot be asked, and nothing of it is noted.
    let revoked = backend.revoke(&NAME.parse().unwrap(), Revoke::Ask { grace: TTL }).await.unwrap();
    assert!(is_theirs(&revoked[0]));
    assert_eq!(command(&server, &["HGET", "leasehold:{invoice/42}:e", "revoked"]).await, Reply::Nil);
    let lease = locks.inspect(NAME).await.unwrap().holder().unwrap().ttl.unwrap();
    assert!(lease <= Duration::from_secs(60), "{lease:?}");
    command(&server, &["PERSIST", NAME]).await;
    let said = format!("{:?}", locks.diagnose_lock(NAME).await.unwrap());
    assert!(said.contains("never expires"), "{said}");
    assert!(foreign.releases().await);
}

async fn names_of_our_own_keys_are_refused() {
    let server = server().await;
    let locks = open(direct(&server).format(Format::redisson().key("lease{name}"))).await;
    Requests::begin(&server).await;
    for name in ["hold:token_base", "hold:{a}:q", "hold:"] {
        let error = locks.lock(name).unwrap().acquire().await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidName, "{name}: {error}");
        assert_eq!(*locks.inspect(name).await.unwrap_err().kind(), ErrorKind::InvalidName, "{name}");
    }
    assert_eq!(Requests::since(&server).await.total(), 0);
    // What another namespace, or a manager without a format, has left behind is not shown.
    let guard = locks.lock("leasehold:a").unwrap().acquire().await.unwrap();
    ok(&server, &["SET", "leasehold:{hold:x}:n", "1 x 1 x 0 "]).await;
    let listed = locks.list("").await.unwrap();
    assert_eq!(listed.iter().map(|state| state.name.as_str()).collect::<Vec<_>>(), ["leasehold:a"]);
    guard.release().await.unwrap();
}

/// A manager without the format, by mistake under the same prefix, hands a lock of its own to the waiter that it finds in
/// the queue they share: that one does not hold the foreign client's lock, and waits on.
async fn a_message_about_another_key_grants_nothing() {
    let (server, mut foreign) = with_foreign(Kind::String).await;
    let (a, b) = (
        open_for(Kind::String.config(&server), LONG).await,
        open_for(Kind::String.config(&server), LONG).await,
    );
    let mistaken = open(direct(&server)).await;
    let guard = hold(&mistaken).await;
    assert!(foreign.takes(Some(600_000)).await);
    let waiting = Waiter::queued(&a, 0, &b).await;
    guard.release().await.unwrap();
    eventually("it is in the queue again", async || {
        assert!(waiting.is_waiting(), "two hold");
        exists(&server, KEY).await && b.inspect(NAME).await.unwrap().contenders == 1
    })
    .await;
    assert!(foreign.releases().await);
    waiting.held().await.release().await.unwrap();
}

async fn unsupported_option_of_a_format_is_refused() {
    let server = server().await;
    for kind in [Kind::String, Kind::Redisson] {
        let locks = open(kind.config(&server)).await;
        for lacking in [Guarantees::FENCED, Guarantees::FIFO] {
            let refused = locks.require(lacking).unwrap_err();
            assert_eq!(*refused.kind(), ErrorKind::Unsupported, "{refused}");
            assert!(refused.to_string().contains(&lacking.to_string().to_lowercase()), "{refused}");
        }
        locks.require(Guarantees::LEASED | Guarantees::CROSS_HOST | Guarantees::PER_LOCK_TTL).unwrap();
    }
}

/// Two of ours wait behind a foreign client: one of them polls.
async fn a_silent_wait_behind_a_foreign_client_is_a_poll() {
    const POLL: Duration = Duration::from_millis(400);
    let (server, mut foreign) = with_foreign(Kind::String).await;
    direct(&server).load_scripts().await.unwrap();
    let config = || direct(&server).format(Format::string().poll(POLL));
    let (a, b) = (open_for(config(), LONG).await, open_for(config(), LONG).await);
    assert!(foreign.takes(None).await);
    let first = Waiter::queued(&a, 0, &b).await;
    let second = Waiter::queued(&b, 1, &b).await;
    ok(&server, &["CONFIG", "RESETSTAT"]).await;
    let began = now();
    eventually("it has asked five times", async || Requests::since(&server).await.total() >= 5).await;
    let (asked, took) = (Requests::since(&server).await.total(), now().since(began));
    let polls = took.as_millis() / (POLL * 3 / 4).as_millis() + 1;
    assert!(u128::from(asked) <= polls, "{asked} in {took:?}");
    drop((first, second));
    assert!(foreign.releases().await);
}
