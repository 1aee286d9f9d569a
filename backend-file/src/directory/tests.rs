use std::fs;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use leasehold_core::Timing;
use leasehold_core::backend::{AcquireRequest, Attempt, StoreConfig};
use leasehold_core::clock::TokioClock;
use tempfile::TempDir;

use super::*;
use crate::record::SessionId;

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

/// Whoever takes a file away may die after each of its steps: set aside, folded, removed (file.directory-3).
#[tokio::test]
async fn taking_a_file_away_may_be_cut_short() {
    let key = Key::of(&name());
    for steps in 1..=2 {
        let (_scratch, config) = used().await;
        let directory = Directory::open(&config, &env()).unwrap();
        let aside = directory.parts.out.at(key.as_str());
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
    fs::rename(directory.lock_path(&key), directory.parts.out.at(key.as_str())).unwrap();
    config.sweep().await.unwrap();
    assert_eq!(directory.floor(&env(), Access::Read).await.unwrap().counter(), 3);
}

/// A sweep may die between folding and removing, and a maker before its file is visible or right
/// after (file.directory-2, file.directory-3).
#[tokio::test]
async fn sweeping_and_making_may_be_cut_short() {
    let (_scratch, config) = used().await;
    let directory = Directory::open(&config, &env()).unwrap();
    let mut floor = directory.floor(&env(), Access::Raise).await.unwrap();
    directory.fold(&mut floor, 3).unwrap();
    drop(floor);
    assert_eq!(cycles(&config, 1).await, 4);

    fs::write(directory.parts.new.at("00000000000000aa"), b"leasehold lo").unwrap();
    let key = Key::of(&LockName::new("b").unwrap());
    let record = |floor| {
        let seen = directory.newest(&Key::of(&name()))?;
        let (record, _) = seen.unwrap();
        Ok(FileRecord { name: LockName::new("b").unwrap(), counter: floor + 1, ..record })
    };
    let made = directory.create(&env(), &key, record).await.unwrap();
    assert_eq!(made.map(|(_, counter)| counter), Some(4));
    assert_eq!(config.sweep().await.unwrap(), 2);
    assert_eq!(directory.parts.new.entries().unwrap().len(), 0);
}

/// Whoever makes a file waits for the floor; if the file before it was set aside meanwhile, by one who
/// died of it, its counter is not in that floor yet (file.directory-3).
#[tokio::test]
async fn a_file_set_aside_meanwhile_is_seen() {
    let (_scratch, config) = used().await;
    let (directory, env, key) = (Directory::open(&config, &env()).unwrap(), env(), Key::of(&name()));
    let (record, _) = directory.newest(&key).unwrap().unwrap();
    let record = |floor| Ok(FileRecord { counter: floor + 1, ..record.clone() });
    let floor = directory.floor(&env, Access::Raise).await.unwrap();
    let made = {
        let mut making = std::pin::pin!(directory.create(&env, &key, record));
        let polled = making.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Pending));
        fs::rename(directory.lock_path(&key), directory.parts.out.at(key.as_str())).unwrap();
        drop(floor);
        making.await.unwrap()
    };
    assert!(made.is_none());
    let made = directory.create(&env, &key, record).await.unwrap();
    assert_eq!(made.map(|(_, counter)| counter), Some(4));
}

/// A new name is on the disk before it counts: where that cannot be, nothing is granted or left (file.directory-2).
#[tokio::test]
async fn a_name_that_cannot_be_secured_is_taken_back() {
    let (_scratch, config) = used().await;
    let mut directory = Directory::open(&config, &env()).unwrap();
    let (record, _) = directory.newest(&Key::of(&name())).unwrap().unwrap();
    let key = Key::of(&LockName::new("b").unwrap());
    directory.folder = directory.folder.unsyncable();
    let record = |floor| Ok(FileRecord { name: LockName::new("b").unwrap(), counter: floor + 1, ..record });
    let error = directory.create(&env(), &key, record).await.unwrap_err();
    assert!(error.to_string().contains("sync the directory"), "{error}");
    assert!(!directory.lock_path(&key).exists());
    assert_eq!(directory.parts.new.entries().unwrap().len(), 0);
}

/// A directory that is moved away while a name is made there grants nothing (file.directory-1, file.directory-5).
#[tokio::test]
async fn a_name_made_in_a_directory_that_goes_is_not_granted() {
    let (scratch, config) = used().await;
    let directory = Directory::open(&config, &env()).unwrap();
    let (record, _) = directory.newest(&Key::of(&name())).unwrap().unwrap();
    let other = LockName::new("b").unwrap();
    let key = Key::of(&other);
    let away = scratch.path().with_extension("away");
    let record = |floor| {
        fs::rename(scratch.path(), &away).unwrap();
        Ok(FileRecord { name: other, counter: floor + 1, ..record })
    };
    let made = directory.create(&env(), &key, record).await;
    let seen = see(directory.open_lock(&key).unwrap().unwrap().file(), Path::new("b"));
    fs::rename(&away, scratch.path()).unwrap();
    assert!(made.unwrap().is_none());
    assert!(seen.unwrap().is_over());
}

/// A session whose file went, or became another, before it was locked is not begun: nobody would see
/// that it lives.
#[tokio::test]
async fn a_session_without_its_file_is_not_begun() {
    let (_scratch, config) = used().await;
    let directory = Directory::open(&config, &env()).unwrap();
    let sessions = &directory.parts.sessions;
    for (id, replaced) in [(SessionId(1), false), (SessionId(2), true)] {
        let (trace, file) = directory.leave(sessions, id.to_hex()).unwrap().unwrap();
        sessions.remove(&id.to_hex()).unwrap();
        if replaced {
            fs::write(sessions.at(&id.to_hex()), "").unwrap();
        }
        assert!(directory.settle(id, trace, file).unwrap().is_none());
        assert!(!directory.is_alive(id).unwrap());
    }
    let id = SessionId(3);
    let (trace, file) = directory.leave(sessions, id.to_hex()).unwrap().unwrap();
    let presence = directory.settle(id, trace, file).unwrap();
    assert!(directory.is_alive(id).unwrap());
    drop(presence);
    assert!(!directory.is_alive(id).unwrap());
}

/// A forked child has the open file as well: a lock ends when its holder lets go, not when the last of
/// them closes it.
#[tokio::test]
async fn a_lock_ends_while_a_child_has_its_file() {
    let (_scratch, config) = used().await;
    let directory = Directory::open(&config, &env()).unwrap();
    let key = Key::of(&name());
    let lock = || {
        let opened = directory.open_lock(&key).unwrap().unwrap();
        Locked::try_lock(opened, &directory.lock_path(&key)).unwrap()
    };
    let locked = lock().unwrap();
    let childs = locked.file().try_clone().unwrap();
    assert!(lock().is_err());
    drop(locked);
    assert!(lock().is_ok());
    drop(childs);
}

/// Whoever waits for the floor is not overtaken by the other side, without a pause as that may come:
/// neither who raises it, by those who make names, nor they by the next who raises it.
#[tokio::test]
async fn nobody_is_starved_of_the_floor() {
    let (_scratch, config) = used().await;
    let (directory, env) = (Directory::open(&config, &env()).unwrap(), env());
    for (first, second) in [(Access::Read, Access::Raise), (Access::Raise, Access::Read)] {
        let has_it = directory.floor(&env, first).await.unwrap();
        let mut waits = std::pin::pin!(directory.floor(&env, second));
        assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let mut later = std::pin::pin!(directory.floor(&env, first));
        // Where both may have the floor, the later one would have it now; else as soon as it is free.
        if first == Access::Raise {
            assert!(later.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            drop(has_it);
            overtakes_not(&env, later.as_mut()).await;
        } else {
            overtakes_not(&env, later.as_mut()).await;
            drop(has_it);
        }
        drop(waits.await.unwrap());
        later.await.unwrap();
    }
}

/// Ends before a waiter for the floor skips the gate.
async fn overtakes_not(env: &Env, later: impl Future<Output = Result<floor::FloorLock>>) {
    tokio::select! {
        biased;
        () = env.sleep(env.timing().op_timeout / 8) => {}
        _ = later => panic!("it comes first"),
    }
}

/// The gate excludes no process: one that is locked by a stopped process is skipped.
#[tokio::test]
async fn a_stuck_gate_is_passed_by() {
    let (_scratch, config) = used().await;
    let env = Env::new(Timing::for_ttl(std::time::Duration::from_millis(600))).unwrap();
    let directory = Directory::open(&config, &env).unwrap();
    drop(directory.floor(&env, Access::Read).await.unwrap());
    let gate = File::open(directory.parts.own.at("gate")).unwrap();
    gate.try_lock().unwrap();
    for access in [Access::Read, Access::Raise] {
        drop(directory.floor(&env, access).await.unwrap());
    }
}

#[tokio::test]
async fn a_gate_that_cannot_be_locked_is_passed_by_at_once() {
    type Stand = fn(&Path) -> io::Result<()>;
    let stands: [Stand; 2] = [|at| fs::create_dir(at), |at| std::os::unix::fs::symlink("nowhere", at)];
    for stand in stands {
        let (_scratch, config) = used().await;
        let (directory, env) = (Directory::open(&config, &env()).unwrap(), env());
        let gate = directory.parts.own.at("gate");
        let _ = fs::remove_file(&gate);
        stand(&gate).unwrap();
        for access in [Access::Read, Access::Raise] {
            let mut floor = std::pin::pin!(directory.floor(&env, access));
            let polled = floor.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(polled, Poll::Ready(Ok(_))), "{access:?}: {polled:?}");
        }
    }
}

#[tokio::test]
async fn a_diagnosis_neither_makes_nor_waits_for_anything() {
    let (_scratch, config) = used().await;
    let (directory, env) = (Directory::open(&config, &env()).unwrap(), env());
    let gate = directory.parts.own.at("gate");
    let floor = directory.floor(&env, Access::Raise).await.unwrap();
    let _ = fs::remove_file(&gate);
    let findings = directory.diagnose().await.unwrap();
    assert!(findings.iter().any(|finding| finding.subject == "floor"), "{findings:?}");
    assert!(!gate.exists());
    drop(floor);
}

/// A raise that the floor's holder delays unlocks the gate after half of its patience: processes that create lock files
/// need it. The clock is paused, so that a machine under load takes none of the patience.
#[tokio::test(start_paused = true)]
async fn delayed_raise_unlocks_the_gate() {
    let (_scratch, config) = used().await;
    let env = env().with_clock(Arc::new(TokioClock::new()));
    let directory = Directory::open(&config, &env).unwrap();
    let stopped = directory.floor(&env, Access::Read).await.unwrap();
    let mut raise = std::pin::pin!(directory.floor(&env, Access::Raise));
    assert!(raise.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let gate = File::open(directory.parts.own.at("gate")).unwrap();
    assert!(gate.try_lock_shared().is_err());
    let free = async {
        while gate.try_lock_shared().is_err() {
            env.sleep(std::time::Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        biased;
        raised = raise.as_mut() => panic!("the gate was kept: {raised:?}"),
        () = free => {}
    }
    drop(stopped);
    drop(raise.await.unwrap());
}

/// Whoever passes the gate by excludes others, and is excluded.
#[tokio::test]
async fn the_floor_alone_excludes() {
    let (_scratch, config) = used().await;
    let env = Env::new(Timing::for_ttl(std::time::Duration::from_millis(600))).unwrap();
    let directory = Directory::open(&config, &env).unwrap();
    let other = File::open(directory.parts.own.at("floor")).unwrap();
    other.try_lock().unwrap();
    for access in [Access::Read, Access::Raise] {
        assert_eq!(*directory.floor(&env, access).await.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    other.unlock().unwrap();
    let floor = directory.floor(&env, Access::Raise).await.unwrap();
    assert!(other.try_lock_shared().is_err());
    drop(floor);
    let floor = directory.floor(&env, Access::Read).await.unwrap();
    assert!(other.try_lock().is_err());
    other.try_lock_shared().unwrap();
    drop(floor);
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
