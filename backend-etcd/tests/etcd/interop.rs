//! One lock shared with `etcdctl lock`, which is Go's `concurrency.Mutex`.

use std::time::Duration;

use leasehold_core::Revoke;
use testbed::Process;

use crate::fixture::{BOUND, Fixture, PREFIX, hold, hold_aside, trials};

trials![
    etcdctl_excludes_us_in_order_of_arrival,
    we_exclude_etcdctl_in_order_of_arrival,
    holding_below_a_name_does_not_block_it,
    a_foreign_holder_is_shown_and_can_be_forced_out,
];

/// `etcdctl lock` in the background: prints its key when it holds.
fn etcdctl_lock(fixture: &Fixture, name: &str) -> Process {
    fixture.etcd.ctl_in_background(["lock", &format!("{PREFIX}/{name}")]).unwrap()
}

async fn etcdctl_holds(process: &mut Process) -> String {
    process.next_line(BOUND).await.unwrap()
}

/// It releases when it is interrupted.
async fn etcdctl_releases(mut process: Process) {
    process.terminate(BOUND).await.unwrap();
}

async fn etcdctl_excludes_us_in_order_of_arrival() {
    let fixture = Fixture::start().await;
    let manager = fixture.manager().await;
    let mut first = etcdctl_lock(&fixture, "n");
    let key = etcdctl_holds(&mut first).await;
    assert!(key.starts_with(&format!("{PREFIX}/n/")), "{key}");

    assert!(manager.lock("n").unwrap().try_acquire().await.unwrap().is_none());
    let ours = hold_aside(&manager, "n");
    fixture.store.queued("n", 2).await;
    let mut second = etcdctl_lock(&fixture, "n");
    fixture.store.queued("n", 3).await;

    etcdctl_releases(first).await;
    let guard = ours.end("we hold after etcdctl").await;
    guard.ensure_held().unwrap();
    fixture.store.queued("n", 2).await;
    assert!(second.next_line(Duration::from_millis(300)).await.is_err(), "etcdctl holds beside us");
    guard.release().await.unwrap();
    etcdctl_holds(&mut second).await;
    assert!(manager.lock("n").unwrap().try_acquire().await.unwrap().is_none());
    etcdctl_releases(second).await;
}

async fn we_exclude_etcdctl_in_order_of_arrival() {
    let fixture = Fixture::start().await;
    let (one, other) = (fixture.manager().await, fixture.manager().await);
    let guard = hold(&one, "n").await;
    let mut theirs = etcdctl_lock(&fixture, "n");
    fixture.store.queued("n", 2).await;
    let last = hold_aside(&other, "n");
    fixture.store.queued("n", 3).await;
    assert!(theirs.next_line(Duration::from_millis(300)).await.is_err(), "etcdctl holds beside us");

    let token = guard.token();
    guard.release().await.unwrap();
    etcdctl_holds(&mut theirs).await;
    assert_eq!(fixture.store.queue("n").await.len(), 2);
    etcdctl_releases(theirs).await;
    let last = last.end("we hold after etcdctl").await;
    assert!(last.token() > token);
}

/// etcdctl reads every key below `NAME/` as a contender, so its holder of `a/b` blocks `a`: names with a slash are not
/// shared with it.
async fn holding_below_a_name_does_not_block_it() {
    let fixture = Fixture::start().await;
    let manager = fixture.manager().await;
    let below = hold(&manager, "a/b").await;
    hold(&manager, "a").await.release().await.unwrap();
    let mut theirs = etcdctl_lock(&fixture, "a");
    etcdctl_holds(&mut theirs).await;
    etcdctl_releases(theirs).await;
    below.release().await.unwrap();

    let mut below = etcdctl_lock(&fixture, "a/b");
    etcdctl_holds(&mut below).await;
    let mut theirs = etcdctl_lock(&fixture, "a");
    assert!(theirs.next_line(Duration::from_secs(1)).await.is_err(), "etcdctl no longer blocks names above");
    // Its key lies where ours of that name do.
    assert!(manager.lock("a").unwrap().try_acquire().await.unwrap().is_none());
    etcdctl_releases(below).await;
    etcdctl_holds(&mut theirs).await;
}

/// It answers no request to release, but its key can be shown and deleted.
async fn a_foreign_holder_is_shown_and_can_be_forced_out() {
    let fixture = Fixture::start().await;
    let manager = fixture.manager().await;
    let mut theirs = etcdctl_lock(&fixture, "n");
    let key = etcdctl_holds(&mut theirs).await;
    let state = manager.inspect("n").await.unwrap();
    let holder = state.holder().expect("it is held");
    assert!(holder.foreign && holder.label.contains(&key), "{holder:?}");
    assert_eq!(state.contenders, 0);

    let ours = hold_aside(&manager, "n");
    fixture.store.queued("n", 2).await;
    assert_eq!(manager.inspect("n").await.unwrap().contenders, 1);
    manager.revoke("n", Revoke::Force).await.unwrap();
    let guard = ours.end("we hold after it was forced out").await;
    assert_eq!(fixture.store.queue("n").await.len(), 1);
    guard.release().await.unwrap();
}
