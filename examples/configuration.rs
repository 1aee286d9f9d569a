//! The store, its times and the options of a lock from a configuration file.
//!
//! `cargo run --features serde --example configuration [FILE]`

use std::error::Error;

use leasehold::{LockOptions, Timing};
use serde::Deserialize;

/// What the program's file says of locks.
#[derive(Deserialize)]
struct Configuration {
    store: String,
    #[serde(default)]
    timing: Timing,
    #[serde(default)]
    report: LockOptions,
}

const FILE: &str = r#"
store = "memory://"

[timing]
ttl = "30s"
op_timeout = "2s"

[report]
wait = "5s"
hold_at_least = "200ms"
metadata = "month-end"
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let text = match std::env::args().nth(1) {
        Some(file) => std::fs::read_to_string(file)?,
        None => FILE.to_owned(),
    };
    let Configuration { store, timing, report } = toml::from_str(&text)?;
    println!("{timing:?}\n{report:?}");
    let locks = leasehold::registry().configure(&store)?.timing(timing).build().await?;

    let guard = locks.lock("report")?.options(report).acquire().await?;
    println!("held, token {}", guard.token());
    guard.release().await?;
    Ok(locks.shutdown().await?)
}
