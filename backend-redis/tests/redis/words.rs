//! What is said when the server is not there, does not take us, or stops answering.

use std::time::Duration;

use leasehold_conformance::words::said;
use leasehold_core::{Effect, Error, ErrorKind, LockManager, Tls};
use leasehold_redis::RedisConfig;
use testbed::redis::Settings;
use testbed::{Certificates, Mode, Port};

use crate::rig::{
    BOUND, Beside, NAME, TTL, direct, eventually, hold, ok, open, proxy, server, start, trials, via,
};

trials![
    an_opening_that_fails_says_why,
    a_silent_server_is_named,
    a_refusal_is_in_the_servers_words,
    valkey_refuses_in_words_of_its_own,
];

/// Why a store is not opened, for which nothing can have been carried out.
async fn refusal(config: RedisConfig, bound: Duration) -> Error {
    let opening = LockManager::builder(config).ttl(TTL).connect_timeout(bound).build();
    let refused = opening.await.unwrap_err();
    assert_eq!(refused.effect(), Effect::NotApplied, "{refused}");
    refused
}

/// Ours are the same, and so is the kind.
async fn valkey_refuses_in_words_of_its_own() {
    let Some(program) = testbed::redis::valkey() else {
        return testbed::peers::skip("Valkey", "there is none in target/tools; run: make tools");
    };
    let mut causes = Vec::new();
    for settings in [Settings::new(), Settings::new().program(program)] {
        let server = start(settings).await;
        ok(&server, &["CONFIG", "SET", "requirepass", "secret"]).await;
        let refused = refusal(direct(&server), BOUND).await;
        assert_eq!(*refused.kind(), ErrorKind::Denied);
        let said = format!("{refused:#}");
        let (ours, cause) = said.split_once(": NOAUTH ").expect("it is the server's word");
        assert!(ours.starts_with("cannot connect: the server wants a password"), "{said}");
        causes.push(cause.to_owned());
    }
    assert_ne!(causes[0], causes[1]);
}

/// Every way in which a store is not opened, in whole sentences.
async fn an_opening_that_fails_says_why() {
    let (nobody, server) = (Port::reserve().unwrap(), server().await);
    let silent = proxy(&server);
    silent.set_both(Mode::Blackhole).await;
    ok(&server, &["ACL", "SETUSER", "billing", "on", ">secret", "+@all", "~*", "&*"]).await;
    ok(&server, &["CONFIG", "SET", "requirepass", "secret"]).await;
    let (short, named) = (TTL / 4, direct(&server).credentials("billing", "secret"));
    let there = server.addr();
    let table = [
        (
            RedisConfig::new("127.0.0.1", nobody.number()),
            BOUND,
            nobody.addr(),
            ErrorKind::Unavailable,
            "cannot connect (server: ADDR): Connection refused (os error 111)",
        ),
        (
            via(&silent),
            short,
            silent.addr(),
            ErrorKind::Unavailable,
            "cannot connect (server: ADDR): no answer within 500ms",
        ),
        (
            direct(&server).credentials("billing", "guessed"),
            BOUND,
            there,
            ErrorKind::Denied,
            "cannot connect: the server refuses user and password (server: ADDR): WRONGPASS invalid \
             username-password pair or user is disabled.",
        ),
        (
            direct(&server),
            BOUND,
            there,
            ErrorKind::Denied,
            "cannot connect: the server wants a password (server: ADDR): NOAUTH HELLO must be called with the \
             client already authenticated, otherwise the HELLO AUTH <user> <pass> option can be used to \
             authenticate the client and select the RESP protocol version at the same time",
        ),
        (
            named.database(99),
            BOUND,
            there,
            ErrorKind::InvalidOption,
            "cannot connect: the server has no database of that number (server: ADDR): ERR DB index is out of range",
        ),
    ];
    for (config, bound, addr, kind, words) in table {
        let refused = refusal(config, bound).await;
        let addr = addr.to_string();
        assert_eq!(said(&refused, &addr, None), words.replace("ADDR", &addr));
        assert_eq!(*refused.kind(), kind);
    }
    // TLS is in the words of its library.
    let (certificates, stranger) = (Certificates::new("a").unwrap(), Certificates::new("b").unwrap());
    let encrypted = start(Settings::new().tls(&certificates)).await;
    let there = encrypted.tls_addr().unwrap();
    let tls = Tls::new().ca(std::fs::read(stranger.authority()).unwrap());
    let refused = refusal(RedisConfig::new("127.0.0.1", there.port()).tls(tls), BOUND).await;
    let why = "invalid peer certificate: the authority that it names (ca) has not signed it";
    assert_eq!(said(&refused, &there.to_string(), None), format!("cannot connect (server: {there}): {why}"));
}

/// It stops answering: each request says where and of which lock, and so does a wait that ends then.
async fn a_silent_server_is_named() {
    let server = server().await;
    let proxy = proxy(&server);
    let addr = proxy.addr().to_string();
    let locks = open(via(&proxy)).await;
    let holder = LockManager::builder(direct(&server)).ttl(TTL).owner_label("me").build().await.unwrap();
    let (held, ours) = (hold(&holder).await, locks.lock("ours").unwrap().acquire().await.unwrap());
    let spare = locks.lock("spare").unwrap().acquire().await.unwrap();
    let waiting = locks.lock(NAME).unwrap().wait(TTL * 3 / 4);
    let waiting = Beside::start(async move { waiting.acquire().await.map(drop) });
    eventually("it waits", async || holder.inspect(NAME).await.unwrap().contenders > 0).await;
    // Answered on the connection that the acquisition uses, after it: so that knows, too.
    locks.inspect(NAME).await.unwrap();
    proxy.set_both(Mode::Blackhole).await;
    let silent =
        "the server did not answer in time (server: ADDR, lock: ours); the store may have carried it out";
    let renewed = ours.renew().await;
    assert_eq!(said(&renewed.unwrap_err(), &addr, Some("ours")), silent.replace("ADDR", &addr));
    let (waited, released) = tokio::join!(waiting.end("the wait ends"), spare.release());
    said(&released.unwrap_err(), &addr, Some("spare"));
    let words = said(&waited.unwrap_err(), &addr, Some(NAME));
    assert!(words.starts_with("not granted within 1.5s; held by \"me\" (lock: invoice/42): "), "{words}");
    // Whether the request was silent or the connection that it wanted.
    let tried = locks.lock("other").unwrap().try_acquire().await.unwrap_err();
    said(&tried, &addr, Some("other"));
    said(&locks.inspect(NAME).await.unwrap_err(), &addr, Some(NAME));
    said(&locks.list("").await.unwrap_err(), &addr, None);
    held.release().await.unwrap();
}

/// What the server says of a request is the cause, once.
async fn a_refusal_is_in_the_servers_words() {
    let server = server().await;
    let (locks, addr) = (open(direct(&server)).await, server.addr().to_string());
    ok(&server, &["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    let refused = locks.lock(NAME).unwrap().acquire().await.unwrap_err();
    let words =
        "too few replicas are connected (min-replicas-to-write) (server: ADDR, lock: invoice/42): NOREPLICAS";
    let words = format!("{} Not enough good replicas to write.", words.replace("ADDR", &addr));
    assert_eq!(said(&refused, &addr, Some(NAME)), words);
}
