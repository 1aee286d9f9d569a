//! The conformance kit on the stores of this build, through the facade.

#[cfg(feature = "redis")]
mod cluster;
#[cfg(feature = "file")]
mod file;
#[cfg(all(feature = "etcd", feature = "file", feature = "postgres", feature = "redis", feature = "zk"))]
mod guarantees;
#[cfg(all(feature = "etcd", feature = "migrate", feature = "postgres", feature = "redis", feature = "zk"))]
mod pairs;
#[cfg(feature = "redis")]
mod quorum;
#[cfg(feature = "redis")]
mod sentinel;
#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis", feature = "zk"))]
mod server;

#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis", feature = "zk"))]
use std::net::SocketAddr;
use std::process::ExitCode;

#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis", feature = "zk"))]
use leasehold::backend::StoreConfig;
use leasehold_conformance::Suite;
#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis", feature = "zk"))]
use server::Served;

fn main() -> ExitCode {
    // The cases mostly wait.
    let suite = Suite::new().threads(18);
    #[cfg(feature = "file")]
    let suite = suite.store(Box::new(file::Directories::new()));
    #[cfg(feature = "redis")]
    let suite = suite.store(Served::<testbed::redis::Server>::start(redis));
    // The other stores are CI's.
    if testbed::Depth::of_run() == testbed::Depth::Check {
        return suite.run();
    }
    #[cfg(feature = "redis")]
    let suite = suite.store(Served::<testbed::redis::Server>::named("redis-string", |addr, namespace| {
        shared(addr, namespace, leasehold::redis::Format::string())
    }));
    #[cfg(feature = "redis")]
    let suite = suite.store(Served::<testbed::redis::Server>::named("redis-redisson", |addr, namespace| {
        shared(addr, namespace, leasehold::redis::Format::redisson())
    }));
    #[cfg(feature = "redis")]
    let suite = suite.store(cluster::Shards::start());
    #[cfg(feature = "redis")]
    let suite = suite.store(quorum::Quorum::start()).store(sentinel::Watched::start());
    #[cfg(feature = "redis")]
    let suite = match server::valkey(redis) {
        Some(valkey) => suite.store(valkey),
        None => suite,
    };
    #[cfg(feature = "redis")]
    let suite = match quorum::Quorum::of_valkey() {
        Some(quorum) => suite.store(quorum),
        None => suite,
    };
    #[cfg(feature = "etcd")]
    let suite = suite.store(Served::<testbed::etcd::Etcd>::start(etcd));
    #[cfg(feature = "postgres")]
    let suite = suite.store(Served::<testbed::postgres::Server>::start(postgres));
    #[cfg(feature = "zk")]
    let suite = suite.store(Served::<testbed::zookeeper::Server>::start(zk));
    #[cfg(all(
        feature = "etcd",
        feature = "migrate",
        feature = "postgres",
        feature = "redis",
        feature = "zk"
    ))]
    let suite = if testbed::Depth::of_run() == testbed::Depth::Soak {
        pairs::subjects().into_iter().fold(suite, Suite::store)
    } else {
        suite
    };
    #[cfg(all(feature = "etcd", feature = "file", feature = "postgres", feature = "redis", feature = "zk"))]
    let suite = guarantees::trials().into_iter().fold(suite, Suite::trial);
    suite.run()
}

/// At depth `soak` 100 in all.
#[cfg(any(feature = "etcd", feature = "file", feature = "postgres", feature = "redis", feature = "zk"))]
fn periods() -> (u32, u32) {
    if testbed::Depth::of_run() == testbed::Depth::Soak { (10, 10) } else { (1, 2) }
}

#[cfg(feature = "redis")]
fn of_redis(addr: SocketAddr, namespace: &str) -> leasehold::redis::RedisConfig {
    leasehold::redis::RedisConfig::new(addr.ip().to_string(), addr.port()).prefix(namespace)
}

#[cfg(feature = "redis")]
fn redis(addr: SocketAddr, namespace: &str) -> Box<dyn StoreConfig> {
    Box::new(of_redis(addr, namespace))
}

#[cfg(feature = "etcd")]
fn etcd(addr: SocketAddr, namespace: &str) -> Box<dyn StoreConfig> {
    Box::new(leasehold::etcd::EtcdConfig::new([addr.to_string()]).prefix(namespace))
}

#[cfg(feature = "postgres")]
fn postgres(addr: SocketAddr, namespace: &str) -> Box<dyn StoreConfig> {
    let url = <testbed::postgres::Server as testbed::Server>::url(addr, namespace, "");
    let mut url = url.trim_end_matches('&').parse().expect("it is a URL");
    Box::new(leasehold::postgres::PostgresConfig::from_url(&mut url).expect("it is right"))
}

#[cfg(feature = "zk")]
fn zk(addr: SocketAddr, namespace: &str) -> Box<dyn StoreConfig> {
    Box::new(leasehold::zk::ZkConfig::new([addr.to_string()]).chroot(format!("/{namespace}")))
}

/// Locks in the format of another library, distinguished by their keys.
#[cfg(feature = "redis")]
fn shared(addr: SocketAddr, namespace: &str, format: leasehold::redis::Format) -> Box<dyn StoreConfig> {
    // A lock that one process acquires for a second without a pause is left to foreign clients, and a try is refused then:
    // `turns` of the store's own tests shows that. The cases need a free lock to be granted.
    let format = format.key(format!("lock of {namespace}: {{name}}")).yield_for(std::time::Duration::ZERO);
    Box::new(of_redis(addr, namespace).format(format))
}
