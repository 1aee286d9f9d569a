//! The conformance kit on the stores of this build, through the facade.

#[cfg(feature = "file")]
mod file;
#[cfg(all(feature = "etcd", feature = "file", feature = "postgres", feature = "redis", feature = "zk"))]
mod guarantees;
#[cfg(all(feature = "etcd", feature = "migrate", feature = "postgres", feature = "redis", feature = "zk"))]
mod pairs;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis", feature = "zk"))]
mod server;

use std::process::ExitCode;

#[cfg(any(feature = "etcd", feature = "postgres", feature = "zk"))]
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
    let suite = suite.store(Served::start(redis::own));
    // The other stores are CI's.
    if testbed::Depth::of_run() == testbed::Depth::Check {
        return suite.run();
    }
    #[cfg(feature = "redis")]
    let suite = redis::others().into_iter().fold(suite, Suite::store);
    #[cfg(feature = "etcd")]
    let suite = match testbed::etcd::current() {
        Some(program) => {
            let starting = testbed::etcd::Setup::new().program(program).start();
            suite.store(Served::of::<testbed::etcd::Etcd>("etcd-3.6", starting, etcd))
        }
        None => {
            testbed::peers::skip("the kit on etcd 3.6", "there is none in target/tools; run: make tools");
            suite
        }
    };
    #[cfg(feature = "etcd")]
    let suite = suite.store(Served::start(etcd));
    #[cfg(feature = "postgres")]
    let suite = suite.store(Served::start(postgres));
    #[cfg(feature = "zk")]
    let suite = suite.store(Served::start(zk));
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

#[cfg(feature = "etcd")]
fn etcd(server: &testbed::etcd::Etcd, namespace: &str) -> Box<dyn StoreConfig> {
    Box::new(leasehold::etcd::EtcdConfig::new(server.endpoints()).prefix(namespace))
}

#[cfg(feature = "postgres")]
fn postgres(server: &testbed::postgres::Server, namespace: &str) -> Box<dyn StoreConfig> {
    let url = <testbed::postgres::Server as testbed::Server>::url(server.addr(), namespace, "");
    let mut url = url.trim_end_matches('&').parse().expect("it is a URL");
    Box::new(leasehold::postgres::PostgresConfig::from_url(&mut url).expect("it is right"))
}

#[cfg(feature = "zk")]
fn zk(server: &testbed::zookeeper::Server, namespace: &str) -> Box<dyn StoreConfig> {
    Box::new(leasehold::zk::ZkConfig::new([server.addr().to_string()]).chroot(format!("/{namespace}")))
}
