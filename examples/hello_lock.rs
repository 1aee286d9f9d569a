//! The shortest whole program: take a lock, use its token, give it back.
//!
//! `cargo run --example hello_lock [URL]`

#[tokio::main]
async fn main() -> leasehold::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let locks = leasehold::connect(&url).await?;

    let guard = locks.lock("invoice/42")?.acquire().await?;
    println!("held, token {}", guard.token());

    // Before acting: one clock read, no request.
    guard.ensure_held()?;

    // Only this can say that the lock is released; dropping the guard releases without saying.
    guard.release().await?;
    locks.shutdown().await
}
