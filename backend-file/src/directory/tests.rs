use lockcore::Timing;
use lockcore::backend::{AcquireRequest, Attempt, StoreConfig};
use tempfile::TempDir;

use super::*;
use crate::record::{Floor, Stamped, slot};

fn env() -> Env {
    Env::new(Timing::for_ttl(std::time::Duration::from_secs(3))).unwrap()
}

fn name() -> LockName {
    LockName::new("a").unwrap()
}

/// A directory on which "a" was granted three times.
async fn used() -> (TempDir, FileConfig) {
    let scratch = tempfile::tempdir().unwrap();
    let config = FileConfig::new(scratch.path());
    assert_eq!(cycles(&config, 3).await, 3);
    (scratch, config)
}

/// Counts `count` grants of "a"; the last counter.
async fn cycles(config: &FileConfig, count: u32) -> u64 {
    let env = env();
    let backend = config.open(env.clone()).await.unwrap();
    let mut last = 0;
    for _ in 0..count {
        let request = AcquireRequest::new(name(), env.owner_id(), env.timing().ttl);
        let Attempt::Granted(grant) = backend.try_acquire(&request).await.unwrap() else {
            panic!("the lock is free")
        };
        assert!(grant.counter > last);
        last = grant.counter;
        backend.release(&grant).await.unwrap();
    }
    last
}

/// Whoever takes a file away may die after each of its steps: set aside, folded, removed (D3).
#[tokio::test]
async fn taking_a_file_away_may_be_cut_short() {
    let key = Key::of(&name());
    for steps in 1..=2 {
        let (_scratch, config) = used().await;
        let directory = Directory::open(&config, &env()).unwrap();
        let aside = directory.own(OUT).join(key.as_str());
        fs::rename(directory.lock_path(&key), &aside).unwrap();
        if steps == 2 {
            let mut floor = directory.floor(&env(), Access::Raise).await.unwrap();
            directory.fold(&mut floor, 3).unwrap();
        }
        assert!(cycles(&config, 1).await > 3);
        assert!(!aside.exists());
    }
    // A sweep finishes it as well, for a name that is never used again.
    let (_scratch, config) = used().await;
    let directory = Directory::open(&config, &env()).unwrap();
    fs::rename(directory.lock_path(&key), directory.own(OUT).join(key.as_str())).unwrap();
    config.sweep().await.unwrap();
    assert_eq!(directory.floor(&env(), Access::Read).await.unwrap().counter(), 3);
}

/// A sweep may die between folding and removing, and a maker before its file is visible or right
/// after (D2, D3).
#[tokio::test]
async fn sweeping_and_making_may_be_cut_short() {
    let (_scratch, config) = used().await;
    let directory = Directory::open(&config, &env()).unwrap();
    let mut floor = directory.floor(&env(), Access::Raise).await.unwrap();
    directory.fold(&mut floor, 3).unwrap();
    drop(floor);
    assert_eq!(cycles(&config, 1).await, 4);

    fs::write(directory.own(NEW).join("00000000000000aa"), b"leasehold lo").unwrap();
    let key = Key::of(&LockName::new("b").unwrap());
    let record = |floor| {
        let seen = directory.newest(&Key::of(&name()))?;
        let (record, _) = seen.unwrap();
        Ok(Record { name: LockName::new("b").unwrap(), counter: floor + 1, ..record })
    };
    let made = directory.create(&env(), &key, record).await.unwrap();
    assert_eq!(made.map(|(_, counter)| counter), Some(4));
    assert_eq!(config.sweep().await.unwrap(), 2);
    assert_eq!(entries(&directory.own(NEW)).unwrap().len(), 0);
}

/// Between opening a file and locking it, another may have taken its place, and may be held.
#[tokio::test]
async fn a_file_in_the_place_of_another_is_not_removed() {
    let (_scratch, config) = used().await;
    let directory = Directory::open(&config, &env()).unwrap();
    let key = Key::of(&name());
    let replaced = directory.open_lock(&key).unwrap().unwrap();
    assert_eq!(config.sweep().await.unwrap(), 1);
    assert_eq!(cycles(&config, 1).await, 4);
    assert!(!directory.remove_idle(&key, replaced, u64::MAX).unwrap());
    let idle = directory.open_lock(&key).unwrap().unwrap();
    assert!(!directory.remove_idle(&key, idle, 3).unwrap());
    let idle = directory.open_lock(&key).unwrap().unwrap();
    assert!(directory.remove_idle(&key, idle, 4).unwrap());
}

/// While the floor is locked to be raised, nothing is made, for the bound of a request at most.
#[tokio::test]
async fn a_stuck_floor_is_an_error_in_time() {
    let scratch = tempfile::tempdir().unwrap();
    let config = FileConfig::new(scratch.path());
    let directory = Directory::open(&config, &env()).unwrap();
    let floor = directory.floor(&env(), Access::Raise).await.unwrap();
    let env = env();
    let backend = config.open(env.clone()).await.unwrap();
    let request = AcquireRequest::new(name(), env.owner_id(), env.timing().ttl);
    let error = env.bounded(backend.try_acquire(&request)).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("floor"), "{error}");
    drop(floor);
    assert_eq!(cycles(&config, 1).await, 1);
}

/// The directory's base is added to what is told, and kept by every raise.
#[tokio::test]
async fn the_token_base_is_added_to_every_counter() {
    let (scratch, config) = used().await;
    let based = Stamped { seq: 2, value: Floor { counter: 0, token_base: 1000 } };
    fs::write(scratch.path().join(OWN).join("floor"), slot(&based).unwrap()).unwrap();
    assert_eq!(cycles(&config, 1).await, 1004);
    config.sweep().await.unwrap();
    assert_eq!(cycles(&config, 1).await, 1005);
}
