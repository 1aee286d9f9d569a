//! Openings that are cancelled, and endpoints that serve no locks; the failures of the network that all stores share are in
//! `tests/servers` of the workspace.

use std::time::Duration;

use leasehold_etcd::EtcdConfig;
use testbed::Mode;
use testbed::etcd::{Setup, current};

use crate::fixture::{
    BOUND, EARLY, Fixture, PREFIX, TTL, behind, eventually, hold, open, open_with_ttl, trials, until, within,
};

trials![cancelled_open_leaves_nothing, learner_among_the_endpoints_is_skipped];

/// Cancelled in the middle, and when only the reply to the last request is missing: no lease stays, and no connection.
async fn cancelled_open_leaves_nothing() {
    cancelled_once(async |fixture| fixture.store.leases().await == 1).await;
    cancelled_once(async |fixture| !fixture.store.keys(&format!("{PREFIX}/%session/")).await.is_empty())
        .await;
}

async fn cancelled_once(has_begun: impl AsyncFn(&Fixture) -> bool) {
    let fixture = Fixture::start().await;
    let proxy = fixture.proxy(0);
    // Slow enough to be seen in the middle of something.
    proxy.set_both(Mode::delay(Duration::from_millis(150))).await;
    // Much longer than the test waits.
    let opening = open_with_ttl(behind(&proxy), 10 * TTL);
    tokio::select! {
        _ = opening => panic!("it is opened already"),
        () = eventually("it has begun", async || has_begun(&fixture).await) => {}
    }
    within(EARLY, "the lease ends", until(async || fixture.store.leases().await == 0)).await;
    within(BOUND, "no connection stays", proxy.idle()).await;
}

/// A learner answers no request of ours: the next endpoint is asked, at the beginning and later.
async fn learner_among_the_endpoints_is_skipped() {
    for program in [None, current()] {
        let setup = program.iter().fold(Setup::new(), |setup, program| setup.program(program));
        let mut fixture = Fixture::on(setup).await;
        let learner = fixture.etcd.add_learner().await.unwrap();
        let (voter, learner) = (fixture.proxy(0), fixture.etcd.addr(learner).to_string());
        // Whichever comes first, it is the learner most of the time.
        let endpoints = [learner.clone(), learner.clone(), learner, voter.addr().to_string()];
        for _ in 0..4 {
            let manager = open(EtcdConfig::new(endpoints.clone()).prefix(PREFIX)).await;
            let guard = hold(&manager, "n").await;
            voter.reset().await;
            eventually("a renewal", async || guard.renew().await.is_ok()).await;
            guard.release().await.unwrap();
            manager.shutdown().await.unwrap();
        }
    }
}
