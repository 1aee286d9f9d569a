//! Lock libraries of others in Rust, each as a contender of the comparison: `peers NAME URL…`.
//!
//! Every library is used as its documentation shows, with its defaults, and sessions of its own kind.

#[cfg(feature = "distributed-lock")]
mod distributed_lock;
#[cfg(feature = "etcd")]
mod etcd_lock_rpc;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "rslock")]
mod redlock;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::io;

use contender_protocol::{run, runtime};

fn main() -> io::Result<()> {
    runtime()?.block_on(contend())
}

async fn contend() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let urls: Vec<String> = arguments.collect();
    match name.as_str() {
        #[cfg(feature = "rslock")]
        "rslock" => run::<redlock::Manager>(&urls).await,
        #[cfg(feature = "distributed-lock")]
        "distributed-lock" => run::<distributed_lock::Provider>(&urls).await,
        #[cfg(feature = "etcd")]
        "etcd-lock-rpc" => run::<etcd_lock_rpc::Connection>(&urls).await,
        #[cfg(feature = "postgres")]
        "pg-advisory-lock" => run::<postgres::Server>(&urls).await,
        #[cfg(feature = "postgres")]
        "distributed-lock-postgres" => run::<postgres::Provider>(&urls).await,
        #[cfg(feature = "zookeeper")]
        "zookeeper-client" => run::<zookeeper::Connection>(&urls).await,
        _ => {
            println!("missing {name:?} is not built, or not known: run comparison/peers/rust/build, which needs protoc for etcd");
            Ok(())
        }
    }
}

/// `host:port`, without the scheme.
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
fn addresses(urls: &[String]) -> Vec<String> {
    let address = |url: &String| url.split_once("://").map_or(url.as_str(), |(_, rest)| rest).to_owned();
    urls.iter().map(address).collect()
}
