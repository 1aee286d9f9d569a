//! The program as a contender: this executable, started again and told by its environment to speak the
//! protocol of `comparison/peers/README.md` instead.
//!
//! So every figure comes from a process of the same kind, whether it contends by our library, by the
//! raw requests of a floor, by what is no lock and must be found out, or by a library of others.

mod broken;
mod floor;
mod ours;

use std::env;
use std::io;

use crate::implementation::{BESIDE, LEAKY, QUEUE_FLOOR};

/// What the environment tells: who, and the URLs.
pub(crate) const ROLE: &str = "LEASEHOLD_COMPARE_AS";

/// Contends, if that is what this process was started for; the outcome, or `None` if it was not.
pub(crate) fn work_if_told() -> Option<io::Result<()>> {
    let role = env::var(ROLE).ok()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Some(runtime.and_then(|runtime| runtime.block_on(contend(&role))))
}

async fn contend(role: &str) -> io::Result<()> {
    let mut words = role.split(' ').map(str::to_owned);
    let (who, urls) = (words.next().unwrap_or_default(), words.collect::<Vec<_>>());
    match who.as_str() {
        "leasehold" => contender_protocol::run::<ours::Ours>(&urls).await,
        "null" => contender_protocol::run::<broken::Null>(&urls).await,
        "twice" => contender_protocol::run::<broken::Twice>(&urls).await,
        BESIDE => contender_protocol::run::<broken::Beside>(&urls).await,
        LEAKY => contender_protocol::run::<broken::Leaky>(&urls).await,
        QUEUE_FLOOR => floor::contend_in_a_queue(&urls).await,
        _floor => floor::contend(&urls).await,
    }
}
