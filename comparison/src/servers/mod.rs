//! The servers that are compared on: started for the comparison, or given.
//!
//! A started server keeps its data as its makers ship it, on the file system of the report. Only loopback ports that
//! are free are used, and nothing stays behind.

mod counting;
mod distance;

use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use futures_util::future::try_join_all;
use leasehold::Guarantees;
use tempfile::TempDir;
use testbed::{Port, Proxy, etcd, postgres, redis, zookeeper};

use crate::error::{Error, Result};
use crate::options::Store;
use crate::proc;

pub(crate) use counting::{Counted, Counting};
pub(crate) use distance::measured;
use distance::way;

/// A store to compare on.
#[derive(Debug)]
pub(crate) struct Target {
    /// As the report calls it.
    pub(crate) label: String,
    pub(crate) store: Store,
    pub(crate) url: String,
    pub(crate) version: Option<String>,
    /// How it keeps its data.
    pub(crate) durability: &'static str,
    /// How it was started, where that is known.
    pub(crate) settings: Option<String>,
    /// How many servers agree.
    members: usize,
    server: Server,
    /// After the server, which writes to it.
    _data: Option<TempDir>,
}

/// Another way to the same servers, on which everything takes longer. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Distance {
    pub(crate) url: String,
    _ways: Vec<Proxy>,
}

#[derive(Debug)]
enum Server {
    /// The store is no server, or one of somebody else.
    Foreign,
    /// One, or those of a quorum.
    Redis(Vec<redis::Server>),
    /// A primary and its replica, and what watches them.
    Watched(Vec<redis::Server>, redis::Sentinels),
    Cluster(redis::Cluster),
    Etcd(etcd::Etcd),
    Postgres(Box<postgres::Server>),
    Zk(Vec<zookeeper::Server>),
}

impl Server {
    /// Those of Redis that clients ask.
    fn redis(&self) -> Vec<&redis::Server> {
        match self {
            Self::Redis(servers) => servers.iter().collect(),
            Self::Watched(servers, _) => servers.iter().take(1).collect(),
            Self::Cluster(cluster) => (0..PRIMARIES).map(|node| cluster.server(node)).collect(),
            Self::Foreign | Self::Etcd(_) | Self::Postgres(_) | Self::Zk(_) => Vec::new(),
        }
    }
}

impl Target {
    /// A server that runs already.
    pub(crate) fn given(store: Store, url: &str) -> Self {
        Self {
            label: store.to_string(),
            store,
            url: url.to_owned(),
            version: None,
            durability: "as its administrator has set it",
            settings: None,
            members: 1,
            server: Server::Foreign,
            _data: None,
        }
    }

    /// Starts a server that keeps its data below `place`, or `members` of them where those agree among each other.
    pub(crate) async fn start(store: Store, members: usize, place: &Path) -> Result<Self> {
        let data = tempfile::Builder::new().prefix(&format!("leasehold-{store}-")).tempdir_in(place);
        let data = data.map_err(Error::during(format!("making a directory in {}", place.display())))?;
        let started = match store {
            Store::Memory | Store::File => Ok(Server::Foreign),
            Store::Redis => redis(data.path(), 1).await.map(Server::Redis),
            Store::RedisQuorum => redis(data.path(), QUORUM_OF).await.map(Server::Redis),
            Store::RedisSentinel => watched(data.path()).await,
            Store::RedisCluster => {
                redis::Cluster::of(&shipped(), PRIMARIES, 1, DOWN_AFTER).await.map(Server::Cluster)
            }
            Store::Etcd => etcd(data.path(), members).start().await.map(Server::Etcd),
            Store::Postgres => postgres(data.path()).await.map(|server| Server::Postgres(Box::new(server))),
            Store::Zk => zookeeper(data.path(), members).await.map(Server::Zk),
        };
        let server = started.map_err(Error::during("no server"))?;
        let (url, durability) = match &server {
            Server::Foreign if store == Store::Memory => ("memory://compare".to_owned(), "none"),
            Server::Foreign => (format!("file://{}", data.path().display()), "every grant is synced"),
            Server::Redis(servers) => match &servers[..] {
                [server] => (server.url(), "snapshots every minute to hour, as shipped"),
                // Nothing of it restarts, and nobody has to wait until it has been up for so long.
                servers => (
                    quorum(servers, Duration::ZERO),
                    "each takes snapshots every minute to hour, as shipped, and votes at once when it has come up",
                ),
            },
            // Only what is lost with the primary needs a pause.
            Server::Watched(_, sentinels) => {
                let hosts: Vec<_> = sentinels.addrs().iter().map(ToString::to_string).collect();
                let (hosts, master) = (hosts.join(","), redis::Sentinels::MASTER);
                let url = format!("redis+sentinel://{hosts}/{master}?{NO_PAUSE}");
                (url, "snapshots every minute to hour, as shipped, and one replica, which is not waited for")
            }
            Server::Cluster(cluster) => (
                format!("{}?{NO_PAUSE}", cluster.url()),
                "snapshots every minute to hour, as shipped, and a replica each, which is not waited for",
            ),
            Server::Etcd(server) if members > 1 => {
                (server.url(), "three of them keep it in memory, each write at a majority")
            }
            Server::Etcd(server) => (server.url(), "every write is synced, as shipped"),
            Server::Postgres(server) => (
                format!("postgres://postgres@{}/postgres", server.addr()),
                "every commit is synced, as shipped, but for those that ask for less",
            ),
            Server::Zk(servers) => {
                let addresses: Vec<_> = servers.iter().map(|server| server.addr().to_string()).collect();
                (format!("zk://{}", addresses.join(",")), "every write is synced, as shipped")
            }
        };
        let (label, version, settings, _data) = (store.to_string(), None, None, Some(data));
        let mut target = Self { label, store, url, version, durability, settings, members, server, _data };
        target.version = target.ask_version().await;
        target.settings = target.ask_settings().await;
        Ok(target)
    }

    /// Another one like it, for what would be in the way of the next who asks; `None` of one that was not started here.
    pub(crate) async fn another(&self, place: &Path) -> Option<Result<Self>> {
        self._data.as_ref()?;
        Some(Self::start(self.store, self.members, place).await)
    }

    /// Its URL with the shortest pause after a fail-over that covers leases of `ttl`, and how long that is; nothing where there
    /// is no such pause.
    pub(crate) fn pausing(&self, ttl: Duration) -> Option<(String, Duration)> {
        const LAG: Duration = Duration::from_secs(1);
        const MARGIN: Duration = Duration::from_secs(2);
        let agreed = format!("max_ttl={}ms&failover_lag={}ms", ttl.as_millis(), LAG.as_millis());
        let url = self.url.contains(NO_PAUSE).then(|| self.url.replace(NO_PAUSE, &agreed));
        Some((url?, ttl + LAG + MARGIN))
    }

    /// Kills the primary that has the lock `name`, for good.
    ///
    /// # Errors
    ///
    /// Also where no other server takes its place.
    pub(crate) async fn kill_primary_of(&mut self, name: &str) -> Result<()> {
        let killed = match &mut self.server {
            Server::Watched(servers, _) => servers[0].kill().await,
            Server::Cluster(cluster) => {
                let owner = async { cluster.owner_of(cluster.slot_of(name).await?).await };
                match owner.await {
                    Ok(owner) => cluster.server_mut(owner).kill().await,
                    Err(error) => Err(error),
                }
            }
            _ => return Err(Error::new("no server takes another one's place")),
        };
        killed.map_err(Error::during("killing the primary"))
    }

    /// A way on which requests and answers come half of `latency` later each. What counts on our behalf does not take it.
    ///
    /// # Errors
    ///
    /// Also where there is no network, or one that is none of ours.
    pub(crate) async fn at_a_distance(&self, latency: Duration) -> Result<Distance> {
        let servers: Vec<_> = match &self.server {
            Server::Foreign if self._data.is_some() => {
                return Err(Error::new("there is no network in between"));
            }
            Server::Foreign => return Err(Error::new("a server that was given is as far away as it is")),
            Server::Redis(servers) => servers.iter().map(redis::Server::addr).collect(),
            Server::Watched(..) | Server::Cluster(_) => {
                return Err(Error::new("its servers name each other by their own addresses"));
            }
            Server::Etcd(server) => (0..server.size()).map(|member| server.addr(member)).collect(),
            Server::Postgres(server) => vec![server.addr()],
            Server::Zk(servers) => servers.iter().map(zookeeper::Server::addr).collect(),
        };
        let (mut url, mut _ways) = (self.url.clone(), Vec::new());
        for server in servers {
            let way = way(server, latency).await?;
            url = url.replacen(&server.to_string(), &way.addr().to_string(), 1);
            _ways.push(way);
        }
        Ok(Distance { url, _ways })
    }

    /// What our store there promises.
    pub(crate) async fn guarantees(&self) -> Result<Guarantees> {
        let locks = leasehold::connect(&self.url).await;
        Ok(locks.map_err(Error::during("asking the store what it promises"))?.guarantees())
    }

    /// Begins to count what clients ask of it; `None` where nobody counts.
    pub(crate) async fn count(&self) -> Option<Counting<'_>> {
        Counting::begin(&self.server).await
    }

    /// Of its servers, where they are ours.
    pub(crate) fn pids(&self) -> Vec<u32> {
        match &self.server {
            Server::Foreign => Vec::new(),
            Server::Redis(_) | Server::Watched(..) | Server::Cluster(_) => {
                self.server.redis().iter().map(|server| server.process().pid()).collect()
            }
            Server::Etcd(server) => server.pids(),
            Server::Postgres(server) => server.pids().unwrap_or_default(),
            Server::Zk(servers) => servers.iter().map(|server| server.process().pid()).collect(),
        }
    }

    /// The processor time that the server has used, in nanoseconds; `None` where it is none of ours.
    pub(crate) fn cpu_nanos(&self) -> Option<u64> {
        let pids = self.pids();
        if pids.is_empty() { None } else { pids.into_iter().map(proc::cpu_nanos).sum() }
    }

    /// Its command line and what its configuration adds, places and ports left out; or what it says of itself.
    async fn ask_settings(&self) -> Option<String> {
        let line = match &self.server {
            Server::Foreign => None,
            // It overwrites its command line.
            Server::Redis(_) | Server::Watched(..) | Server::Cluster(_) => {
                let (servers, mut told) = (self.server.redis(), Vec::new());
                let server = servers.first()?;
                for name in ["save", "appendonly", "appendfsync", "io-threads", "maxmemory", "hz"] {
                    if let Ok(redis::Reply::Array(answer)) = server.command(&["CONFIG", "GET", name]).await {
                        let value = answer.get(1).and_then(redis::Reply::text).unwrap_or_default();
                        told.push(format!("{name} \"{value}\""));
                    }
                }
                return Some(told.join(", "));
            }
            Server::Etcd(server) => Some(proc::command_line(*server.pids().first()?)?),
            Server::Postgres(server) => {
                let settings = "SELECT string_agg(name || ' ' || setting, ', ') FROM pg_settings WHERE source = 'command line' \
                                AND name NOT LIKE '%directory%' AND name NOT LIKE 'listen%' AND name <> 'port'";
                return server.sql(settings).await.ok();
            }
            Server::Zk(servers) => {
                let server = servers.first()?;
                let config = server.ask("conf").await.ok()?;
                let command = proc::command_line(server.process().pid())?;
                Some(command.into_iter().chain(config.lines().map(str::to_owned)).collect())
            }
        };
        let words =
            line?.into_iter().skip(1).filter(|word| !word.contains('/') && !word.contains("127.0.0.1"));
        let words: Vec<_> = words.filter(|word| !word.to_lowercase().contains("port")).collect();
        Some(words.join(" "))
    }

    async fn ask_version(&self) -> Option<String> {
        match &self.server {
            Server::Foreign => None,
            Server::Redis(_) | Server::Watched(..) | Server::Cluster(_) => {
                self.server.redis().first()?.info("server").await.ok()?.get("redis_version").cloned()
            }
            Server::Etcd(server) => {
                let told = server.ctl(["endpoint", "status", "--write-out=fields"]).await.ok()?;
                let line = told.lines().find(|line| line.starts_with("\"Version\""))?;
                Some(line.split('"').nth(3)?.to_owned())
            }
            Server::Postgres(server) => {
                Some(server.sql("SHOW server_version").await.ok()?.split(' ').next()?.to_owned())
            }
            Server::Zk(servers) => {
                let told = servers.first()?.ask("srvr").await.ok()?;
                let version = told.lines().find_map(|line| line.strip_prefix("Zookeeper version: "))?;
                Some(version.split([',', '-']).next()?.to_owned())
            }
        }
    }
}

/// So many, each with a directory of its own.
async fn redis(data: &Path, count: usize) -> io::Result<Vec<redis::Server>> {
    let mut servers = Vec::new();
    for number in 0..count {
        let data = data.join(number.to_string());
        fs::create_dir(&data)?;
        servers.push(shipped().set("dir", &[&data.display().to_string()]).start().await?);
    }
    Ok(servers)
}

/// With snapshots as its makers have set them.
fn shipped() -> redis::Settings {
    redis::Settings::new().set("save", &["3600", "1", "300", "100", "60", "10000"])
}

/// A primary, its replica, and three sentinels.
async fn watched(data: &Path) -> io::Result<Server> {
    let servers = redis(data, 2).await?;
    let primary = servers[0].addr();
    servers[1].command(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]).await?;
    servers[1].follows().await?;
    let sentinels = redis::Sentinels::start(primary, 1, 3, DOWN_AFTER).await?;
    Ok(Server::Watched(servers, sentinels))
}

/// The URL of locks of which a quorum of `servers` decides; one that came up does not vote for so long.
pub(crate) fn quorum(servers: &[redis::Server], pause: Duration) -> String {
    let addresses: Vec<_> = servers.iter().map(|server| server.addr().to_string()).collect();
    format!("redis+quorum://{}?pause_after_restart={}ms", addresses.join(","), pause.as_millis())
}

/// What a URL of ours names, as the libraries of others are told: without options, and each server of a quorum apart.
pub(crate) fn places(url: &str) -> Vec<String> {
    let place = url.split('?').next().unwrap_or_default();
    let Some(servers) = place.strip_prefix("redis+quorum://") else { return vec![place.to_owned()] };
    let (servers, path) = servers.split_at(servers.find('/').unwrap_or(servers.len()));
    let (user, servers) = servers.split_at(servers.rfind('@').map_or(0, |end| end + 1));
    servers.split(',').map(|server| format!("redis://{user}{server}{path}")).collect()
}

/// Several share no directory, so they keep what they have where tests do.
fn etcd(data: &Path, members: usize) -> etcd::Setup {
    match members {
        1 => etcd::Setup::new().arg(format!("--data-dir={}", data.join("etcd").display())),
        several => etcd::Setup::new().members(several),
    }
}

/// It counts statements.
pub(crate) async fn postgres(data: &Path) -> io::Result<postgres::Server> {
    let setup = postgres::Setup::new().setting("shared_preload_libraries=pg_stat_statements");
    let server = setup.below(data)?.start().await?;
    server.sql("CREATE EXTENSION pg_stat_statements").await?;
    Ok(server)
}

async fn zookeeper(data: &Path, members: usize) -> io::Result<Vec<zookeeper::Server>> {
    let ports = (0..2 * members).map(|_| Port::reserve()).collect::<io::Result<Vec<_>>>()?;
    let address = |member: usize| {
        let [quorum, election] = [2 * member, 2 * member + 1].map(|at| ports[at].number());
        format!("server.{member}=127.0.0.1:{quorum}:{election}")
    };
    let cluster: Vec<_> = if members > 1 { (0..members).map(address).collect() } else { Vec::new() };
    let mut starting = Vec::new();
    for member in 0..members {
        let data = data.join(member.to_string());
        fs::create_dir(&data)?;
        fs::write(data.join("myid"), member.to_string())?;
        // Later lines and properties win over what tests are content with.
        let setup = zookeeper::Setup::new().line(format!("dataDir={}", data.display()));
        let setup = cluster.iter().fold(setup, |setup, address| setup.line(address));
        let setup = setup.line("initLimit=50").line("syncLimit=10");
        let setup = setup.property("zookeeper.forceSync", "yes").property("zookeeper.preAllocSize", 65_536);
        starting.push(setup.start());
    }
    try_join_all(starting).await
}

/// For how long a primary is silent before a replica takes its place.
const DOWN_AFTER: Duration = Duration::from_secs(1);

/// Of a cluster, with a replica each.
const PRIMARIES: usize = 3;

/// Where nothing fails over.
const NO_PAUSE: &str = "pause_after_failover=0s";

/// The fewest of which one may be away.
pub(crate) const QUORUM_OF: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever asks a majority by itself is told every server, with the user and the database of all of them.
    #[test]
    fn libraries_of_others_are_told_each_server() {
        assert_eq!(places("etcd://a,b/p?ttl=3s"), ["etcd://a,b/p"]);
        assert_eq!(places("redis://a:1"), ["redis://a:1"]);
        let each = ["redis://me:s@a:1/2", "redis://me:s@b/2", "redis://me:s@[::1]:7/2"];
        assert_eq!(places("redis+quorum://me:s@a:1,b,[::1]:7/2?quorum=3"), each);
        assert_eq!(places("redis+quorum://a,b,c?x=/@"), ["redis://a", "redis://b", "redis://c"]);
    }
}
