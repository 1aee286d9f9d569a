//! Three servers, of which one is cut off from the others; what stops or kills them is in `tests/servers` of the workspace.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_core::{ErrorKind, Guarantees, LockManager};
use testbed::zookeeper::{Ensemble, Setup};
use testbed::{Direction, Mode, Proxy};
use zookeeper_client::{Acl, AuthId, Client, Permission};

use crate::fixture::{
    Beside, Fixture, Space, TTL, ensemble, eventually, hold_aside, milliseconds, now, proxy,
};

/// A follower without a leader serves stale data for a while: guards are lost before another client holds, and it grants
/// nothing.
pub(crate) async fn a_follower_that_is_cut_off_tells_its_clients_in_time(fixture: Arc<Fixture>) {
    let ensemble = ensemble().await;
    let leader = ensemble.leader().await.unwrap();
    let follower = (leader + 1) % 3;
    let space = fixture.space_on([ensemble[leader].addr()]);
    let (locks, rival) = (space.by(ensemble[follower].addr()).manager().await, space.manager().await);
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    let waiting = hold_aside(&rival, "a");
    space.outside().await.has(&space.directory("a"), 2).await;
    let lost = guard.lost();
    let told = Beside::start(async move {
        lost.await;
        now()
    });

    ensemble.cut(follower).await;
    let began = now();
    let next = waiting.end("it holds").await;
    let granted = milliseconds(began);
    guard.ensure_held().expect_err("two holders");
    let told = told.end("it is told").await.since(began).as_millis();
    println!("cut follower, session of {TTL:?}: told after {told} ms, the next holds after {granted} ms");
    let refused = locks.lock("b").unwrap().try_acquire().await.expect_err("there is no quorum");
    assert_eq!(*refused.kind(), ErrorKind::Unavailable, "{refused:?}");

    ensemble.heal(follower).await;
    let token = next.token();
    next.release().await.unwrap();
    let again = open_again(&locks).await;
    assert!(again.token() > token);
}

/// Acquires the lock once the servers can be reached again.
async fn open_again(locks: &LockManager) -> leasehold_core::LockGuard {
    let lock = locks.lock("a").unwrap();
    let mut taken = None;
    eventually("the lock can be had again", async || {
        taken = lock.acquire().await.ok();
        taken.is_some()
    })
    .await;
    taken.unwrap()
}

pub(crate) async fn fail_over_is_promised_by_those_who_can(fixture: Arc<Fixture>) {
    // The password is "admin".
    let superuser = "super:xQJmxLMiHGwaqBvst5y6rkB6HQs=";
    let setup = Setup::new().property("zookeeper.DigestAuthenticationProvider.superDigest", superuser);
    let ensemble = setup.start_ensemble(3).await.unwrap_or_else(|error| panic!("{error}"));
    let three = fixture.space_on(ensemble.endpoints());
    assert_eq!(promised(&three).await, (true, "3 voting members".to_owned()));
    let (promised_by_one, said) = promised(&three.by(&ensemble.endpoints()[0])).await;
    assert!(!promised_by_one && said.contains("not promised"), "{said}");
    assert!(promised_after_an_answer_was_lost(&fixture, &ensemble).await);
    let outside = three.outside().await;
    outside.client.auth("digest", b"super:admin").await.unwrap();
    outside
        .client
        .set_acl("/zookeeper/config", &[Acl::new(Permission::ALL, AuthId::authed())], None)
        .await
        .unwrap();
    // Any server knows it.
    for endpoint in ensemble.endpoints() {
        let client = Client::connector().connect(&endpoint).await.unwrap();
        client.sync("/").await.unwrap();
    }
    let (promised_blindly, said) = promised(&three).await;
    assert!(!promised_blindly && said.contains("not promised"), "{said}");

    let (promised_alone, said) = promised(&fixture.space().await).await;
    assert!(!promised_alone && said.contains("not promised"), "{said}");
}

/// Whether fail-over is promised when the first reply about the members is lost.
async fn promised_after_an_answer_was_lost(fixture: &Fixture, ensemble: &Ensemble) -> bool {
    let proxies = [proxy(&ensemble[0]), proxy(&ensemble[1])];
    let lost = Arc::new(AtomicBool::new(false));
    for proxy in &proxies {
        let lost = Arc::clone(&lost);
        let tells = |frame: &[u8]| frame.windows(9).any(|part| part == b"server.1=");
        let first = move |frame: &[u8]| tells(frame) && !lost.swap(true, Ordering::Relaxed);
        proxy.set(Direction::ServerToClient, Mode::drop_frames(first)).await;
    }
    let locks = fixture.space_on(proxies.each_ref().map(Proxy::addr)).manager().await;
    assert!(lost.load(Ordering::Relaxed));
    locks.guarantees().contains(Guarantees::SURVIVES_FAILOVER)
}

/// Whether fail-over is promised, and what the diagnosis says of the members.
async fn promised(space: &Space) -> (bool, String) {
    let locks = space.manager().await;
    let findings = locks.diagnose().await.unwrap();
    let members = findings.into_iter().find(|finding| finding.subject == "members").unwrap();
    (locks.guarantees().contains(Guarantees::SURVIVES_FAILOVER), members.detail.to_string())
}
