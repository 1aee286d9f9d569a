//! Connections over TLS: our identity there, and a certificate that is exchanged.

use std::fs::read;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{ErrorKind, LockManager, Tls};
use testbed::zookeeper::Setup;
use testbed::{Certificates, Proxy};

use crate::fixture::{BOUND, Fixture, TTL, eventually, hold_aside, server};

/// The four-letter words are sent over TLS, too.
pub(crate) async fn a_server_behind_tls_is_diagnosed(fixture: Arc<Fixture>) {
    let certificates = Certificates::new("client").unwrap();
    let server = server(Setup::new().tls(&certificates)).await;
    let space = fixture.space_on([format!("localhost:{}", server.tls_addr().port())]);
    let config = space.config().tls(known(trusting(&certificates), &certificates));
    let locks = LockManager::builder(config).connect_timeout(BOUND).build().await.unwrap();
    let findings = locks.diagnose().await.unwrap();
    assert!(findings.iter().any(|finding| finding.detail.contains(" runs ")), "{findings:?}");
}

pub(crate) async fn a_certificate_that_is_exchanged_throws_nobody_out(fixture: Arc<Fixture>) {
    let (certificates, stranger) =
        (Certificates::new("client").unwrap(), Certificates::new("client").unwrap());
    let (good, bad) =
        tokio::join!(server(Setup::new().tls(&certificates)), server(Setup::new().tls(&stranger)));
    let way = Proxy::start(good.tls_addr()).unwrap();
    let space = fixture.space_on([format!("localhost:{}", way.addr().port())]);
    let config = space.config().tls(known(trusting(&certificates), &certificates));
    let builder = LockManager::builder(config).ttl(TTL).connect_timeout(Duration::from_secs(2));
    let locks = builder.connect_wait(BOUND).build().await.unwrap();
    let direct = space.by(good.addr());
    let (rival, outside) = (direct.manager().await, direct.outside().await);
    let holder = rival.lock("a").unwrap().acquire().await.unwrap();
    let waiting = hold_aside(&locks, "a");
    outside.has(&space.directory("a"), 2).await;

    way.lead_to(bad.tls_addr()).await;
    // A caller that comes before the end of the session is known waits like the others.
    eventually("who comes is told", async || {
        let told = locks.lock("b").unwrap().wait(TTL).acquire().await.map(drop).expect_err("no way to it");
        let is_named = format!("{told:#}").contains("invalid peer certificate");
        assert!(!is_named || *told.kind() == ErrorKind::Unavailable, "{told:?}");
        is_named
    })
    .await;
    way.lead_to(good.tls_addr()).await;
    outside.has(&space.directory("a"), 2).await;
    holder.release().await.unwrap();
    waiting.end("it holds").await.release().await.unwrap();
}

pub(crate) async fn a_certificate_is_an_identity(fixture: Arc<Fixture>) {
    let certificates = Certificates::new("client").unwrap();
    let server = server(Setup::new().tls(&certificates)).await;
    let space = fixture.space_on([format!("localhost:{}", server.tls_addr().port())]);
    let config = |acl| space.config().tls(known(trusting(&certificates), &certificates)).acl(acl).unwrap();
    let open = |acl| LockManager::builder(config(acl)).connect_timeout(BOUND).build();
    let listed = "x509:CN=client:rwcd,x509:CN=a,OU=b\\, c:r,world:anyone:r";
    let locks = open(listed).await.unwrap();
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    let outside = space.by(server.addr()).outside().await;
    let directory = space.directory("a");
    let node = format!("{directory}/{}", outside.has(&directory, 1).await[0]);
    let (acl, _) = outside.client.get_acl(&node).await.unwrap();
    let shown: Vec<_> = acl.iter().map(|acl| format!("{}:{}", acl.scheme(), acl.id())).collect();
    let (ours, others) = shown.split_last().unwrap();
    assert_eq!(others, ["x509:CN=client", "x509:CN=a,OU=b\\, c", "world:anyone"]);
    assert!(ours.starts_with("digest:leasehold:"), "{ours}");
    let intruding = outside.client.delete(&node, None).await;
    assert_eq!(intruding.unwrap_err(), zookeeper_client::Error::NoAuth);

    // The same by the server's view of our identity.
    let creator = open("creator").await.unwrap();
    let other = creator.lock("b").unwrap().acquire().await.unwrap();
    let closed = outside.client.list_children(&space.directory("b")).await;
    assert_eq!(closed.unwrap_err(), zookeeper_client::Error::NoAuth);
    other.release().await.unwrap();
    guard.release().await.unwrap();
}

fn trusting(certificates: &Certificates) -> Tls {
    Tls::new().ca(read(certificates.authority()).unwrap())
}

fn known(tls: Tls, certificates: &Certificates) -> Tls {
    let (certificate, key) = certificates.client();
    tls.client_certificate(read(certificate).unwrap(), read(key).unwrap())
}
