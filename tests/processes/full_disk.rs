//! The file store on a disk that is full.

use std::path::Path;
use std::process::Command;

use leasehold::connect;
use libtest_mimic::{Completion, Failed, Trial};
use tokio::runtime::Runtime;

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

async fn on_a_full_disk(disk: &Path) {
    let locks = connect(&format!("file://{}", disk.join("locks").display())).await.unwrap();
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
