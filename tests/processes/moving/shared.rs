//! Locks that a library outside shares by a format of its own are moved away from under it: its processes exclude ours
//! in every phase that has its store, are counted where that store is drained, and are left alone in the end.

use std::net::SocketAddr;
use std::time::Duration;

use leasehold::backend::stage::Phase;
use leasehold::etcd::EtcdConfig;
use leasehold::migrate::Migration;
use leasehold::redis::{Format, RedisConfig};
use libtest_mimic::Trial;
use testbed::redis::{Client, Reply};
use testbed::{Beside, eventually, trial};

use super::pair::{NAME, admin, hold, open, walk};

const TTL: Duration = Duration::from_secs(4);

pub(crate) fn trials(redis: SocketAddr, etcd: SocketAddr) -> Vec<Trial> {
    vec![
        trial("redis-etcd::shared::strings_are_moved_away_from_under_a_library", move || {
            moves_away(redis, etcd, "strings", Format::string())
        }),
        trial("redis-etcd::shared::hashes_are_moved_away_from_under_a_library", move || {
            moves_away(redis, etcd, "hashes", Format::redisson())
        }),
    ]
}

/// A process of the library, by its commands.
struct ForeignClient {
    client: Client,
    key: String,
    is_hash: bool,
}

impl ForeignClient {
    async fn takes(&mut self) -> bool {
        let taken = if self.is_hash {
            const ENTER: &str = "if redis.call('exists', KEYS[1]) == 1 then return 0 end
                redis.call('hset', KEYS[1], 'client:47', 1)
                return redis.call('pexpire', KEYS[1], 600000)";
            self.client.command(&["EVAL", ENTER, "1", &self.key]).await
        } else {
            self.client.command(&["SET", &self.key, "theirs", "NX", "PX", "600000"]).await
        };
        matches!(taken.unwrap(), Reply::Integer(1) | Reply::Simple(_))
    }

    async fn releases(&mut self) {
        assert_eq!(self.client.command(&["DEL", &self.key]).await.unwrap(), Reply::Integer(1));
        let channel = format!("redisson_lock__channel:{{{}}}", self.key);
        self.client.command(&["PUBLISH", &channel, "0"]).await.unwrap();
    }
}

async fn moves_away(redis: SocketAddr, etcd: SocketAddr, space: &str, format: Format) {
    let key = format!("{space}-lock/{{name}}");
    let is_hash = format == Format::redisson();
    let old = || {
        RedisConfig::new(redis.ip().to_string(), redis.port()).prefix(space).format(format.clone().key(&key))
    };
    let migration = || Migration::new(old(), EtcdConfig::new([etcd.to_string()]).prefix(space));
    let (ours, other) = (open(migration(), TTL).await, open(migration(), TTL).await);
    let admin = admin(&migration(), TTL).await;
    let mut foreign = ForeignClient {
        client: Client::connect(redis).await.unwrap(),
        key: key.replace("{name}", NAME),
        is_hash,
    };
    let mut token = None;
    for phase in [Phase::Old, Phase::Shadow, Phase::Both, Phase::Drain] {
        walk(&admin, phase).await;
        eventually("all know the phase", async || {
            let members = admin.status().await.unwrap().members;
            members.len() == 2 && members.iter().all(|member| member.view == Some(phase))
        })
        .await;
        assert!(foreign.takes().await, "in {phase}");
        assert!(other.lock(NAME).unwrap().try_acquire().await.unwrap().is_none(), "two hold in {phase}");
        let lock = ours.lock(NAME).unwrap();
        let waiting = Beside::start(async move { lock.acquire().await.unwrap() });
        eventually("ours waits", async || ours.inspect(NAME).await.is_ok_and(|state| state.contenders > 0))
            .await;
        let holder = ours.inspect(NAME).await.unwrap().holders.pop();
        assert!(phase == Phase::Drain || holder.unwrap().label == "(not leasehold)", "in {phase}");
        if phase == Phase::Drain {
            eventually("the foreign client is counted", async || {
                let members = admin.status().await.unwrap().members;
                members
                    .iter()
                    .any(|member| member.foreign_clients.as_ref().is_some_and(|(_, name)| name == NAME))
            })
            .await;
        }
        foreign.releases().await;
        let guard = waiting.end("ours holds").await;
        assert!(!foreign.takes().await, "two hold in {phase}");
        assert!(token < Some(guard.token()), "tokens grow in {phase}");
        token = Some(guard.token());
        guard.release().await.unwrap();
    }
    walk(&admin, Phase::New).await;
    assert!(foreign.takes().await, "nobody of ours is there any more");
    let guard = hold(&ours).await;
    assert!(token < Some(guard.token()));
    guard.release().await.unwrap();
    foreign.releases().await;
    admin.close().await.unwrap();
}
