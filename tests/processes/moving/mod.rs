//! Locks that are moved between two real stores while they are used: by processes that this test starts, stops and
//! kills, and over ways that it breaks.
//!
//! At depth `soak` fifty deployments are played with each pair of stores, and every pair is tried in full.
//!
//! | part | shows |
//! |---|---|
//! | `rolling` | processes replaced one by one, killed, and phases walked to and fro: every count is there once, also where the old store is a fleet that fails over in each phase |
//! | `along` | a hold and a waiter go through every phase; a process that stood still has lost |
//! | `shared` | locks are moved away from under another library that takes them too |
//! | `operators` | a wrong URL is refused, and what is finished stays so |
//! | `faults` | what each fault of each store comes to, in each phase |

mod along;
mod faults;
mod operators;
mod pair;
mod rolling;
mod shared;

use leasehold_conformance::Suite;
use testbed::{Depth, Server, etcd, postgres, redis, zookeeper};

use self::pair::{End, Pair};

/// Adds everything that moves between these servers.
pub(crate) fn add_to(
    mut suite: Suite,
    redis: &redis::Server,
    etcd: &etcd::Etcd,
    zk: &zookeeper::Server,
    postgres: &postgres::Server,
) -> Suite {
    let shared = shared::trials(Server::addr(redis), Server::addr(etcd));
    suite = shared.into_iter().fold(suite, Suite::trial).trial(rolling::failing_over(Server::addr(etcd)));
    let redis = |suffix| End::of::<redis::Server>(Server::addr(redis), suffix);
    let etcd = End::of::<etcd::Etcd>(Server::addr(etcd), "");
    let zk = End::of::<zookeeper::Server>(Server::addr(zk), "");
    let postgres = End::of::<postgres::Server>(Server::addr(postgres), "");
    let pairs = [
        Pair::new("redis-etcd", redis(""), etcd.clone()),
        Pair::new("redis-zookeeper", redis("-old"), zk),
        Pair::new("etcd-redis", etcd.clone(), redis("")),
        Pair::new("redis-postgres", redis(""), postgres.clone()),
        Pair::new("postgres-etcd", postgres, etcd),
        Pair::new("redis-prefix", redis("-old"), redis("-new")),
    ];
    let in_full = Depth::of_run() == Depth::Soak;
    for (index, pair) in pairs.into_iter().enumerate() {
        let deployments = if in_full { 50 } else { 1 + u64::from(index == 0) };
        let trials = rolling::trials(&pair, deployments);
        let trials = trials.into_iter().chain(along::trials(&pair)).chain(operators::trials(&pair));
        suite = trials.fold(suite, Suite::trial);
    }
    let table = faults::trials::<redis::Server, etcd::Etcd>("redis-etcd");
    suite = table.into_iter().fold(suite, Suite::trial);
    let tables = faults::trials::<redis::Server, zookeeper::Server>("redis-zookeeper");
    if in_full {
        let tables = tables.into_iter().chain(faults::trials::<etcd::Etcd, redis::Server>("etcd-redis"));
        let tables = tables.chain(faults::trials::<redis::Server, postgres::Server>("redis-postgres"));
        return tables.fold(suite, Suite::trial);
    }
    // What is written again has a small version there.
    let lost = "in_shadow_the_new_store_is::restarted_empty";
    tables.into_iter().filter(|trial| trial.name().ends_with(lost)).fold(suite, Suite::trial)
}
