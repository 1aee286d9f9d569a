//! Openings that are cancelled, and endpoints that serve no locks; the failures of the network that all stores share are in
//! `tests/servers` of the workspace.

use std::time::Duration;

use leasehold_etcd::EtcdConfig;
use testbed::Mode;
use testbed::etcd::{Setup, current};

use crate::rig::{
    BOUND, EARLY, PREFIX, Rig, TTL, behind, eventually, hold, open, open_with_ttl, trials, until, within,
};

trials![cancelled_open_leaves_nothing, learner_among_the_endpoints_is_skipped];

/// Cancelled in the middle, and when only the reply to the last request is missing: no lease stays, and no connection.
async fn cancelled_open_leaves_nothing() {
    cancelled_once(async |rig| rig.store.leases().await == 1).await;
    cancelled_once(async |rig| !rig.store.keys(&format!("{PREFIX}/%session/")).await.is_empty()).await;
}

async fn cancelled_once(has_begun: impl AsyncFn(&Rig) -> bool) {
    let rig = Rig::start().await;
    let proxy = rig.proxy(0);
    // Slow enough to be seen in the middle of something.
    proxy.set_both(Mode::delay(Duration::from_millis(150))).await;
    // Much longer than the test waits.
    let opening = open_with_ttl(behind(&proxy), 10 * TTL);
    tokio::select! {
        _ = opening => panic!("it is opened already"),
        () = eventually("it has begun", async || has_begun(&rig).await) => {}
    }
    within(EARLY, "the lease ends", until(async || rig.store.leases().await == 0)).await;
    within(BOUND, "no connection stays", proxy.idle()).await;
}

/// A learner answers no request of ours: the next endpoint is asked, at the beginning and later.
async fn learner_among_the_endpoints_is_skipped() {
    for program in [None, current()] {
        let setup = program.iter().fold(Setup::new(), |setup, program| setup.program(program));
        let mut rig = Rig::on(setup).await;
        let learner = rig.etcd.add_learner().await.unwrap();
        let (voter, learner) = (rig.proxy(0), rig.etcd.addr(learner).to_string());
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
