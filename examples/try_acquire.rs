//! Do something only if no other process does it already: contention is an answer, not an error.
//!
//! `cargo run --example try_acquire`

#[tokio::main]
async fn main() -> leasehold::Result<()> {
    // Two managers on one store stand for two processes.
    let ours = leasehold::connect("memory://jobs?owner=host-a").await?;
    let theirs = leasehold::connect("memory://jobs?owner=host-b").await?;

    let nightly = theirs.lock("nightly")?.metadata("started by cron").acquire().await?;

    match ours.lock("nightly")?.try_acquire().await? {
        Some(_guard) => println!("ours: running the nightly job"),
        None => {
            let state = ours.inspect("nightly").await?;
            let holder = state.holder().map(|holder| holder.label.clone()).unwrap_or_default();
            println!("ours: {holder} runs it already");
        }
    }

    nightly.release().await?;
    if let Some(guard) = ours.lock("nightly")?.try_acquire().await? {
        println!("ours: our turn, token {}", guard.token());
        guard.release().await?;
    }
    Ok(())
}
