//! Electing a leader: candidates wait for a lock, the leader holds it, all others watch.
//!
//! `cargo run --example elect`

use std::time::Duration;

use futures_util::StreamExt;
use leasehold::{ErrorKind, FencingToken, LockManager, Result};
use tokio::time::sleep;

const LEADER: &str = "billing/leader";

/// Leads until the work is done. Stands again when leadership is lost, or the store was away.
pub(crate) async fn stand(locks: &LockManager, address: &str) -> Result<()> {
    // Leadership is not for sharing out among the tasks of one process.
    let candidate = locks.lock(LEADER)?.metadata(address).handoff_limit(0);
    loop {
        // Dropped at its next await when leadership is lost; released only when it has ended.
        match candidate.with(async |lead| serve(address, lead.token()).await).await {
            Err(error) if error.lost_reason().is_some() => {}
            // The store is away: stand again when it is back.
            Err(error) if *error.kind() == ErrorKind::Unavailable => sleep(Duration::from_secs(1)).await,
            other => return other,
        }
    }
}

async fn serve(address: &str, term: FencingToken) {
    println!("{address} leads, term {term}");
    sleep(Duration::from_secs(3)).await;
}

#[tokio::main]
async fn main() -> Result<()> {
    // Three managers on one store stand for three processes.
    let [one, two, client] = [
        leasehold::connect("memory://election").await?,
        leasehold::connect("memory://election").await?,
        leasehold::connect("memory://election").await?,
    ];
    let candidates = async { tokio::try_join!(stand(&one, "10.0.0.1:7000"), stand(&two, "10.0.0.2:7000")) };
    let mut leaders = client.watch(LEADER)?;
    let routing = async {
        while let Some(state) = leaders.next().await {
            match state?.holder().and_then(|leader| leader.metadata.as_deref()) {
                Some(address) => println!("client: requests go to {address}"),
                None => println!("client: nobody leads"),
            }
        }
        Result::Ok(())
    };
    tokio::select! {
        led = candidates => led.map(|_both| ()),
        routed = routing => routed,
    }
}
