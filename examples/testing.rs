//! Testing a program that locks: an hour of waiting and a lost lock, in no time.
//!
//! `cargo run --example testing`; in a program of your own these are tests with `#[tokio::test(start_paused = true)]`.

use std::time::Duration;

use leasehold::clock::TokioClock;
use leasehold::memory::MemoryConfig;
use leasehold::testing::{manager, manager_on};
use leasehold::{LockManager, LockName, Result};

/// The program under test: makes the report unless another process does.
async fn report(locks: &LockManager) -> Result<&'static str> {
    let Some(guard) = locks.lock("report")?.try_acquire_for(Duration::from_secs(3600)).await? else {
        return Ok("busy");
    };
    let work = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        "made"
    };
    let made = tokio::select! {
        made = work => made,
        reason = guard.lost() => {
            println!("lost: {reason}");
            "lost"
        }
    };
    Ok(made)
}

async fn it_is_made_once() -> Result<()> {
    let locks = manager().await;
    assert_eq!(report(&locks).await?, "made");
    let _held = locks.lock("report")?.acquire().await?;
    assert_eq!(report(&locks).await?, "busy");
    Ok(())
}

async fn it_stops_at_a_loss() -> Result<()> {
    let store = MemoryConfig::private();
    let (locks, name) = (manager_on(&store).await, LockName::new("report")?);
    let server = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(store.store().evict(&name, &TokioClock::new(), true));
    };
    let (made, ()) = tokio::join!(report(&locks), server);
    assert_eq!(made?, "lost");
    Ok(())
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<()> {
    it_is_made_once().await?;
    it_stops_at_a_loss().await?;
    println!("both hold");
    Ok(())
}
