//! `etcdctl lock`, which is Go's `concurrency.Mutex`.

use leasehold::Mode;
use libtest_mimic::Trial;
use testbed::etcd::Etcd;

use crate::queue::{NAME, NAMESPACE, Peer, SESSION, each_is_shown_and_forced_out, each_waits_its_turn, open};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        testbed::trial("etcdctl::in_one_queue_with_ours", async || {
            let server = Etcd::start().await.unwrap();
            let mut pair = [etcdctl(&server, NAME).await, etcdctl(&server, NAME).await];
            let modes = [Mode::EXCLUSIVE, Mode::SHARED, Mode::permits(1, 3).unwrap()];
            each_waits_its_turn(&server, &mut pair, &modes).await;
            each_is_shown_and_forced_out(&server, &mut pair[0], false).await;
        }),
        testbed::trial(
            "etcdctl::holding_below_a_name_does_not_block_it",
            holding_below_a_name_does_not_block_it,
        ),
    ]
}

async fn etcdctl(server: &Etcd, name: &str) -> Peer {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/foreign/etcd/etcdctl-peer").to_owned();
    Peer::start(&[program], server.addr(0), SESSION, &format!("{NAMESPACE}/{name}")).await
}

/// etcdctl reads every key below `NAME/` as a contender, so its holder of `n/b` blocks `n`: names with a slash are not
/// shared with it.
async fn holding_below_a_name_does_not_block_it() {
    let server = Etcd::start().await.unwrap();
    let locks = open(&server, SESSION).await;
    let [mut theirs, mut below] =
        [etcdctl(&server, NAME).await, etcdctl(&server, &format!("{NAME}/b")).await];
    let ours = locks.lock(format!("{NAME}/b")).unwrap().acquire().await.unwrap();
    locks.lock(NAME).unwrap().acquire().await.unwrap().release().await.unwrap();
    theirs.asks().await;
    theirs.holds().await;
    theirs.releases().await;
    ours.release().await.unwrap();

    below.asks().await;
    below.holds().await;
    theirs.asks().await;
    theirs.is_silent().await;
    // Its key lies where ours of that name do.
    assert!(locks.lock(NAME).unwrap().try_acquire().await.unwrap().is_none());
    below.releases().await;
    theirs.holds().await;
}
