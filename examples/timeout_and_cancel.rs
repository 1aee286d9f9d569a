//! Wait for a while, or until something else happens; either way nothing stays behind.
//!
//! `cargo run --example timeout_and_cancel`

use std::time::Duration;

use leasehold::ErrorKind;

#[tokio::main]
async fn main() -> leasehold::Result<()> {
    let ours = leasehold::connect("memory://shared?owner=us").await?;
    let theirs = leasehold::connect("memory://shared?owner=them").await?;
    let held = theirs.lock("report")?.acquire().await?;

    let report = ours.lock("report")?;
    let error = report.clone().wait(Duration::from_millis(50)).acquire().await.expect_err("it is held");
    if let ErrorKind::Timeout { waited, holder } = error.kind() {
        let holder = holder.as_ref().map_or("somebody", |holder| holder.label.as_str());
        println!("gave up after {waited:?}: {holder} holds it");
    }

    // Dropping the future gives the place in the queue back, wherever it was.
    tokio::select! {
        guard = report.acquire() => drop(guard?),
        () = tokio::time::sleep(Duration::from_millis(50)) => println!("something else happened"),
    }
    println!("contenders left behind: {}", ours.inspect("report").await?.contenders);

    held.release().await?;
    report.acquire().await?.release().await?;
    println!("and it is free for the next one");
    Ok(())
}
