//! Losing a lock: stop the work, before anybody else can hold it.
//!
//! `cargo run --example lost_lease`

use std::time::Duration;

use futures_util::StreamExt;
use leasehold::{LockGuard, Revoke};

#[tokio::main]
async fn main() -> leasehold::Result<()> {
    let locks = leasehold::connect("memory://shared?owner=worker").await?;
    let admin = leasehold::connect("memory://shared?owner=admin").await?;

    // By hand: the loss is a future, to be waited for beside the work.
    let guard = locks.lock("index")?.acquire().await?;
    let mut changes = guard.changes();
    let revoked = tokio::join!(work_until_lost(&guard), admin.revoke("index", Revoke::AT_ONCE)).1?;
    println!("the administrator's request: {revoked:?}");
    while let Some(change) = changes.next().await {
        println!("the guard: {change:?}");
    }
    println!("releasing it now: {}", guard.release().await.expect_err("it was lost"));

    // Or by `with`, which drops the work on loss and releases behind it.
    let lock = locks.lock("index")?;
    let (outcome, _) =
        tokio::join!(lock.with(async |held| endless(held).await), admin.revoke("index", Revoke::AT_ONCE));
    println!("with: {}", outcome.expect_err("it was lost"));
    Ok(())
}

async fn work_until_lost(guard: &LockGuard) {
    tokio::select! {
        biased;
        reason = guard.lost() => println!("stopped: {reason}"),
        () = endless(guard) => {}
    }
}

async fn endless(guard: &LockGuard) {
    while guard.ensure_held().is_ok() {
        // One piece of work; short enough to look at the guard in between.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
