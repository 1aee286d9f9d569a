//! The program as a contender: this executable, started again with the same arguments and told by its
//! environment to speak the protocol of `comparison/peers/README.md` instead.
//!
//! So every figure comes from a process of the same kind, whether it contends by our library, by the
//! raw requests of a floor, or by a library of others.

mod floor;
mod ours;

use std::env;
use std::io;

use floor::Floor;
use ours::Ours;

/// What the environment tells: `leasehold URL` or `floor URL`.
pub(crate) const ROLE: &str = "LEASEHOLD_COMPARE_AS";

/// Contends, if that is what this process was started for; the outcome, or `None` if it was not.
pub(crate) fn work_if_told() -> Option<io::Result<()>> {
    let role = env::var(ROLE).ok()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Some(runtime.and_then(|runtime| runtime.block_on(contend(&role))))
}

async fn contend(role: &str) -> io::Result<()> {
    let (who, url) = role.split_once(' ').unwrap_or((role, ""));
    match who {
        "leasehold" => contender_protocol::run(Ours::new(url)).await,
        _floor => match Floor::at(url) {
            Some(Floor::File(floor)) => contender_protocol::run(floor).await,
            #[cfg(feature = "redis")]
            Some(Floor::Redis(floor)) => contender_protocol::run(floor).await,
            #[cfg(feature = "etcd")]
            Some(Floor::Etcd(floor)) => contender_protocol::run(floor).await,
            #[cfg(feature = "zk")]
            Some(Floor::Zk(floor)) => contender_protocol::run(floor).await,
            None => {
                println!("missing no floor is known for {url}");
                Ok(())
            }
        },
    }
}
