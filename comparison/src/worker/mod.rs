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

use crate::implementation::{Broken, CALLS, DURABLE, DURABLE_FLOOR, QUEUE_FLOOR, SCRIPTS};

/// What the environment tells: who, and the URLs.
pub(crate) const ROLE: &str = "LEASEHOLD_COMPARE_AS";

/// Contends, if that is what this process was started for; the outcome, or `None` if it was not.
pub(crate) fn work_if_told() -> Option<io::Result<()>> {
    let role = env::var(ROLE).ok()?;
    Some(contender_protocol::runtime().and_then(|runtime| runtime.block_on(contend(&role))))
}

async fn contend(role: &str) -> io::Result<()> {
    let words: Vec<_> = role.split(' ').map(str::to_owned).collect();
    let (who, urls) = (words[0].as_str(), &words[1..]);
    match who {
        "leasehold" => contender_protocol::run::<ours::Ours>(urls).await,
        DURABLE => {
            let urls: Vec<_> = urls.iter().map(|url| format!("{url}?durable_release=true")).collect();
            contender_protocol::run::<ours::Ours>(&urls).await
        }
        DURABLE_FLOOR => floor::contend_durably(urls).await,
        QUEUE_FLOOR => floor::contend_in_a_queue(urls).await,
        SCRIPTS => floor::contend_by_scripts(urls).await,
        CALLS => floor::contend_by_calls(urls).await,
        broken if Broken::ALL.iter().any(|known| known.name() == broken) => {
            contender_protocol::run::<broken::Number>(&words).await
        }
        _floor => floor::contend(urls).await,
    }
}
