//! The floors, sent raw through the client crates that the stores' own crates use, without renewal and
//! without clean-up after trouble. The memory store has none, as it asks nobody.
//!
//! | floor | the least that is asked by |
//! |---|---|
//! | `floor` | a free lock that excludes and is numbered: nothing can be cheaper. It cannot wait. Of a quorum of Redis servers: the same at all of them at once, until a majority has answered |
//! | `floor+queue` | one whose next holder waits in a queue and is told: on Redis our own scripts, on etcd a transaction that puts a key and answers the older ones beside one standing watch, on ZooKeeper the textbook recipe; the kernel's lock of a file |

#[cfg(feature = "etcd")]
mod etcd;
mod file;
mod queue;
#[cfg(feature = "redis")]
mod quorum;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "zk")]
mod zk;

use std::io;

#[cfg(any(feature = "etcd", feature = "redis", feature = "zk"))]
use contender_protocol::Failure;
use contender_protocol::run;

/// Contends as the floor of the store that `urls` name.
pub(super) async fn contend(urls: &[String]) -> io::Result<()> {
    match scheme(urls) {
        "file" => run::<file::Directory>(urls).await,
        #[cfg(feature = "redis")]
        "redis" => run::<redis::Connection>(urls).await,
        #[cfg(feature = "redis")]
        "redis+quorum" => run::<quorum::Connections>(urls).await,
        #[cfg(feature = "etcd")]
        "etcd" => run::<etcd::Leased>(urls).await,
        #[cfg(feature = "zk")]
        "zk" | "zookeeper" => run::<zk::Connection>(urls).await,
        _ => unknown(urls),
    }
}

/// Contends as the floor that waits.
pub(super) async fn contend_in_a_queue(urls: &[String]) -> io::Result<()> {
    match scheme(urls) {
        "file" => run::<queue::file::Directory>(urls).await,
        #[cfg(feature = "redis")]
        "redis" => run::<queue::redis::Connection>(urls).await,
        #[cfg(feature = "etcd")]
        "etcd" => run::<queue::etcd::Leased>(urls).await,
        #[cfg(feature = "zk")]
        "zk" | "zookeeper" => run::<queue::zk::Connection>(urls).await,
        _ => unknown(urls),
    }
}

fn scheme(urls: &[String]) -> &str {
    urls.first().and_then(|url| url.split("://").next()).unwrap_or_default()
}

fn unknown(urls: &[String]) -> io::Result<()> {
    println!("missing no floor is known for {urls:?}");
    Ok(())
}

/// What stands between the scheme and the options of the first.
fn place(urls: &[String]) -> &str {
    let rest = urls.first().and_then(|url| url.split_once("://")).map_or("", |(_, rest)| rest);
    rest.split('?').next().unwrap_or_default()
}

/// The same without a path.
#[cfg(any(feature = "etcd", feature = "zk"))]
fn address(urls: &[String]) -> &str {
    place(urls).split('/').next().unwrap_or_default()
}

#[cfg(any(feature = "etcd", feature = "redis", feature = "zk"))]
fn taken() -> Failure {
    Failure::new("a floor does not wait")
}
