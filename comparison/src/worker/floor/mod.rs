//! The floors, sent raw through the client crates that the stores' own crates use, without renewal and
//! without clean-up after trouble. The memory store has none, as it asks nobody.
//!
//! | floor | the least that is asked by |
//! |---|---|
//! | `floor` | a free lock that excludes and is numbered: nothing can be cheaper. It cannot wait. Of a quorum of Redis servers: the same at all of them at once, until a majority has answered |
//! | `floor+queue` | one whose next holder waits in a queue and is told: on Redis a list that it pops, on etcd a key of its own that the holder before it writes to, on ZooKeeper the textbook recipe; the kernel's lock of a file |
//! | `floor+scripts` | our own store on Redis and Postgres: its scripts or functions, without our library |
//! | `floor+calls` | our own store on files: its calls of the kernel, without our library |
//! | `floor+durable` | `floor` on Postgres, where the release waits for the disk, too |

#[cfg(feature = "etcd")]
mod etcd;
mod file;
mod postgres;
mod postgres_functions;
mod quorum;
mod redis;
mod redis_cluster;
mod redis_queue;
mod redis_scripts;
mod zk;

use std::io;

use contender_protocol::{Failure, run};

/// Contends as the floor of the store that `urls` name.
pub(super) async fn contend(urls: &[String]) -> io::Result<()> {
    match scheme(urls) {
        "file" => run::<file::Directory<false, false>>(urls).await,
        "redis" | "redis+sentinel" => run::<redis::Connection>(urls).await,
        "redis+cluster" => run::<redis_cluster::Connections>(urls).await,
        "redis+quorum" => run::<quorum::Connections>(urls).await,
        #[cfg(feature = "etcd")]
        "etcd" => run::<etcd::Leased<false>>(urls).await,
        "postgres" => run::<postgres::Connection<false>>(urls).await,
        "zk" | "zookeeper" => run::<zk::Connection<false>>(urls).await,
        _ => unknown(urls),
    }
}

/// Contends as the floor whose releases wait for the disk.
pub(super) async fn contend_durably(urls: &[String]) -> io::Result<()> {
    match scheme(urls) {
        "postgres" => run::<postgres::Connection<true>>(urls).await,
        _ => unknown(urls),
    }
}

/// Contends by our own scripts.
pub(super) async fn contend_by_scripts(urls: &[String]) -> io::Result<()> {
    match scheme(urls) {
        "redis" => run::<redis_scripts::Connection>(urls).await,
        "postgres" => run::<postgres_functions::Connection>(urls).await,
        _ => unknown(urls),
    }
}

/// Contends by our own calls of the kernel.
pub(super) async fn contend_by_calls(urls: &[String]) -> io::Result<()> {
    match scheme(urls) {
        "file" => run::<file::Directory<false, true>>(urls).await,
        _ => unknown(urls),
    }
}

/// Contends as the floor that waits.
pub(super) async fn contend_in_a_queue(urls: &[String]) -> io::Result<()> {
    match scheme(urls) {
        "file" => run::<file::Directory<true, false>>(urls).await,
        "redis" => run::<redis_queue::Connection>(urls).await,
        #[cfg(feature = "etcd")]
        "etcd" => run::<etcd::Leased<true>>(urls).await,
        "zk" | "zookeeper" => run::<zk::Connection<true>>(urls).await,
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
fn address(urls: &[String]) -> &str {
    place(urls).split('/').next().unwrap_or_default()
}

fn taken() -> Failure {
    Failure::new("a floor does not wait")
}
