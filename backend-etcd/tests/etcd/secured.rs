//! TLS and client certificates.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{ErrorKind, Tls};
use leasehold_etcd::EtcdConfig;
use testbed::etcd::Setup;
use testbed::{Certificates, Direction, Mode, Proxy};

use crate::fixture::{BOUND, Beside, EARLY, PREFIX, TTL, open, open_with_ttl, trials, until, within};

trials![a_certificate_may_be_expected_under_another_name, leftovers_of_a_damaged_record_are_removed,];

fn trusting(endpoints: impl IntoIterator<Item = String>, certificates: &Certificates) -> EtcdConfig {
    let authority = std::fs::read(certificates.authority()).unwrap();
    EtcdConfig::new(endpoints).prefix(PREFIX).tls(Tls::new().ca(authority))
}

async fn a_certificate_may_be_expected_under_another_name() {
    let certificates = Arc::new(Certificates::new("client").unwrap());
    let etcd = Setup::new().tls(Arc::clone(&certificates)).start().await.unwrap();
    let secured = trusting(etcd.endpoints(), &certificates);
    open(secured.clone().domain("localhost")).await;
    let opening = open_with_ttl(secured.domain("elsewhere.example"), TTL);
    let error = within(BOUND, "an answer", opening).await.unwrap_err();
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
    let config = trusting([proxy.addr().to_string()], &ours);
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
