//! The floors: the least that a fenced lock can ask of a store, sent raw through the client crate that
//! the store's own crate uses. No waiting, no renewal, no clean-up after trouble: nothing can be
//! cheaper and still be exclusive and numbered. The memory store has none, as it asks nobody.

#[cfg(feature = "etcd")]
mod etcd;
mod file;
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
    let scheme = urls.first().and_then(|url| url.split("://").next()).unwrap_or_default();
    match scheme {
        "file" => run::<file::Directory>(urls).await,
        #[cfg(feature = "redis")]
        "redis" => run::<redis::Connection>(urls).await,
        #[cfg(feature = "etcd")]
        "etcd" => run::<etcd::Leased>(urls).await,
        #[cfg(feature = "zk")]
        "zk" | "zookeeper" => run::<zk::Connection>(urls).await,
        _ => {
            println!("missing no floor is known for {urls:?}");
            Ok(())
        }
    }
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
