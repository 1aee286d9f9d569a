//! A job that runs once per period, on hosts whose clocks differ.
//!
//! `cargo run --example hourly`

use std::time::Duration;

use leasehold::{LockManager, Result};
use tokio::time::{interval, sleep};

const PERIOD: Duration = Duration::from_secs(2);
/// Longer than the clocks differ, shorter than the period.
const AT_LEAST: Duration = Duration::from_secs(1);

async fn host(name: &str, behind: Duration, locks: LockManager) -> Result<()> {
    let job = locks.lock("report/hourly")?.metadata(name).hold_at_least(AT_LEAST);
    sleep(behind).await;
    let mut schedule = interval(PERIOD);
    for period in 1..=3 {
        schedule.tick().await;
        match job.try_acquire().await? {
            Some(guard) => {
                println!("period {period}: {name} runs the job");
                sleep(Duration::from_millis(50)).await;
                // Returns at once; the name stays held for the rest of the second.
                guard.release().await?;
            }
            None => println!("period {period}: {name} leaves it to the other host"),
        }
    }
    // Waits for the last hold.
    locks.shutdown().await
}

#[tokio::main]
async fn main() -> Result<()> {
    let store = std::env::args().nth(1).unwrap_or_else(|| "memory://hourly".to_owned());
    let (one, two) = (leasehold::connect(&store).await?, leasehold::connect(&store).await?);
    let skew = Duration::from_millis(300);
    tokio::try_join!(host("one", Duration::ZERO, one), host("two", skew, two)).map(|_both| ())
}
