//! Findings about a cluster: each server that has locks, and what is special to several of them.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::Result;
use leasehold_core::backend::Finding;
use leasehold_core::clock::Moment;
use redis::Value;

use super::diagnosis::{Said, about, broken, config, ok, setting, warning};
use crate::cluster::Shard;
use crate::connection::Connected;
use crate::scripts::text;
use crate::session::{Session, Shards};

impl Session {
    /// The findings about the slots, and about each server under its address.
    pub(super) async fn diagnose_cluster(&self, cluster: &Shards, give_up_at: Moment) -> Vec<Finding> {
        let map = cluster.map();
        let mut findings = vec![about("slots", of_slots(map.uncovered()))];
        let servers = map.shards().iter().map(|shard| async {
            let found = self.diagnose_shard(cluster, shard, give_up_at).await;
            let mut found = found.unwrap_or_else(|error| vec![about("server", broken(format!("{error:#}")))]);
            for finding in &mut found {
                finding.detail = format!("{}: {}", shard.primary, finding.detail);
            }
            found
        });
        findings.extend(join_all(servers).await.into_iter().flatten());
        findings
    }

    async fn diagnose_shard(
        &self,
        cluster: &Shards,
        shard: &Shard,
        give_up_at: Moment,
    ) -> Result<Vec<Finding>> {
        let connected = cluster.connected(&shard.primary, give_up_at).await?;
        let mut findings = self.diagnose_server(&connected, give_up_at).await?;
        findings.push(about("replicas", of_replicas(shard.replicas.len())));
        let lag = self.failover.filter(|_| self.pause.is_some()).map(|failover| failover.lag);
        let said = of_cluster(&connected, lag, give_up_at).await?;
        findings.extend(said.into_iter().map(|said| about("slots", said)));
        Ok(findings)
    }
}

/// With the `lag` that the pause covers, if there is one.
async fn of_cluster(connected: &Connected, lag: Option<Duration>, give_up_at: Moment) -> Result<Vec<Said>> {
    let mut nodes = redis::cmd("CLUSTER");
    nodes.arg("NODES");
    let questions = [
        config("cluster-require-full-coverage"),
        nodes,
        config("cluster-node-timeout"),
        config("min-replicas-to-write"),
        config("cluster-allow-replica-migration"),
    ];
    let answers = connected.ask_all(&questions, give_up_at).await?;
    let option = |at| answers.get(at).and_then(setting);
    let mut said = Vec::new();
    if answers.first().and_then(setting) == Some("yes") {
        said.push(warning(
            "cluster-require-full-coverage is yes: while one server and its replicas are unavailable, no lock of \
             any server can be acquired or renewed",
        ));
    }
    said.extend(answers.get(1).and_then(moving));
    if option(3).is_some_and(|least| least != "0") && option(4) == Some("yes") {
        said.push(warning(
            "cluster-allow-replica-migration is yes: the server may get one more replica, which min-replicas-to-write \
             does not count",
        ));
    }
    let timeout = option(2).and_then(|millis| millis.parse().ok()).map(Duration::from_millis);
    said.extend(lag.map(|lag| of_node_timeout(timeout, lag)));
    Ok(said)
}

fn of_slots(uncovered: usize) -> Said {
    match uncovered {
        0 => ok("every slot has a server"),
        some => broken(format!("{some} slots have no server: their locks cannot be acquired or renewed")),
    }
}

/// A primary in a minority refuses after the timeout. A slot that was not used for half of the lag is asked about anew, which must
/// be sooner than a server can be replaced and come back.
fn of_node_timeout(timeout: Option<Duration>, lag: Duration) -> Said {
    match timeout {
        None => warning("cannot check cluster-node-timeout: the user lacks the right for CONFIG GET"),
        Some(timeout) if (lag / 2..=lag).contains(&timeout) => {
            ok(format!("cluster-node-timeout is {timeout:?}, which failover_lag={lag:?} covers"))
        }
        Some(timeout) => broken(format!(
            "cluster-node-timeout is {timeout:?}, but failover_lag is {lag:?}, so a lock may be granted twice at a \
             fail-over: set failover_lag={timeout:?} for all managers of the prefix"
        )),
    }
}

fn of_replicas(replicas: usize) -> Said {
    match replicas {
        0 => warning("the server has no replica: while it is unavailable, so are its locks"),
        some => ok(format!("{some} replicas can take the place of the server")),
    }
}

/// The slots that the server itself gives away or gets, by the answer of `CLUSTER NODES`.
fn moving(nodes: &Value) -> Option<Said> {
    let myself = text(nodes)?.lines().find(|line| line.contains("myself"))?;
    let open = myself.split(' ').filter_map(|word| word.strip_prefix('[')?.split_once('-'));
    let slots: Vec<_> = open.map(|(slot, _)| slot).collect();
    (!slots.is_empty()).then(|| {
        warning(format!(
            "slots are being moved: {}. Until they have moved, no lock in them is acquired, renewed or released",
            slots.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lag is the timeout, or a little longer.
    #[test]
    fn lag_covers_the_node_timeout() {
        use leasehold_core::backend::Severity::{Broken, Ok, Warning};
        let of = |seconds: Option<u64>| {
            of_node_timeout(seconds.map(Duration::from_secs), Duration::from_secs(15)).0
        };
        let expected = [Warning, Broken, Ok, Ok, Broken];
        assert_eq!([None, Some(7), Some(8), Some(15), Some(16)].map(of), expected);
    }

    /// A slot that is on its way is named, on the side that gives it and the one that gets it.
    #[test]
    fn moving_slots_are_named() {
        let said = |line: &str| moving(&Value::BulkString(format!("a 1:2 master\n{line}\n").into_bytes()));
        assert_eq!(said("b 1:2@3 myself,master - 0 0 1 connected 0-5460"), None);
        let (_, detail) = said("b 1:2@3 myself,master - 0 0 1 connected 0-5 [7->-c] [93-<-d]").unwrap();
        assert!(detail.contains("7, 93"), "{detail}");
    }
}
