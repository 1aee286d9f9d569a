//! The ways to a server, and what its diagnosis says.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::Severity;
use leasehold_core::{ErrorKind, LockManager, StoreUrl};
use leasehold_zk::ZkConfig;
use testbed::zookeeper::Setup;
use testbed::{Direction, Mode};

use crate::fixture::{BOUND, Beside, Fixture, TTL, proxy, server};

/// The time of an opening is bounded by `connect_timeout`, not by the short ttl.
pub(crate) async fn a_server_that_comes_late_is_waited_for(fixture: Arc<Fixture>) {
    const TTL: Duration = Duration::from_secs(1);
    let proxy = proxy(fixture.server().await);
    proxy.refuse_new().await.unwrap();
    let space = fixture.space_on([proxy.addr()]);
    let builder = LockManager::builder(space.config()).ttl(TTL).connect_timeout(BOUND);
    let opening = Beside::start(builder.build());
    tokio::time::sleep(2 * TTL).await; // longer than a session lasts
    assert!(!opening.is_finished());
    proxy.accept_new().await.unwrap();
    opening.end("an answer").await.unwrap();
}

pub(crate) async fn a_slow_opening_is_no_loss_afterwards(fixture: Arc<Fixture>) {
    let proxy = proxy(fixture.server().await);
    let space = fixture.space_on([proxy.addr()]);
    for slow in [TTL / 3, TTL * 2 / 3] {
        proxy.set(Direction::ServerToClient, Mode::Hold).await;
        let opening = Beside::start(LockManager::builder(space.config()).ttl(TTL).build());
        tokio::time::sleep(slow).await; // the server takes its time
        proxy.set(Direction::ServerToClient, Mode::Pass).await;
        let locks = opening.end("an answer").await.unwrap();
        let guard = locks.lock("a").unwrap().acquire().await.unwrap();
        tokio::time::sleep(TTL).await; // longer than the session lasts by itself
        guard.release().await.unwrap();
    }
}

pub(crate) async fn a_url_says_the_same(fixture: Arc<Fixture>) {
    let space = fixture.space().await;
    let url = format!("zk://me:secret@{}{}?prefix=x/y&acl=world:anyone:", space.hosts(), space.chroot);
    let open = |rights| {
        let mut url = format!("{url}{rights}").parse::<StoreUrl>().unwrap();
        LockManager::builder(ZkConfig::from_url(&mut url).unwrap()).ttl(TTL).build()
    };
    let locks = open("rwcd").await.unwrap();
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    let outside = space.outside().await;
    let directory = format!("{}/x/y/a", space.chroot);
    let nodes = outside.has(&directory, 1).await;
    let (acl, _) = outside.client.get_acl(&format!("{directory}/{}", nodes[0])).await.unwrap();
    // What others may, and what the session alone may.
    let shown: Vec<_> = acl.iter().map(|acl| format!("{}:{}", acl.scheme(), acl.permission())).collect();
    assert_eq!(shown, ["world:READ|CREATE|DELETE", "digest:WRITE"]);
    // These rights keep the session, and fewer do not open one.
    let refused = open("rcd").await.expect_err("a session is proved by writing");
    assert_eq!(*refused.kind(), ErrorKind::Denied, "{refused:?}");
    tokio::time::sleep(TTL).await; // without renewals it would be over
    guard.release().await.unwrap();
}

pub(crate) async fn the_version_and_the_session_are_diagnosed(fixture: Arc<Fixture>) {
    let space = fixture.space().await;
    let locks = space.manager().await;
    let findings = locks.diagnose().await.unwrap();
    for finding in &findings {
        println!("{:?} {}: {}", finding.severity, finding.subject, finding.detail);
    }
    assert!(findings.iter().all(|finding| finding.severity != Severity::Broken));
    let versions: Vec<_> = findings.iter().filter(|finding| finding.detail.contains(" runs ")).collect();
    assert_eq!(versions.len(), 1, "{findings:?}");
    let words: Vec<_> = versions[0].detail.split(' ').collect();
    assert!(
        words[2].split('.').count() == 3 && words[2].split('.').all(|part| part.parse::<u32>().is_ok()),
        "{versions:?}"
    );
    assert!(findings.iter().any(|finding| finding.detail.contains("3s")), "{findings:?}");

    // The diagnosis reports a session that is shorter than requested.
    let bounded = server(Setup::new().longest_session(Duration::from_secs(4))).await;
    let space = fixture.space_on([bounded.addr()]);
    let locks = space.manager_with(|builder| builder.ttl(Duration::from_secs(20))).await;
    let findings = locks.diagnose().await.unwrap();
    assert!(
        findings.iter().any(|finding| finding.severity == Severity::Warning && finding.detail.contains("4s")),
        "{findings:?}"
    );
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    assert!(guard.remaining() < Duration::from_secs(4), "{:?}", guard.remaining());

    // A margin that suits what was asked for, and not what was granted, leaves nothing to hold by.
    let builder = LockManager::builder(space.config()).ttl(Duration::from_secs(20));
    let refused = builder.drift_margin(Duration::from_secs(5)).build().await.expect_err("of 4s");
    assert_eq!(*refused.kind(), ErrorKind::InvalidOption, "{refused:?}");
    assert!(refused.to_string().contains("drift_margin 5s"), "{refused}");
}
