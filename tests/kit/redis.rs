//! Redis in each of its kinds as a subject of the kit, and Valkey in its place.

use std::io;
use std::time::Duration;

use leasehold::backend::StoreConfig;
use leasehold::redis::{Format, QuorumConfig, RedisClusterConfig, RedisConfig, SentinelConfig};
use leasehold_conformance::Subject;
use testbed::redis::{Cluster, Sentinels, Server, Settings, valkey};

use crate::server::Served;

/// All but the server by itself. Pauses would begin with each namespace, which is new: there are none, and nothing is
/// restarted or promoted here.
pub(crate) fn others() -> Vec<Box<dyn Subject>> {
    let cluster = Cluster::start(3, 0, Duration::from_secs(15));
    let mut subjects = vec![
        Served::named("redis-string", |server, namespace| shared(server, namespace, Format::string())),
        Served::named("redis-redisson", |server, namespace| shared(server, namespace, Format::redisson())),
        Served::of::<Server>("redis-cluster", cluster, spread),
        Served::of::<Server>("redis-quorum", three(Settings::new()), agreed),
        Served::of::<Server>("redis-sentinel", watched(), found),
    ];
    match valkey() {
        Some(program) => {
            let settings = Settings::new().program(program);
            subjects.push(Served::of::<Server>("valkey", settings.clone().start(), own));
            subjects.push(Served::of::<Server>("valkey-quorum", three(settings), agreed));
        }
        None => testbed::peers::skip("the kit on Valkey", "there is none in target/tools; run: make tools"),
    }
    subjects
}

pub(crate) fn own(server: &Server, namespace: &str) -> Box<dyn StoreConfig> {
    Box::new(config(server, namespace))
}

fn config(server: &Server, namespace: &str) -> RedisConfig {
    let addr = testbed::Server::addr(server);
    RedisConfig::new(addr.ip().to_string(), addr.port()).prefix(namespace)
}

/// Locks in the format of another library, distinguished by their keys.
fn shared(server: &Server, namespace: &str, format: Format) -> Box<dyn StoreConfig> {
    // A lock that one process acquires for a second without a pause is left to foreign clients, and a try is refused then:
    // `turns` of the store's own tests shows that. The cases need a free lock to be granted.
    let format = format.key(format!("lock of {namespace}: {{name}}")).yield_for(Duration::ZERO);
    Box::new(config(server, namespace).format(format))
}

/// A namespace over all servers of a cluster.
fn spread(cluster: &Cluster, namespace: &str) -> Box<dyn StoreConfig> {
    let servers = cluster.addrs().into_iter().map(|addr| addr.to_string());
    let config = RedisClusterConfig::new(servers).servers(|server| server.prefix(namespace));
    Box::new(config.pause_after_failover(Duration::ZERO))
}

async fn three(settings: Settings) -> io::Result<[Server; 3]> {
    let start = || settings.clone().start();
    Ok([start().await?, start().await?, start().await?])
}

/// A namespace at each of three servers.
fn agreed(servers: &[Server; 3], namespace: &str) -> Box<dyn StoreConfig> {
    let servers = servers.iter().map(|server| config(server, namespace));
    Box::new(QuorumConfig::new(servers).pause_after_restart(Duration::ZERO))
}

/// A primary, its replica and three sentinels.
async fn watched() -> io::Result<([Server; 2], Sentinels)> {
    let primary = Settings::new().start().await?;
    let replica = Settings::new().replica_of(primary.addr()).start().await?;
    replica.follows().await?;
    // Nothing fails here: a busy machine is not taken for a dead primary.
    let sentinels = Sentinels::start(primary.addr(), 1, 3, Duration::from_secs(60)).await?;
    Ok(([primary, replica], sentinels))
}

/// A namespace of the primary.
fn found((_, sentinels): &([Server; 2], Sentinels), namespace: &str) -> Box<dyn StoreConfig> {
    let sentinels = sentinels.addrs().into_iter().map(|sentinel| sentinel.to_string());
    let config = SentinelConfig::new(Sentinels::MASTER, sentinels).pause_after_failover(Duration::ZERO);
    Box::new(config.servers(|server| server.prefix(namespace)))
}
