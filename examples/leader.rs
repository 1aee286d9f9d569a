//! One leader among several processes, and a client that follows it, until the leader is told to stop.
//!
//! `cargo run --example leader`

use std::time::Duration;

use futures_util::StreamExt;
use leasehold::{HeldRef, LockManager, Result};
use tokio::time::sleep;

const LEADER: &str = "billing/leader";

/// Campaigns until the manager is shut down: through losses, and while the store is unavailable.
pub(crate) async fn stand(locks: LockManager, address: &'static str) -> Result<()> {
    let candidate = locks.lead(LEADER)?.metadata(address);
    // Dropped at its next await when leadership is lost; each term calls it again.
    candidate.run(|leadership| serve(address, leadership)).await.map(|_: Option<()>| ())
}

async fn serve(address: &str, leadership: HeldRef) {
    println!("{address} leads, term {}", leadership.token());
    loop {
        // Give the token to whatever the leader writes to.
        sleep(Duration::from_secs(1)).await;
    }
}

async fn follow(locks: LockManager) -> Result<()> {
    let mut leaders = locks.lead(LEADER)?.changes();
    while let Some(state) = leaders.next().await {
        match state?.holder().and_then(|leader| leader.metadata.as_deref()) {
            Some(address) => println!("client: requests go to {address}"),
            None => println!("client: no leader"),
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    // Three managers on one store stand for three processes.
    let store = std::env::args().nth(1).unwrap_or_else(|| "memory://election".to_owned());
    let [one, two, client] = [
        leasehold::connect(&store).await?,
        leasehold::connect(&store).await?,
        leasehold::connect(&store).await?,
    ];
    let retire = async {
        for leader in [&one, &two] {
            sleep(Duration::from_secs(3)).await;
            // Ends the campaign, releases the leadership, and waits for that.
            leader.shutdown().await?;
        }
        sleep(Duration::from_secs(1)).await;
        client.shutdown().await
    };
    let candidates =
        async { tokio::try_join!(stand(one.clone(), "10.0.0.1:7000"), stand(two.clone(), "10.0.0.2:7000")) };
    tokio::try_join!(candidates, follow(client.clone()), retire).map(|_all| ())
}
