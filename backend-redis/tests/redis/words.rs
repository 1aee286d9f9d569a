//! What is said when the server is not there, does not take us, or stops answering.

use leasehold_conformance::words::said;
use leasehold_core::{Effect, Error, ErrorKind, LockManager, Tls};
use leasehold_redis::RedisConfig;
use testbed::Certificates;
use testbed::redis::Settings;

use crate::fixture::{BOUND, TTL, direct, ok, server, start, trials};

trials![an_opening_that_fails_says_why, valkey_refuses_in_words_of_its_own,];

/// Why a store is not opened, for which nothing can have been carried out.
async fn refusal(config: RedisConfig) -> Error {
    let opening = LockManager::builder(config).ttl(TTL).connect_timeout(BOUND).build();
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
        let refused = refusal(direct(&server)).await;
        assert_eq!(*refused.kind(), ErrorKind::Denied);
        let said = format!("{refused:#}");
        let (ours, cause) = said.split_once(": NOAUTH ").expect("it is the server's word");
        assert!(ours.starts_with("cannot connect: the server requires a password"), "{said}");
        causes.push(cause.to_owned());
    }
    assert_ne!(causes[0], causes[1]);
}

/// Without a database of that number, and where TLS fails, which is in the words of its library.
async fn an_opening_that_fails_says_why() {
    let server = server().await;
    let (refused, there) = (refusal(direct(&server).database(99)).await, server.addr().to_string());
    assert_eq!(*refused.kind(), ErrorKind::InvalidOption);
    let why = "cannot connect: the server has no database with this number";
    let words = format!("{why} (server: {there}): ERR DB index is out of range");
    assert_eq!(said(&refused, &there, None), words);

    let (certificates, foreign) = (Certificates::new("a").unwrap(), Certificates::new("b").unwrap());
    let encrypted = start(Settings::new().tls(&certificates)).await;
    let there = encrypted.tls_addr().unwrap();
    let tls = Tls::new().ca(std::fs::read(foreign.authority()).unwrap());
    let refused = refusal(RedisConfig::new("127.0.0.1", there.port()).tls(tls)).await;
    let why = "invalid peer certificate: its issuer's certificate in `ca` does not match its signature";
    assert_eq!(said(&refused, &there.to_string(), None), format!("cannot connect (server: {there}): {why}"));
}
