//! TLS and client certificates.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{ErrorKind, LockManager, Result, Tls};
use leasehold_etcd::EtcdConfig;
use testbed::etcd::{Etcd, Setup};
use testbed::{Certificates, Direction, Mode, Proxy};

use crate::fixture::{BOUND, Beside, EARLY, PREFIX, TTL, open, open_with_ttl, trials, until, within};

trials![a_certificate_may_be_expected_under_another_name, leftovers_of_a_damaged_record_are_removed,];

fn read(path: impl AsRef<Path>) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

fn trusting(certificates: &Certificates) -> Tls {
    Tls::new().ca(read(certificates.authority()))
}

fn config(etcd: &Etcd) -> EtcdConfig {
    EtcdConfig::new(etcd.endpoints()).prefix(PREFIX)
}

/// Opens a session, or returns the error within the bound of connecting.
async fn attempt(config: EtcdConfig) -> Result<LockManager> {
    let opening = LockManager::builder(config).ttl(TTL).connect_timeout(Duration::from_secs(2)).build();
    within(BOUND, "an answer", opening).await
}

async fn refused(config: EtcdConfig, why: &str) -> leasehold_core::Error {
    match attempt(config).await {
        Ok(_) => panic!("it opens {why}"),
        Err(refused) => refused,
    }
}

async fn a_certificate_may_be_expected_under_another_name() {
    let certificates = Arc::new(Certificates::new("client").unwrap());
    let etcd = Setup::new().tls(Arc::clone(&certificates)).start().await.unwrap();
    let secured = config(&etcd).tls(trusting(&certificates));
    open(secured.clone().domain("localhost")).await;
    let error = refused(secured.domain("elsewhere.example"), "under another name").await;
    assert_eq!(*error.kind(), ErrorKind::Denied, "{error:?}");
    assert!(format!("{error:#}").contains("not valid for name"), "{error:#}");
}

/// One bit is flipped on its way under many acquisitions: the connection is over, and nothing else. Some were carried out
/// before, and their replies are lost. What was put for those that failed is deleted, long before the lease ends.
async fn leftovers_of_a_damaged_record_are_removed() {
    const NAMES: u64 = 120;
    let ours = Arc::new(Certificates::new("client").unwrap());
    let etcd = Setup::new().tls(Arc::clone(&ours)).start().await.unwrap();
    let proxy = Proxy::start(etcd.addr(0)).unwrap();
    let config = EtcdConfig::new([proxy.addr().to_string()]).prefix(PREFIX).tls(trusting(&ours));
    for round in 0..8 {
        let manager = open_with_ttl(config.clone(), 20 * TTL).await.unwrap();
        let acquiring = (0..NAMES).map(|index| {
            let lock = manager.lock(format!("r{round}x{index}")).unwrap();
            Beside::start(async move {
                tokio::time::sleep(Duration::from_micros(100 * index)).await; // Some are under way, some not.
                lock.acquire().await
            })
        });
        let acquiring: Vec<_> = acquiring.collect();
        tokio::time::sleep(Duration::from_millis(2 + 2 * round)).await; // In their midst.
        proxy.set(Direction::ClientToServer, Mode::corrupt_next(7)).await;
        let mut guards = Vec::new();
        for acquiring in acquiring {
            guards.extend(acquiring.end("an answer").await.ok());
        }
        let prefix = format!("{PREFIX}/r{round}x");
        let keys = async || etcd.keys(&prefix).await.unwrap().len();
        within(EARLY, "what nobody holds goes", until(async || keys().await == guards.len())).await;
        for guard in guards {
            guard.ensure_held().unwrap();
            guard.release().await.unwrap();
        }
        proxy.set(Direction::ClientToServer, Mode::Pass).await;
        manager.shutdown().await.unwrap();
    }
}
