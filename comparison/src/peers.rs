//! The libraries of others, and where the programs are that speak for them.

use std::path::{Path, PathBuf};

use leasehold::Guarantees;

use crate::options::Store;

/// A library of others. Its program is `comparison/peers/<folder>/run NAME URL…`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    /// Where it takes part.
    pub(crate) stores: &'static [Store],
    folder: &'static str,
    /// Whether it has a virtual machine, or an interpreter, for each process.
    pub(crate) is_heavy: bool,
    /// With how many sessions or tasks at most.
    pub(crate) contenders: u64,
    /// As the report calls it with a mutex of the process in front, if its program has one.
    pub(crate) fronted: Option<&'static str>,
    /// Which locks it has that several hold.
    pub(crate) kinds: Guarantees,
    /// Whether it has one that is held alone.
    pub(crate) excludes: bool,
}

const fn peer(name: &'static str, stores: &'static [Store], folder: &'static str) -> Peer {
    let kinds = Guarantees::empty();
    Peer { name, stores, folder, is_heavy: false, contenders: 1_000, fronted: None, kinds, excludes: true }
}

/// As [`peer`], and with a mutex in front as well.
const fn fronted(
    name: &'static str,
    stores: &'static [Store],
    folder: &'static str,
    with: &'static str,
) -> Peer {
    Peer { fronted: Some(with), ..peer(name, stores, folder) }
}

/// As [`peer`], in a runtime that is slow to start or has a thread per contender.
const fn heavy(name: &'static str, stores: &'static [Store], folder: &'static str) -> Peer {
    Peer { is_heavy: true, contenders: 200, ..peer(name, stores, folder) }
}

/// As [`heavy`], with locks for readers and with permits.
const fn of_all_kinds(name: &'static str, stores: &'static [Store], folder: &'static str) -> Peer {
    let kinds = Guarantees::SHARED.union(Guarantees::PERMITS);
    Peer { kinds, ..heavy(name, stores, folder) }
}

/// As [`heavy`], with permits and nothing else.
const fn of_permits(name: &'static str, stores: &'static [Store], folder: &'static str) -> Peer {
    Peer { kinds: Guarantees::PERMITS, excludes: false, ..heavy(name, stores, folder) }
}

/// One server, or a majority of several: Redlock. The one of `distributed-lock` is left out, see `comparison/peers/README.md`.
const REDLOCK: &[Store] = &[Store::Redis, Store::RedisQuorum];

/// The same, and through a client that follows fail-overs and slots.
const REDSYNC: &[Store] = &[Store::Redis, Store::RedisQuorum, Store::RedisSentinel, Store::RedisCluster];

/// The server waits for whoever calls it. After a thousand have given up it serves nobody that way any more, whatever the
/// lock, until it is started anew.
pub(crate) const LOCK_RPC: &str = "etcd-lock-rpc";
pub(crate) const MOST_BY_RPC: u64 = 100;

/// On Postgres each contender of others has a connection, and each of ours two: a connection is a process of the server.
pub(crate) const MOST_CONNECTIONS: u64 = 200;

/// Everyone.
pub(crate) const PEERS: [Peer; 17] = [
    fronted("rslock", REDLOCK, "rust", "rslock+mutex"),
    fronted("distributed-lock", &[Store::Redis], "rust", "distributed-lock+mutex"),
    heavy("redis-py", &[Store::Redis], "python"),
    of_all_kinds("redisson", &[Store::Redis], "java"),
    of_permits("redisson-semaphore", &[Store::Redis], "java"),
    heavy("redisson-fair", &[Store::Redis], "java"),
    heavy("redisson-redlock", &[Store::RedisQuorum], "java"),
    fronted("redsync", REDSYNC, "go", "redsync+mutex"),
    heavy("node-redlock", REDLOCK, "node"),
    Peer { contenders: MOST_BY_RPC, ..fronted(LOCK_RPC, &[Store::Etcd], "rust", "etcd-lock-rpc+mutex") },
    fronted("go-mutex", &[Store::Etcd], "go", "go-mutex+mutex"),
    heavy("jetcd", &[Store::Etcd], "java"),
    Peer { contenders: MOST_CONNECTIONS, ..peer("pg-advisory-lock", &[Store::Postgres], "rust") },
    Peer { contenders: MOST_CONNECTIONS, ..peer("distributed-lock-postgres", &[Store::Postgres], "rust") },
    fronted("zookeeper-client", &[Store::Zk], "rust", "zookeeper-client+mutex"),
    heavy("kazoo", &[Store::Zk], "python"),
    of_all_kinds("curator", &[Store::Zk], "java"),
];

impl Peer {
    /// Whether its program has contests of many names.
    pub(crate) fn knows_names(&self) -> bool {
        self.folder == "rust"
    }

    /// Its program.
    ///
    /// # Errors
    ///
    /// Why there is none, and how to get it.
    pub(crate) fn program(&self) -> Result<PathBuf, String> {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(self.folder).join("run");
        if program.exists() {
            return Ok(program);
        }
        Err(format!("there is no program for it in comparison/peers/{}", self.folder))
    }
}
