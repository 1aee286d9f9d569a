//! The files on the disk: which last, which may be removed, and which are left alone.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use leasehold_core::backend::{Severity, StoreEvent};
use leasehold_core::{Effect, ErrorKind, LostReason};
use leasehold_file::FileConfig;

use crate::fixture::{Fixture, Manager, files, name};

#[tokio::test]
async fn files_are_private_by_default() {
    let fixture = Fixture::new();
    let a = fixture.open().await;
    a.grant("a").await;
    let mode = |path: &str| fs::metadata(fixture.file(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(""), mode(".leasehold"), mode("a.lock")), (0o700, 0o700, 0o600));
    assert_eq!(mode(".leasehold/floor"), 0o600);
}

#[tokio::test]
async fn a_sweep_leaves_what_is_in_use() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.open().await, fixture.open().await);
    let held = a.grant("held").await;
    for lock in ["x", "y", "z"] {
        a.cycle(lock).await;
    }
    fs::write(fixture.file("foreign.lock"), "not ours").unwrap();
    fs::write(fixture.file("notes.txt"), "not ours").unwrap();
    for leftover in ["sessions/00000000000000aa", "waiting/x.00000000000000aa", "new/00000000000000aa"] {
        fs::write(fixture.file(".leasehold").join(leftover), "").unwrap();
    }
    assert_eq!(b.contenders("x").await, 0);
    assert_eq!(fixture.config().sweep().await.unwrap(), 3);
    assert_eq!(fs::read_to_string(fixture.file("foreign.lock")).unwrap(), "not ours");
    assert!(fixture.file("notes.txt").exists() && fixture.file("held.lock").exists());
    assert_eq!((fixture.traces("sessions"), fixture.traces("waiting"), fixture.traces("new")), (2, 0, 0));
    assert!(b.refusal("held").await.is_some());
    a.release(&held).await;
    assert!(b.cycle("x").await > 1);
}

#[test]
fn a_directory_is_made_once() {
    let fixture = Fixture::new();
    let all = Barrier::new(8);
    let counters = thread::scope(|scope| {
        let first = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            all.wait();
            runtime.block_on(async {
                let a = fixture.open().await;
                a.backend.acquire(&a.request("a")).await.unwrap().counter
            })
        };
        let sessions: Vec<_> = (0..8).map(|_| scope.spawn(first)).collect();
        sessions.into_iter().map(|session| session.join().unwrap()).collect::<BTreeSet<_>>()
    });
    assert_eq!(counters, (1..=8).collect());
}

#[tokio::test]
async fn idle_files_are_removed_beyond_the_bound() {
    let fixture = Fixture::new();
    let a = Manager::open(&fixture.config().keep(8)).await.unwrap();
    for lock in 0..64 {
        a.cycle(&format!("job/{lock}")).await;
        tokio::task::yield_now().await;
    }
    let left = files(&fixture.path());
    assert!(left < 40, "{left} files are left");
}

#[tokio::test]
async fn foreign_entry_is_left_alone() {
    let fixture = Fixture::new();
    let a = fixture.open().await;
    a.cycle("ours").await;
    let ours = fs::read(fixture.file("ours.lock")).unwrap();
    let mut newer = ours.clone();
    newer[16] = 9;
    let mut damaged = ours.clone();
    damaged[100] ^= 1;
    let table = [
        ("a", b"#!/bin/sh\n".to_vec(), "not a lock file"),
        ("b", Vec::new(), "not a lock file"),
        ("c", newer, "format version 9"),
        ("d", damaged, "damaged"),
        ("e", ours, "belongs to the lock \"ours\""),
    ];
    for (lock, bytes, says) in table {
        let path = fixture.file(&format!("{lock}.lock"));
        fs::write(&path, &bytes).unwrap();
        for error in [a.attempt(lock).await.unwrap_err(), a.backend.inspect(&name(lock)).await.unwrap_err()] {
            assert_eq!((error.kind(), error.effect()), (&ErrorKind::Protocol, Effect::NotApplied));
            assert!(error.to_string().contains(says), "{error}");
        }
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
    // A link to what would be the file itself.
    a.cycle("f").await;
    fs::rename(fixture.file("f.lock"), fixture.file("elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere", fixture.file("f.lock")).unwrap();
    for error in [a.attempt("f").await.unwrap_err(), a.backend.inspect(&name("f")).await.unwrap_err()] {
        assert_eq!(*error.kind(), ErrorKind::Protocol);
        assert!(error.to_string().contains("another kind of file"), "{error}");
    }
    let findings = a.backend.diagnose().await.unwrap();
    let files = findings.iter().find(|finding| finding.subject == "files").unwrap();
    assert!(files.severity == Severity::Warning && files.detail.contains("6 unreadable"), "{files:?}");
}

/// A lock file that is removed or moved by hand, or has another name besides, as a backup makes it, ends the hold as soon as
/// that is seen. So does a directory that is moved.
#[tokio::test]
async fn holders_are_told_of_removed_files() {
    let fixture = Fixture::new();
    let mut a = fixture.open().await;
    let gone =
        |lock: &str, counter| StoreEvent::GrantLost { name: name(lock), counter, reason: LostReason::Gone };
    let removals: [fn(&Path, &Path); 3] = [
        |file, _| fs::remove_file(file).unwrap(),
        |file, other| fs::rename(file, other).unwrap(),
        |file, other| {
            fs::remove_file(other).unwrap();
            fs::hard_link(file, other).unwrap();
            fs::remove_file(file).unwrap();
        },
    ];
    let mut first = a.grant("a").await;
    for remove in removals {
        remove(&fixture.file("a.lock"), &fixture.file("backup"));
        assert_eq!(a.event().await, gone("a", first.counter));
        assert_eq!(a.backend.release(&first).await.unwrap_err().lost_reason(), Some(LostReason::Gone));
        first = a.grant("a").await;
    }
    let second = a.grant("b").await;
    fs::rename(fixture.path(), fixture.path().with_extension("old")).unwrap();
    let mut expected = vec![gone("a", first.counter), gone("b", second.counter)];
    while !expected.is_empty() {
        let event = a.event().await;
        match expected.iter().position(|lost| *lost == event) {
            Some(at) => drop(expected.remove(at)),
            None => assert!(matches!(event, StoreEvent::Warning(_)), "{event:?}"),
        }
    }
    for grant in [first, second] {
        let error = a.backend.release(&grant).await.unwrap_err();
        assert_eq!(error.lost_reason(), Some(LostReason::Gone));
    }
    let error = a.attempt("a").await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("was removed"), "{error}");
}

/// A directory that was removed, or moved away, and made again is another one: who had the old one
/// open locks nothing in either.
#[tokio::test]
async fn a_directory_made_again_is_another() {
    for moved in [false, true] {
        let fixture = Fixture::new();
        let a = fixture.open().await;
        a.cycle("old").await;
        let held = a.grant("held").await;
        let mut b = fixture.open().await;
        let waiting = b.waiter("held").await;
        if moved {
            fs::rename(fixture.path(), fixture.path().with_extension("old")).unwrap();
        } else {
            fs::remove_dir_all(fixture.path()).unwrap();
        }
        let c = fixture.open().await;
        for lock in ["old", "new"] {
            let error = a.attempt(lock).await.unwrap_err();
            assert_eq!((error.kind(), error.effect()), (&ErrorKind::Unavailable, Effect::NotApplied));
            assert!(error.to_string().contains("was removed"), "{error}");
            assert_eq!(c.backend.inspect(&name(lock)).await.unwrap().holders.pop(), None);
            c.cycle(lock).await;
        }
        let lost = waiting.end("the wait").await.unwrap_err();
        assert_eq!(lost.lost_reason(), Some(LostReason::Gone), "{lost}");
        assert!(a.backend.release(&held).await.is_err());
    }
}

/// Without its floor a directory has lost counters, and says so; with nothing of ours in it, it is new.
#[tokio::test]
async fn a_directory_without_its_floor_is_refused() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.path()).unwrap();
    fs::write(fixture.file("cargo.lock"), "not ours").unwrap();
    fixture.open().await.cycle("a").await;
    fs::remove_file(fixture.file(".leasehold/floor")).unwrap();
    let Err(error) = Manager::open(&fixture.config()).await else { panic!("opened without a floor") };
    assert_eq!(*error.kind(), ErrorKind::Protocol);
    assert!(error.to_string().contains("no floor"), "{error}");
}

#[tokio::test]
async fn a_place_that_cannot_work_is_refused() {
    let fixture = Fixture::new();
    fs::write(fixture.path(), "a file").unwrap();
    let Err(error) = Manager::open(&fixture.config()).await else { panic!("opened a file") };
    assert_eq!(*error.kind(), ErrorKind::Protocol, "{error}");
    assert!(error.to_string().contains(&fixture.path().display().to_string()), "{error}");
    // The kernel lets nobody write there, not even its administrator.
    let Err(error) = Manager::open(&FileConfig::new("/sys/locks")).await else { panic!("opened /sys") };
    assert_eq!((error.kind(), error.effect()), (&ErrorKind::Denied, Effect::NotApplied), "{error}");
}
