//! The same locks without `async`: on threads, and refused inside a runtime.

mod scenes;

use std::thread;
use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::blocking::{LockManager, connect};
use leasehold::memory::MemoryConfig;

/// Two processes on one store.
fn two() -> [LockManager; 2] {
    let store = MemoryConfig::private();
    [(); 2].map(|()| LockManager::open(leasehold::LockManager::builder(store.clone())).expect("memory opens"))
}

#[test]
fn threads_of_two_managers_exclude_each_other() {
    scenes::threads_of_two_managers_exclude_each_other(two(), 200);
}

#[test]
fn waits_and_holds_end_as_those_of_the_async_api() {
    scenes::waits_and_holds_end_as_those_of_the_async_api(two());
}

#[test]
fn watch_is_an_iterator() {
    scenes::watch_is_an_iterator(two());
}

#[test]
fn several_locks_are_acquired_without_async() {
    scenes::several_locks_are_acquired_without_async(two());
}

/// Nothing blocks the runtime; what needs no request works there, and so does a drop.
#[tokio::test]
async fn blocking_inside_a_runtime_is_refused_by_name() {
    let opened = thread::spawn(|| {
        let [one, other] = two();
        let guard = one.lock("a").unwrap().acquire().unwrap();
        let states = one.watch("a").unwrap();
        let changes = guard.changes();
        (one, other, guard, states, changes)
    });
    let (one, other, guard, mut states, mut changes) = opened.join().unwrap();
    guard.ensure_held().unwrap();
    let lock = one.lock("b").unwrap();
    let refusals = [
        tokio::task::spawn_blocking(move || lock.acquire().map(drop)).await.unwrap(),
        changes.next().unwrap().map(drop),
        connect("memory://").map(drop),
        one.lock("a").and_then(|lock| lock.acquire()).map(drop),
        one.inspect("a").map(drop),
        states.next().unwrap().map(drop),
        one.shutdown(),
        guard.release(),
    ];
    for refused in refusals {
        let refused = refused.unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::Misuse);
        let text = refused.to_string();
        assert!(text.contains("leasehold::LockManager") && text.contains("std::thread"), "{text}");
    }
    assert!(states.next().is_none() && changes.next().is_none());
    // The refused release was made in the background, and the last handle ends the session.
    drop((one, states, changes));
    let free =
        thread::spawn(move || other.lock("a").unwrap().wait(Duration::from_secs(5)).acquire().map(drop));
    free.join().unwrap().unwrap();
}
