//! A resource that is fenced, taken from one store to another.

#![allow(clippy::unwrap_used, reason = "test binary")]

use std::time::Duration;

use leasehold::backend::StoreConfig;
use leasehold::etcd::EtcdConfig;
use leasehold::redis::RedisConfig;
use leasehold::zk::ZkConfig;
use leasehold::{FenceGate, FencingToken, LockManager};

const BOUND: Duration = Duration::from_secs(60);

/// A session of its own, which ends with this.
async fn session<T>(config: impl StoreConfig, work: impl AsyncFnOnce(&LockManager) -> T) -> T {
    let builder = LockManager::builder(config).ttl(Duration::from_secs(5)).connect_timeout(BOUND);
    let locks = builder.build().await.unwrap();
    let done = work(&locks).await;
    locks.shutdown().await.unwrap();
    done
}

/// Writes under a lock, which the resource admits or not; with which token.
async fn write(locks: &LockManager, name: &str, gate: &FenceGate) -> (FencingToken, bool) {
    let guard = locks.lock(name).unwrap().wait(BOUND).acquire().await.unwrap();
    let written = (guard.token(), gate.admit(guard.token()).is_ok());
    guard.release().await.unwrap();
    written
}

/// Before the raise every write under the new store's locks is refused, after it every one is accepted.
async fn moves_from_redis_to(config: impl StoreConfig + Clone) {
    let redis = testbed::redis::Settings::new().start().await.unwrap();
    let gate = FenceGate::new();
    let old = RedisConfig::new("127.0.0.1", redis.addr().port());
    let (last, admitted) = session(old, async |locks| write(locks, "ledger", &gate).await).await;
    assert!(admitted);

    for name in ["ledger", "other"] {
        let refused = session(config.clone(), async |locks| write(locks, name, &gate).await).await;
        assert!(!refused.1 && refused.0 < last, "{refused:?}");
    }
    session(config.clone(), async |locks| {
        assert_eq!(locks.token_base().await.unwrap().sessions, Some(0));
        locks.raise_token_base(last).await.unwrap();
        assert!(!write(locks, "ledger", &gate).await.1, "it has read the base that was");
    })
    .await;
    let mut largest = last;
    for name in ["ledger", "other", "ledger"] {
        let (token, admitted) = session(config.clone(), async |locks| write(locks, name, &gate).await).await;
        assert!(admitted && token > largest, "{token} after {largest}");
        largest = token;
    }
}

/// See [`moves_from_redis_to`].
#[tokio::test(flavor = "multi_thread")]
async fn a_fenced_resource_moves_from_redis_to_etcd() {
    let etcd = testbed::etcd::Setup::new().start().await.unwrap();
    moves_from_redis_to(EtcdConfig::new(etcd.endpoints())).await;
}

/// See [`moves_from_redis_to`].
#[tokio::test(flavor = "multi_thread")]
async fn a_fenced_resource_moves_from_redis_to_zookeeper() {
    let server = testbed::zookeeper::Setup::new().start().await.unwrap();
    moves_from_redis_to(ZkConfig::new([server.addr().to_string()])).await;
}
