//! Holders and waiters that are killed, stopped, revoked; a disk that is full.

use std::process::Command;

use leasehold::backend::Revocation;
use leasehold::connect;
use libtest_mimic::{Completion, Failed, Trial};
use tokio::runtime::Runtime;

use crate::rig::Rig;

/// The kernel frees the lock of a process that dies: no lease has to run out (G6).
pub(crate) async fn a_killed_holder_frees_the_lock_at_once() {
    let rig = Rig::new();
    let (mut holder, mut next) = (rig.holder().await, rig.holder().await);
    let token = holder.acquire("a").await;
    assert_eq!(next.ask("try a").await, "busy");
    next.order("acquire a").await;
    holder.process.kill().await.unwrap();
    assert!(next.token().await > token);
}

/// A process that is stopped holds on, however long: there is no lease that could run out.
pub(crate) async fn a_stopped_holder_keeps_the_lock() {
    let rig = Rig::new();
    let (mut holder, mut next) = (rig.holder().await, rig.holder().await);
    holder.acquire("a").await;
    holder.process.stop().await.unwrap();
    // Asking costs the asked nothing, and a revocation it cannot answer takes a whole ttl.
    let admin = connect(rig.url()).await.unwrap();
    assert_eq!(admin.revoke("a", false).await.unwrap(), Revocation::Unanswered);
    assert_eq!(next.ask("try a").await, "busy");
    holder.process.cont().unwrap();
    // What was not answered was withdrawn: nobody is surprised later.
    assert_eq!(holder.ask("state").await, "held");
    assert_eq!(holder.ask("release").await, "released");
    next.acquire("a").await;
}

/// A child that was started under the lock does not inherit it.
pub(crate) async fn a_child_of_the_holder_does_not_keep_the_lock() {
    let rig = Rig::new();
    let (mut holder, mut next) = (rig.holder().await, rig.holder().await);
    holder.acquire("a").await;
    let child = holder.ask("child").await;
    let child = child.strip_prefix("child ").unwrap().to_owned();
    holder.process.kill().await.unwrap();
    next.acquire("a").await;
    let ended = Command::new("kill").arg(&child).status().unwrap();
    assert!(ended.success(), "the child was gone before the lock was taken, which shows nothing");
}

/// A waiter that dies leaves nothing that those behind it would wait for (G6).
pub(crate) async fn a_killed_waiter_disturbs_nobody() {
    let rig = Rig::new();
    let (mut holder, mut waiter, mut next) = (rig.holder().await, rig.holder().await, rig.holder().await);
    let token = holder.acquire("a").await;
    waiter.order("acquire a").await;
    next.order("acquire a").await;
    waiter.process.kill().await.unwrap();
    assert_eq!(holder.ask("release").await, "released");
    assert!(next.token().await > token);
}

/// `inspect` and `list` see across processes, and a revocation is heard there.
pub(crate) async fn another_process_is_seen_and_revoked() {
    let rig = Rig::new();
    let mut holder = rig.holder().await;
    let (token, _) = (holder.acquire("a").await, rig.holder().await);
    let admin = connect(rig.url()).await.unwrap();
    let seen = admin.inspect("a").await.unwrap().holder.expect("it is held");
    assert_eq!(seen.token.map(|token| token.get()), Some(token));
    assert!(seen.label.ends_with(&format!("/{}", holder.process.pid())), "{}", seen.label);
    let names: Vec<_> =
        admin.list("").await.unwrap().into_iter().map(|state| state.name.to_string()).collect();
    assert_eq!(names, ["a"]);
    assert_eq!(admin.revoke("a", false).await.unwrap(), Revocation::Released);
    assert_eq!(holder.ask("state").await, "lost Revoked");
    assert_eq!(admin.inspect("a").await.unwrap().holder, None);
    assert_eq!(admin.revoke("a", false).await.unwrap(), Revocation::NotHeld);
}

/// Whatever ends and begins again, tokens grow while the directory lives (G3).
pub(crate) async fn tokens_grow_across_a_restart_of_everything() {
    let rig = Rig::new();
    let mut last = 0;
    for round in 0..4 {
        let mut holder = rig.holder().await;
        let token = holder.acquire("a").await;
        assert!(token > last, "token {token} after {last}");
        last = token;
        if round % 2 == 0 {
            holder.process.kill().await.unwrap();
        } else {
            assert_eq!(holder.ask("release").await, "released");
        }
    }
}

/// On a full disk an acquisition fails, says so, and destroys nothing; with room again it works.
pub(crate) fn full_disk() -> Trial {
    Trial::ignorable_test("file::a_full_disk_refuses_and_destroys_nothing", || {
        let mount = testbed::Scratch::new("full-disk").map_err(|error| Failed::from(error.to_string()))?;
        let path = mount.path().to_owned();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&path).output();
        if !mounted.is_ok_and(|output| output.status.success()) {
            return Ok(Completion::ignored_with("needs the right to mount a small file system"));
        }
        let outcome = std::panic::catch_unwind(|| Runtime::new().unwrap().block_on(on_a_full_disk(&path)));
        let unmounted = Command::new("umount").arg(&path).status();
        if unmounted.is_ok_and(|status| status.success()) && outcome.is_ok() {
            Ok(Completion::Completed)
        } else {
            Err("see above".into())
        }
    })
}

async fn on_a_full_disk(disk: &std::path::Path) {
    let rig = Rig::on(&disk.join("locks"));
    let locks = connect(rig.url()).await.unwrap();
    let before = locks.lock("a").unwrap().acquire().await.unwrap();
    let token = before.token();
    before.release().await.unwrap();

    let filler = disk.join("filler");
    let mut size = 1 << 16;
    while size > 0 {
        // Until not one more byte fits.
        let mut text = std::fs::read(&filler).unwrap_or_default();
        text.resize(text.len() + size, b'x');
        if std::fs::write(&filler, &text).is_err() {
            size /= 2;
        }
    }
    let refused = locks.lock("new").unwrap().acquire().await.expect_err("the disk is full");
    assert_eq!(refused.effect(), leasehold::Effect::NotApplied, "{refused}");
    std::fs::remove_file(&filler).unwrap();
    locks.lock("new").unwrap().acquire().await.unwrap().release().await.unwrap();
    assert!(locks.lock("a").unwrap().acquire().await.unwrap().token() > token);
}
